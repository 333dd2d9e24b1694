"""A snapshot of the cluster, as a value that rules read. Nothing here does input or output."""

import base64
import binascii
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, lru_cache
from itertools import chain
from math import ceil
from sys import intern
from typing import Any, NamedTuple, TypeVar

from webhook.api import quantity, requests
from webhook.api.devices import DEVICES, GROUP, MEMORY, TEMPLATE, DeviceRequest, device_requests
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, string
from webhook.api.taints import taints_of
from webhook.facts import queues, rights
from webhook.facts.installations import PluginInstallation, Texts, of_cluster_policy, of_daemon_set
from webhook.facts.queues import Queues
from webhook.facts.rights import UNREAD, Account, GrantedRight, Rights
from webhook.model import Malformed, Object, Path, immutable

K = TypeVar("K")
V = TypeVar("V")

KINDS = frozenset(
    {
        ("", "Namespace"),
        ("", "Node"),
        ("", "ConfigMap"),
        ("", "Pod"),
        ("apps", "DaemonSet"),
        ("nvidia.com", "ClusterPolicy"),
    }
)
"""The group and kind of the objects that facts come from."""

COMPUTE_DOMAIN = ("resource.nvidia.com", "ComputeDomain")
"""The group and kind of nodes that share memory; NVIDIA's DRA driver makes a template for its channels."""

CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
"""The device class of these channels (dra-driver-nvidia-gpu deployments/helm, templates/deviceclass-*.yaml)."""

CHANNEL = DeviceRequest((), CHANNEL_CLASS, everything=False, admin=False, selectors=())
"""The devices that a claim of that template requests."""

SLICE = (GROUP, "ResourceSlice")

GPU_CLUSTER = ("nvidia.com", "GPUCluster")

PRIORITY_CLASS = ("scheduling.k8s.io", "PriorityClass")

FILE_KINDS = frozenset(
    (
        *DEVICES,
        SLICE,
        COMPUTE_DOMAIN,
        GPU_CLUSTER,
        PRIORITY_CLASS,
        queues.FLAVOR,
        queues.CLUSTER_QUEUE,
        queues.LOCAL_QUEUE,
        *rights.KINDS,
    )
)
"""The group and kind of more facts. The webhook reads of them devices alone, and only for pools of device classes."""


VENDOR = "nvidia.com/"
"""The prefix of the resources of NVIDIA's device plugin, and of the labels of GPU Feature Discovery."""

PRESENT = f"{VENDOR}gpu.present"
"""The GPU Operator's label on nodes with a GPU (gpu-operator controllers/state_manager.go)."""

CONFIG_LABEL = "nvidia.com/device-plugin.config"
"""The label by which a node chooses its key in a sharing ConfigMap (k8s-device-plugin cmd/config-manager)."""

MAX_TEXT = 64 * 1024
"""The most characters of a ConfigMap's text that are kept. A longer text is known by its key alone."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its name, its labels, and the amounts of NVIDIA's resources that it reports.

    GPU Feature Discovery describes the cards in the labels. `taints` has the NoSchedule and NoExecute effects by key.
    """

    name: str
    labels: Mapping[str, str]
    resources: Mapping[str, int] = field(default_factory=dict)
    taints: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def has_gpus(self) -> bool:
        """Whether it has GPUs, by its labels or its resources."""
        return PRESENT in self.labels or f"{VENDOR}gpu.product" in self.labels or bool(self.resources)


class Holder(NamedTuple):
    """A pod on a node that holds some of NVIDIA's resources; `asks` are their amounts."""

    namespace: str
    name: str
    node: str
    asks: Mapping[str, int]


class DeviceClass(NamedTuple):
    """A DeviceClass: the text of its selectors, and the extended resource by which pods can request it, or empty."""

    selectors: str
    resource: str = ""


class PriorityClass(NamedTuple):
    """A PriorityClass: its value, whether its pods evict others, and whether it is that of pods which name none."""

    value: int
    preempts: bool = True
    default: bool = False


