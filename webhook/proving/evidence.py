"""Gathers what a proof states about a cluster: the registration's digest, and the versions of NVIDIA's software.

The versions come from labels of nodes and from images.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, mappings, string
from webhook.facts.installations import is_the_plugin
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.text.words import sha256, shown

LABELS = {
    "driver": "nvidia.com/cuda.driver-version.full",
    "cuda": "nvidia.com/cuda.runtime-version.full",
    "product": "nvidia.com/gpu.product",
    "sharing": "nvidia.com/gpu.sharing-strategy",
}
"""What GPU Feature Discovery writes of a node (k8s-device-plugin internal/lm/nvml.go and resource.go), by our names."""

MOST = 20
"""The most values of a label that are named for a pool."""


class PoolNodes(NamedTuple):
    """The nodes of a pool: their number, and for each of `LABELS` its values and how many nodes have each.

    A label that no node has is left out.
    """

    pool: str
    nodes: int
    labels: Mapping[str, Mapping[str, int]]

    @property
    def value(self) -> dict[str, Any]:
        """The counts as an object for JSON."""
        return {"pool": self.pool, "nodes": self.nodes, "labels": {key: {**row} for key, row in self.labels.items()}}


def nodes(policy: Policy, facts: Facts) -> tuple[PoolNodes, ...]:
    """Count the nodes of each pool that selects nodes, and the values of their labels."""
    by_pool: dict[str, list[Mapping[str, str]]] = {pool.name: [] for pool in policy.pools if pool.has_nodes}
    for node in facts.nodes:
        if (pool := policy.pool_of(node.labels)) is not None and pool.name in by_pool:
            by_pool[pool.name].append(node.labels)
    return tuple(PoolNodes(name, len(found), _values(found)) for name, found in by_pool.items())


def _values(found: Iterable[Mapping[str, str]]) -> dict[str, dict[str, int]]:
    counted = {name: Counter[str]() for name in LABELS}
    for labels in found:
        for name, key in LABELS.items():
            if key in labels:
                counted[name][shown(labels[key], quotes=False)] += 1
    return {name: dict(each.most_common(MOST)) for name, each in counted.items() if each}


class SoftwareImage(NamedTuple):
    """The image of a part of NVIDIA's software, and the object that names it. A node may still run an older image."""

    part: str
    image: str
    by: str


SOFTWARE = {"devicePlugin": "device plugin", "toolkit": "container toolkit"}
"""The parts whose images are known, by their keys in a ClusterPolicy, in our words."""

_TOOLKIT = re.compile(r"(?:^|/)container-toolkit(?:[:@]|$)")
"""The image of the GPU Operator's toolkit (gpu-operator deployments/gpu-operator/values.yaml)."""


_REFERENCE = re.compile(r"\[?\w[\w.:/@+\[\]-]{0,998}", re.ASCII)
"""The characters of an image's name. Other text, such as with a comma, could pass for another image in a table."""


def software(objects: Iterable[Object]) -> tuple[SoftwareImage, ...]:
    """Return the images that DaemonSets and ClusterPolicies name, at most `MOST` of each part, without repeats."""
    found: dict[tuple[str, str], SoftwareImage] = {}
    for item in sorted(objects, key=lambda each: string(each.get("kind")), reverse=True):  # DaemonSets first
        for part, image in _images(item):
            of_part = sum(each.part == part for each in found.values())
            if _REFERENCE.fullmatch(image) and of_part < MOST:
                found.setdefault((part, image), SoftwareImage(part, image, _named(item)))
    return tuple(found.values())


def _named(item: Object) -> str:
    metadata = mapping(item.get("metadata"))
    place = "/".join(filter(None, (string(metadata.get("namespace")), string(metadata.get("name")))))
    return shown(f"{item.get('kind')} {place}", quotes=False)


def _images(item: Object) -> Iterator[tuple[str, str]]:
    spec = mapping(item.get("spec"))
    if item.get("kind") == "DaemonSet":
        for container in mappings(mapping(mapping(spec.get("template")).get("spec")).get("containers")):
            image = string(container.get("image"))
            if is_the_plugin(container):
                yield "devicePlugin", image
            elif _TOOLKIT.search(image):
                yield "toolkit", image
    else:
        yield from ((part, _of_the_operator(mapping(spec.get(part)))) for part in SOFTWARE)


def _of_the_operator(part: Mapping[str, Any]) -> str:
    """Return the image of a part in a ClusterPolicy; empty if it is disabled, or the operator chooses it itself.

    The form is that of gpu-operator api/nvidia/v1/clusterpolicy_types.go (imagePath).
    """
    repository, image, version = (string(part.get(key)) for key in ("repository", "image", "version"))
    if part.get("enabled") is False or not image:
        return ""
    if not repository and not version:
        return image
    separator = "@" if version.startswith("sha256:") else ":"
    return f"{repository}/{image}{separator}{version}" if repository and version else ""


def registration(configurations: Iterable[Object]) -> str:
    """Return the SHA-256 of webhook configurations: of their kinds, names and webhooks, as JSON with sorted keys.

    Without the caBundles, which change with each new CA. Empty without configurations.
    """
    found = [
        {"kind": each.get("kind"), "name": each["metadata"].get("name"), "webhooks": [*map(_unbundled, _hooks(each))]}
        for each in configurations
    ]
    return sha256(json.dumps(found, sort_keys=True, separators=(",", ":"))) if found else ""


def _hooks(configuration: Object) -> Iterable[Object]:
    return configuration.get("webhooks") or ()


def _unbundled(hook: Object) -> Object:
    client = hook.get("clientConfig") or {}
    return {**hook, "clientConfig": {key: value for key, value in client.items() if key != "caBundle"}}
