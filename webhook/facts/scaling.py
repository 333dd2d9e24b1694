"""Describes the nodes that an autoscaler can make: the labels and taints that it knows in advance, and the cards."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.selectors import integer
from webhook.api.taints import Taint, taints_of
from webhook.catalog import node_labels
from webhook.facts.parts import VENDOR


class ScaledNodes(NamedTuple):
    """The nodes with NVIDIA GPUs that an autoscaler can make for one object, such as a NodePool.

    `labels` are the labels of each such node that are known in advance. `products` are the known cards that a node may
    have, by any of their names; empty if none is named. `others` is whether it may have other cards as well. `gpus` is
    the largest number of cards of a node; None if unknown. `divided` is whether nodes offer other resources than whole
    cards, in a way that is not known. `node_class` names an EC2NodeClass: classes of other kinds share no cards.
    """

    maker: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    products: tuple[str, ...] = ()
    gpus: int | None = None
    node_class: str = ""
    divided: bool = False
    others: bool = False


def of_node_pool(name: str, template: Mapping[str, Any]) -> ScaledNodes | None:
    """Return the nodes of a Karpenter NodePool, by its template; None if they have no GPUs of NVIDIA.

    Karpenter writes labels of a requirement with one value on each node (kubernetes-sigs/karpenter
    pkg/scheduling/requirements.go, Labels).
    """
    spec = mapping(template.get("spec"))
    stated = [*_stated(spec)]
    if any(_leaves_no_gpu(*each) for each in stated):
        return None
    allowed = _allowed(stated)
    own = {key: value for key, value in mapping(mapping(template.get("metadata")).get("labels")).items() if value}
    labels = {key: string(value) for key, value in own.items() if string(value)}
    labels |= {key: values[0] for key, values in allowed.items() if len(values) == 1}
    taints = tuple(taint for taint in taints_of(spec) if taint.repels)
    named = [allowed[key] for key in node_labels.NAMING if allowed.get(key)]
    bounds = [{*map(node_labels.model, values)} for values in named]
    bounds = [models for models in bounds if "" not in models]
    products = tuple(sorted(value for value in chain(*named) if _is_among(node_labels.model(value), bounds)))
    gpus = any(_GPU_OF in key and operator != "NotIn" for key, operator, _ in stated)
    gpus = gpus or any(key.startswith(VENDOR) for key in labels)
    classed = any(allowed.get(key) and {*allowed[key]} <= classes for key, classes in _GPU_CLASSES.items())
    if not (gpus or classed or products or any(taint.key == node_labels.GPU_TAINT for taint in taints)):
        return None
    counted = [integer(value) or 0 for key in node_labels.COUNTS for value in allowed.get(key, ())]
    reference = mapping(spec.get("nodeClassRef"))
    of_ec2 = string(reference.get("name")) if reference.get("kind") in (None, "EC2NodeClass") else ""
    labels[node_labels.KARPENTER] = name
    return ScaledNodes(
        f"NodePool {name}", labels, taints, products, max(counted, default=0) or None, of_ec2, others=not bounds
    )


def _is_among(model: str, bounds: Iterable[Set[str]]) -> bool:
    return bool(model) and all(model in each for each in bounds)


_GPU_OF, _MANUFACTURER = "-gpu-", "instance-gpu-manufacturer"
"""Parts of the providers' labels: karpenter.k8s.aws/instance-gpu-*, karpenter.azure.com/sku-gpu-*.

(aws/karpenter-provider-aws pkg/apis/v1/labels.go; Azure/karpenter-provider-azure pkg/apis/v1beta1/labels.go)
"""

_GPU_CLASSES = {
    "karpenter.k8s.aws/instance-category": {"g", "gr", "p"},
    "eks.amazonaws.com/instance-category": {"g", "gr", "p"},
    "karpenter.azure.com/sku-family": {"N"},
}
"""The classes of machines that have GPUs, by the label that names a class.

The labels are from the same files, where a family of Azure's is one letter.
(docs.aws.amazon.com/ec2/latest/instancetypes/ac.html; learn.microsoft.com/azure/virtual-machines/sizes/overview)
"""


def _stated(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the key, the operator and the values of each requirement."""
    for each in mappings(spec.get("requirements")):
        if key := string(each.get("key")):
            yield key, string(each.get("operator")), [string(value) for value in sequence(each.get("values"))]


def _leaves_no_gpu(key: str, operator: str, values: Sequence[str]) -> bool:
    """Whether a requirement excludes machines with NVIDIA's GPUs. A machine without GPUs has none of these labels."""
    if _GPU_OF not in key:
        return False
    if key.endswith(_MANUFACTURER) and operator in ("In", "NotIn"):
        return ("nvidia" in values) == (operator == "NotIn")
    bound = integer(values[0]) if len(values) == 1 else None
    below_one = bound is not None and ((operator == "Lt" and bound <= 1) or (operator == "Lte" and bound < 1))
    return below_one or operator == "DoesNotExist"