SYSTEM_CLASS = PriorityClass(2_000_000_000)
"""The least of the classes `system-*`, which every cluster has (kubernetes pkg/apis/scheduling/v1/helpers.go)."""


class Device(NamedTuple):
    """A device in a ResourceSlice of a driver, on a node (empty for devices of several nodes).

    `memory` is in MiB, 0 if unknown. It is `shared` if several claims may have it at once, and `uncounted` if a claim
    that says nothing of its memory takes none of it (resource/v1 Device, CapacityRequestPolicy).
    """

    driver: str
    node: str
    name: str
    product: str = ""
    memory: int = 0
    shared: bool = False
    uncounted: bool = False


@immutable
class Facts:
    """A snapshot: labels of namespaces by name, nodes, and the sharing and the holders of GPUs.

    Snapshots compare by identity, so that results derived from one can be cached.
    """

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    config_maps: Mapping[tuple[str, str], Texts] = field(default_factory=dict)
    """ConfigMaps by namespace and name. In a live cluster, only those of the policy's sharing namespaces."""
    installations: tuple[PluginInstallation, ...] = ()
    holders: tuple[Holder, ...] = ()
    device_classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    """The DeviceClasses by name."""
    claimed: Mapping[tuple[str, str, str], tuple[DeviceRequest, ...]] = field(default_factory=dict)
    """The requests of claims and their templates, by kind, namespace and name."""
    devices: tuple[Device, ...] = ()
    """The devices of all ResourceSlices."""
    queues: Queues = field(default_factory=Queues)
    """The queues of Kueue. Only from files."""
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    """The PriorityClasses by name. Only from files."""
    gpu_clusters: tuple[str, ...] = ()
    """The names of the GPU Operator's GPUClusters, which stand in for a ClusterPolicy. Only from files."""
    rights: Rights = UNREAD
    """Who holds the right of trust: by the API server, which is asked, or by roles and bindings in files."""
    today: date | None = None
    """The day in UTC, which decides whether an exemption has ended."""

    @cached_property
    def named(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}

    def trusts(self, namespace: str, account: str = "") -> bool | None:
        """Tell whether an account, or all of a namespace without one, holds the right of trust; None if unknown."""
        return self.rights.held(Account(namespace, account))

    @classmethod
    def of(cls, objects: Iterable[Object]) -> "Facts":
        """Make facts from API objects, as `kubectl get -o yaml` prints them.

        Objects of other kinds are skipped, and nodes without a name, which a file may have. A later object replaces an
        earlier one with its name. A later namespace adds its labels, as `kubectl apply` does.
        """
        return gathered(filter(None, map(read, objects)))


class Fact(NamedTuple):
    """What one object says: the table that it belongs to, its key there, and the value; None if it says nothing."""

    table: str
    key: str | tuple[str, ...]
    value: Any


def read(item: Object) -> Fact | None:
    """Read what one API object says, whatever the others say; None for other kinds, and for a node without a name."""
    metadata = mapping(item.get("metadata"))
    name, namespace = string(metadata.get("name")), intern(string(metadata.get("namespace")) or "default")
    match group_kind(item):
        case ("", "Namespace"):
            # The API server labels every namespace with its own name (KEP-2161).
            return Fact("namespaces", name, {"kubernetes.io/metadata.name": name, **_labels(item)})
        case ("", "Node") if name:
            node = Node(name, _labels(item), _offered(mapping(item.get("status"))), _taints(item))
            return Fact("nodes", name, node)
        case ("", "ConfigMap"):
            return Fact("config_maps", (namespace, name), _texts(item))
        case ("", "Pod"):
            return Fact("holders", (namespace, name), _holder(namespace, name, item))
        case ("apps", "DaemonSet"):
            pod = mapping(mapping(mapping(item.get("spec")).get("template")).get("spec"))
            return Fact("installations", ("DaemonSet", namespace, name), of_daemon_set(namespace, name, pod))
        case ("nvidia.com", "ClusterPolicy"):
            found = of_cluster_policy(name, mapping(item.get("spec")))
            return Fact("installations", ("ClusterPolicy", "", name), found)
        case ("resource.k8s.io", "DeviceClass"):
            return Fact("classes", name, _device_class(mapping(item.get("spec"))))
        case ("resource.k8s.io", "ResourceClaim" | "ResourceClaimTemplate" as kind):
            return Fact("claimed", (kind, namespace, name), _claimed(kind, item))
        case ("resource.k8s.io", "ResourceSlice"):
            return Fact("slices", name, tuple(_devices(mapping(item.get("spec")))))
        case ("scheduling.k8s.io", "PriorityClass"):
            value, never = item.get("value"), item.get("preemptionPolicy") == "Never"
            default = item.get("globalDefault") is True
            return Fact("priorities", name, PriorityClass(value if type(value) is int else 0, not never, default))
        case kind if kind == COMPUTE_DOMAIN:
            template = _channel_template(mapping(item.get("spec")))
            return Fact("channels", (TEMPLATE, namespace, template), (CHANNEL,) if template else None)
        case queues.FLAVOR:
            return Fact("flavors", name, queues.flavor(mapping(item.get("spec"))))
        case queues.CLUSTER_QUEUE:
            return Fact("quotas", name, tuple(queues.quotas(mapping(item.get("spec")))))
        case queues.LOCAL_QUEUE:
            return Fact("local", (namespace, name), string(mapping(item.get("spec")).get("clusterQueue")))
        case kind if kind == GPU_CLUSTER:
            return Fact("gpu_clusters", name, name)
        case (rights.RBAC, kind) if (rights.RBAC, kind) in rights.KINDS:
            return Fact("giving", (kind, namespace, name), item)
    return None


def gathered(facts: Iterable[Fact]) -> Facts:
    """Make a snapshot of what objects say. It reads none of them again.

    A later object replaces an earlier one with its name. A later namespace adds its labels, as `kubectl apply` does.
    """
    tables: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
    for table, key, value in facts:
        known = tables[table]
        known[key] = {**known[key], **value} if table == "namespaces" and key in known else value
    said = {table: {key: value for key, value in known.items() if value is not None} for table, known in tables.items()}
    giving = said.get("giving", {})
    return Facts(
        namespaces=said.get("namespaces", {}),
        nodes=tuple(said.get("nodes", {}).values()),
        config_maps=said.get("config_maps", {}),
        installations=tuple(said.get("installations", {}).values()),
        holders=tuple(said.get("holders", {}).values()),
        device_classes=said.get("classes", {}),
        claimed={**said.get("channels", {}), **said.get("claimed", {})},
        devices=tuple(chain.from_iterable(said.get("slices", {}).values())),
        queues=Queues(said.get("flavors", {}), said.get("quotas", {}), queues.leading(said.get("local", {}))),
        priority_classes=said.get("priorities", {}),
        gpu_clusters=tuple(said.get("gpu_clusters", {})),
        rights=GrantedRight(giving.values()) if giving else UNREAD,
    )


def joined(parts: Iterable[Facts]) -> Facts:
    """Join facts of different objects, all of kinds that are read of a live cluster."""
    each = tuple(parts)
    return Facts(
        namespaces=_merged(part.namespaces for part in each),
        nodes=tuple(chain.from_iterable(part.nodes for part in each)),
        config_maps=_merged(part.config_maps for part in each),
        installations=tuple(chain.from_iterable(part.installations for part in each)),
        holders=tuple(chain.from_iterable(part.holders for part in each)),
        device_classes=_merged(part.device_classes for part in each),
        claimed=_merged(part.claimed for part in each),
        devices=tuple(chain.from_iterable(part.devices for part in each)),
    )


def _merged(parts: Iterable[Mapping[K, V]]) -> dict[K, V]:
    merged: dict[K, V] = {}
    for part in parts:
        merged |= part
    return merged