def _allowed(stated: Sequence[tuple[str, str, list[str]]]) -> dict[str, list[str]]:
    """Return the values that a node's labels may have, by key. Keys without a requirement `In` are left out.

    A node meets all requirements, so only values that all of them allow are left.
    """
    allowed: dict[str, dict[str, None]] = {}
    for key, operator, values in stated:
        if operator == "In":
            before = allowed.get(key)
            allowed[key] = dict.fromkeys(value for value in values if before is None or value in before)
    for key, operator, values in stated:
        if operator == "NotIn" and key in allowed:
            for value in values:
                allowed[key].pop(value, None)
    return {key: [*values] for key, values in allowed.items()}


def of_machines(
    kind: str, name: str, annotations: Mapping[str, Any], labels: Mapping[str, Any], spec: Mapping[str, Any]
) -> ScaledNodes | None:
    """Return the nodes of a MachineDeployment or MachineSet; None if they have no GPUs, or no labels known in advance.

    The annotations are those by which the cluster autoscaler scales from zero (kubernetes/autoscaler
    cluster-autoscaler/cloudprovider/clusterapi/clusterapi_utils.go; openshift/machine-api-operator).
    """
    known = {key: value for key, value in labels.items() if isinstance(value, str)}
    known |= dict(_pairs(string(annotations.get(f"{_CAPACITY}/labels"))))
    taints = tuple(taint for taint in taints_of(spec) if taint.repels)
    gpus = max(integer(string(annotations.get(key))) or 0 for key in _GPU_COUNTS)
    resource = string(annotations.get(f"{_CAPACITY}/gpu-type")) or _GPU
    tainted = any(taint.key == node_labels.GPU_TAINT for taint in taints)
    if not known or not (gpus or tainted) or "nvidia" not in resource:
        return None
    products = tuple(value for key in node_labels.PRODUCTS if node_labels.card_type(value := known.get(key, "")))
    return ScaledNodes(f"{kind} {name}", known, taints, products, gpus or None, divided=resource != _GPU)


_GPU = f"{VENDOR}gpu"
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"
_GPU_COUNTS = (f"{_CAPACITY}/gpu-count", "machine.openshift.io/GPU")


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Read labels as the annotation has them: `key=value,key=value`."""
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if key and equals:
            yield key, value


def of_accelerator(product: str) -> ScaledNodes:
    """Return the nodes that GKE Autopilot or node auto-provisioning makes for an accelerator.

    Pods choose such nodes by the accelerator's label (cloud.google.com/kubernetes-engine/docs/how-to/autopilot-gpus).
    The nodes have GKE's taint.
    """
    taint = Taint(node_labels.GPU_TAINT, "present", "NoSchedule")
    products = (product,) if node_labels.card_type(product) else ()
    return ScaledNodes(f"accelerator {product}", {node_labels.GKE_ACCELERATOR: product}, (taint,), products)


class NodeClassSharing(NamedTuple):
    """How the nodes of a class share their cards: each card in `replicas` slices, whose resource may be renamed."""

    replicas: int
    renamed: bool


WHOLE_CARDS = NodeClassSharing(1, renamed=False)
"""Cards that are not shared by the class."""

UNKNOWN_SHARING = NodeClassSharing(0, renamed=False)
"""Cards that are shared or divided in a way that is not read here, such as MPS and MIG."""


def of_user_data(text: str) -> NodeClassSharing:
    """Return how Bottlerocket shares cards, by the settings in its user data.

    The device plugin is a part of the system (bottlerocket.dev, settings.kubelet-device-plugins.nvidia). Text that is
    no TOML is a shell script or MIME parts, unless it names these settings.
    """
    try:
        found: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return UNKNOWN_SHARING if SHARING_SETTINGS[1] in text else WHOLE_CARDS
    for key in SHARING_SETTINGS:
        found = mapping(mapping(found).get(key))
    slicing = mapping(found.get("time-slicing"))
    replicas, renamed = slicing.get("replicas", 2), slicing.get("rename-by-default", True)
    sharing, division = found.get("device-sharing-strategy", "none"), found.get("device-partitioning-strategy", "none")
    if sharing == division == "none":
        return WHOLE_CARDS
    counted = isinstance(replicas, int) and not isinstance(replicas, bool) and 2 <= replicas <= MAX_REPLICAS
    if (sharing, division) != ("time-slicing", "none") or not counted:
        return UNKNOWN_SHARING
    return NodeClassSharing(replicas, renamed is not False)


MAX_REPLICAS = 65536
"""The most slices of a card that a policy can name. More are not read."""

SHARING_SETTINGS: Sequence[str] = ("settings", "kubelet-device-plugins", "nvidia")
"""The table of Bottlerocket's settings that has the sharing of cards."""