def kept(item: Object) -> Object | None:
    """Return the part of an object that facts need, so that ten thousand nodes fit; None if they need nothing."""
    metadata, spec = mapping(item.get("metadata")), mapping(item.get("spec"))
    named = {key: metadata[key] for key in ("namespace", "name") if key in metadata}
    result: dict[str, Any] = {"apiVersion": item.get("apiVersion"), "kind": item.get("kind"), "metadata": named}
    match group_kind(item):
        case ("", "Namespace"):
            named["labels"] = _labels(item)
        case ("", "Node"):
            named["labels"] = _labels(item)
            result["spec"] = {"taints": spec.get("taints")}
            result["status"] = {"allocatable": _offered(mapping(item.get("status")))}
        case ("", "ConfigMap"):
            result["data"] = _texts(item)
        case ("", "Pod"):
            holder = _holder("", "", item)
            if holder is None:
                return None
            result["spec"] = _held(holder.node, tuple(holder.asks.items()))
            named |= {key: intern(value) for key, value in named.items() if key == "namespace" and type(value) is str}
        case ("apps", "DaemonSet"):
            pod = mapping(mapping(spec.get("template")).get("spec"))
            if of_daemon_set("", "", pod) is None:
                return None
            parts = {key: pod.get(key) for key in ("nodeSelector", "containers", "volumes")}
            result["spec"] = {"template": {"spec": parts}}
        case (group, "ResourceClaim" | "ResourceClaimTemplate") if group == GROUP:
            result["spec"] = _without_config(spec)
        case kind if kind == PRIORITY_CLASS:
            result |= {key: item[key] for key in ("value", "preemptionPolicy", "globalDefault") if key in item}
        case kind if kind in rights.KINDS:
            part = rights.kept(item)
            return None if part is None else {**result, **part}
        case kind if kind in FILE_KINDS:
            result["spec"] = spec
        case ("nvidia.com", "ClusterPolicy"):
            result["spec"] = {key: spec.get(key) for key in ("devicePlugin", "mig")}
    return result


# Claims for devices


def _claimed(kind: str, item: Object) -> tuple[DeviceRequest, ...] | None:
    """Return what a claim or a template requests, with all alternatives; None if it has a wrong shape."""
    base = DEVICES[GROUP, kind]
    devices = item
    for key in base:
        devices = mapping(devices.get(str(key)))
    try:
        text = json.dumps({key: devices.get(key) for key in _READ}, sort_keys=True)
    except (TypeError, ValueError, RecursionError):  # only in files: no API server stores such a value
        return _requests(devices, base)
    return _alike(text, base) if len(text) <= MAX_ALIKE else _requests(devices, base)


_READ = ("requests", "constraints")
"""The parts of a claim's `devices` by which it says what it requests."""

MAX_ALIKE = 2048
"""The longest text of requests, as JSON, whose reading is shared."""


@lru_cache(maxsize=1024)  # a template makes a claim for each pod, and all of them request the same
def _alike(text: str, base: Path) -> tuple[DeviceRequest, ...] | None:
    return _requests(json.loads(text), base)


def _requests(devices: Object, base: Path) -> tuple[DeviceRequest, ...] | None:
    try:
        return tuple(one for one in device_requests(devices, base) if one.device_class)
    except Malformed:
        return None


def _without_config(spec: Any) -> Any:
    """Leave out the configuration of drivers from a claim or a template: nothing reads it in facts."""
    if isinstance(spec, dict):
        return {key: _without_config(value) for key, value in spec.items() if key != "config"}
    return spec


def _device_class(spec: Mapping[str, Any]) -> DeviceClass:
    return DeviceClass(" ".join(_selectors(spec)), string(spec.get("extendedResourceName")))


def _channel_template(spec: Mapping[str, Any]) -> str:
    """Return the name of the template that the driver makes for a domain's channels.

    Source: dra-driver-nvidia-gpu api/nvidia.com/resource/v1beta1/computedomain.go, ComputeDomainChannelSpec.
    """
    return string(mapping(mapping(spec.get("channel")).get("resourceClaimTemplate")).get("name"))


def _selectors(spec: Mapping[str, Any]) -> Iterator[str]:
    for selector in mappings(spec.get("selectors")):
        yield string(mapping(selector.get("cel")).get("expression"))


def _devices(spec: Mapping[str, Any]) -> Iterator[Device]:
    driver, node = string(spec.get("driver")), string(spec.get("nodeName"))
    for item in mappings(spec.get("devices")):
        # In v1beta1 everything but the name was under `basic`.
        said = {**item, **mapping(item.get("basic"))}
        attributes = {
            name.rpartition("/")[2]: mapping(value) for name, value in mapping(said.get("attributes")).items()
        }
        sizes = {name.rpartition("/")[2]: mapping(value) for name, value in mapping(said.get("capacity")).items()}
        memory, shared = sizes.get(MEMORY, {}), said.get("allowMultipleAllocations") is True
        policy = mapping(memory.get("requestPolicy"))
        yield Device(
            driver,
            string(said.get("nodeName")) or node,
            string(item.get("name")),
            # NVIDIA's driver names a card as in `nvidia-smi`; GPU Feature Discovery writes the same with dashes.
            "-".join(string(attributes.get("productName", {}).get("string")).split()),
            _count(memory.get("value", 0)) // 2**20,
            shared,
            shared and (not memory or ("default" in policy and _count(policy["default"]) == 0)),
        )


# Resources of nodes and pods


def _offered(status: Mapping[str, Any]) -> dict[str, int]:
    """Read the amounts of a node's resources. `allocatable` overrides `capacity`."""
    return _amounts({**mapping(status.get("capacity")), **mapping(status.get("allocatable"))})


def _holder(namespace: str, name: str, item: Object) -> Holder | None:
    spec = mapping(item.get("spec"))
    node = intern(string(spec.get("nodeName")))  # as a hundred pods of the node have it
    asks = _asks(spec) if node and mapping(item.get("status")).get("phase") not in ("Succeeded", "Failed") else {}
    return Holder(namespace, name, node, _shared(tuple(asks.items()))) if asks else None


@lru_cache(maxsize=1024)  # a hundred thousand pods ask for a handful of amounts
def _shared(amounts: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    return dict(amounts)


@lru_cache(maxsize=65_536)  # pods of one node that ask for the same share it
def _held(node: str, asks: tuple[tuple[str, int], ...]) -> Object:
    return {"nodeName": node, "containers": [{"resources": {"requests": dict(asks)}}]}


def _asks(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the resources that a pod holds, without those of which it requests none."""
    asked = requests.of_spec(spec, VENDOR)
    return {name: ceil(amount) for name, amount in asked.items() if amount > 0}


def _amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    return {name: _count(amount) for name, amount in resources.items() if name.startswith(VENDOR)}


def _count(amount: Any) -> int:
    return ceil(quantity.amount(amount))


# ConfigMaps, labels and taints


def _texts(item: Object) -> Texts:
    data = mapping(item.get("data"))
    texts: dict[str, str | None] = {key: _small(text) for key, text in data.items()}
    for key, encoded in mapping(item.get("binaryData")).items():
        try:
            texts[key] = _small(base64.b64decode(encoded, validate=True).decode("utf-8"))
        except (binascii.Error, TypeError, ValueError):
            texts[key] = None
    return texts


def _small(text: Any) -> str | None:
    return text if isinstance(text, str) and len(text) <= MAX_TEXT else None


def _labels(item: Object) -> Mapping[str, str]:
    labels = mapping(mapping(item.get("metadata")).get("labels"))
    if all(isinstance(value, str) for value in labels.values()):
        return labels  # shared between the snapshots
    return {key: value for key, value in labels.items() if isinstance(value, str)}


def _taints(item: Object) -> Mapping[str, frozenset[str]]:
    effects: dict[str, frozenset[str]] = {}
    for taint in taints_of(mapping(item.get("spec"))):
        if taint.repels:
            effects[taint.key] = effects.get(taint.key, frozenset()) | {taint.effect}
    return effects
