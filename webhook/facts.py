"""The cluster at one moment, as a value. Rules read it; nothing in it calls out."""

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from webhook import quantity
from webhook.model import Object

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
"""Group and kind of the objects that facts are made of."""

VENDOR = "nvidia.com/"
"""What every resource of NVIDIA's device plugin begins with, and every label of GPU Feature Discovery."""

PRESENT = f"{VENDOR}gpu.present"
"""The GPU Operator's label of nodes with a GPU (gpu-operator controllers/state_manager.go)."""

CONFIG_LABEL = "nvidia.com/device-plugin.config"
"""The label by which a node chooses its key of a sharing ConfigMap (k8s-device-plugin cmd/config-manager)."""

MAX_TEXT = 64 * 1024
"""Characters of a ConfigMap's text, above which only its key is known."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node's name and labels, and how much of NVIDIA's resources it says it has.

    GPU Feature Discovery writes what a card is into the labels. `taints` are those that keep pods away which
    do not tolerate them: the effects of each key.
    """

    name: str
    labels: Mapping[str, str]
    resources: Mapping[str, int] = field(default_factory=dict)
    taints: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def has_gpus(self) -> bool:
        """Whether it has GPUs, by its labels or by what it offers."""
        return PRESENT in self.labels or f"{VENDOR}gpu.product" in self.labels or bool(self.resources)


class Holder(NamedTuple):
    """A pod on a node that holds some of NVIDIA's resources; `asks` says how many of each."""

    namespace: str
    name: str
    node: str
    asks: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Installation:
    """A way in which the device plugin is installed with a ConfigMap: a ClusterPolicy's, or a DaemonSet's.

    `namespace` is empty for a ClusterPolicy, whose ConfigMap and DaemonSet are where the GPU Operator is. Where
    `chosen`, a node's label names its key, `key` is that of a node without the label, and `fallbacks` are tried where
    that is empty; otherwise all nodes use `key`. `env` overrides flags; a value is None where it is not known.
    """

    kind: str
    namespace: str
    name: str
    config_map: str
    chosen: bool
    key: str = ""
    fallbacks: tuple[str, ...] = ()
    env: Mapping[str, str | None] = field(default_factory=dict)
    selector: Mapping[str, str] = field(default_factory=dict)


Texts = Mapping[str, str | None]
"""The keys of a ConfigMap with their texts; None for one that is no text, or too large to keep."""


@dataclass(frozen=True, eq=False)
class Facts:
    """A snapshot: labels of namespaces by name, nodes, and how GPUs are shared and held.

    Two snapshots are the same only if they are one object, so what is derived from one can be remembered.
    """

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    config_maps: Mapping[tuple[str, str], Texts] = field(default_factory=dict)
    """By namespace and name; of a live cluster those of the policy's sharing namespaces."""
    installations: tuple[Installation, ...] = ()
    holders: tuple[Holder, ...] = ()
    today: date | None = None
    """The day in UTC, by which exemptions end."""

    @cached_property
    def named(self) -> Mapping[str, Node]:
        """The nodes by their names."""
        return {node.name: node for node in self.nodes}

    @classmethod
    def of(cls, objects: Iterable[Object]) -> "Facts":
        """Take the facts out of API objects, as `kubectl get -o yaml` prints them; other kinds are passed over.

        So is a node without a name, which a file may have and no cluster. A later object replaces an earlier one of
        its name; a later namespace adds its labels, as applying it would.
        """
        namespaces: dict[str, Mapping[str, str]] = {}
        nodes: dict[str, Node] = {}
        config_maps: dict[tuple[str, str], Texts] = {}
        installations: dict[tuple[str, str, str], Installation | None] = {}
        holders: dict[tuple[str, str], Holder | None] = {}
        for item in objects:
            metadata = _map(item.get("metadata"))
            name, namespace = _text(metadata.get("name")), _text(metadata.get("namespace")) or "default"
            match group_kind(item):
                case ("", "Namespace"):
                    # The API server labels every namespace with its own name (KEP-2161).
                    known = namespaces.get(name, {"kubernetes.io/metadata.name": name})
                    namespaces[name] = {**known, **_labels(item)}
                case ("", "Node") if name:
                    nodes[name] = Node(name, _labels(item), _offered(_map(item.get("status"))), _taints(item))
                case ("", "ConfigMap"):
                    config_maps[namespace, name] = _texts(item)
                case ("", "Pod"):
                    holders[namespace, name] = _holder(namespace, name, item)
                case ("apps", "DaemonSet"):
                    pod = _map(_map(_map(item.get("spec")).get("template")).get("spec"))
                    installations["DaemonSet", namespace, name] = _daemon_set(namespace, name, pod)
                case ("nvidia.com", "ClusterPolicy"):
                    installations["ClusterPolicy", "", name] = _cluster_policy(name, _map(item.get("spec")))
        return cls(
            namespaces,
            tuple(nodes.values()),
            config_maps,
            tuple(each for each in installations.values() if each),
            tuple(each for each in holders.values() if each),
        )


def kept(item: Object) -> Object | None:
    """Return of an object what facts are made of, so that ten thousand nodes fit; None when that is nothing."""
    metadata, spec = _map(item.get("metadata")), _map(item.get("spec"))
    named = {key: metadata[key] for key in ("namespace", "name") if key in metadata}
    small: dict[str, Any] = {"apiVersion": item.get("apiVersion"), "kind": item.get("kind"), "metadata": named}
    match group_kind(item):
        case ("", "Namespace"):
            named["labels"] = _labels(item)
        case ("", "Node"):
            named["labels"] = _labels(item)
            small["spec"] = {"taints": spec.get("taints")}
            small["status"] = {"allocatable": _offered(_map(item.get("status")))}
        case ("", "ConfigMap"):
            small["data"] = _texts(item)
        case ("", "Pod"):
            holder = _holder("", "", item)
            if holder is None:
                return None
            container = {"resources": {"requests": holder.asks}}
            small["spec"] = {"nodeName": holder.node, "containers": [container]}
        case ("apps", "DaemonSet"):
            pod = _map(_map(spec.get("template")).get("spec"))
            if _daemon_set("", "", pod) is None:
                return None
            parts = {key: pod.get(key) for key in ("nodeSelector", "containers", "volumes")}
            small["spec"] = {"template": {"spec": parts}}
        case ("nvidia.com", "ClusterPolicy"):
            small["spec"] = {key: spec.get(key) for key in ("devicePlugin", "mig")}
    return small


# What nodes have and pods hold


def _offered(status: Mapping[str, Any]) -> dict[str, int]:
    """Read what a node says it has; what is allocatable goes before what is there."""
    return _amounts({**_map(status.get("capacity")), **_map(status.get("allocatable"))})


def _holder(namespace: str, name: str, item: Object) -> Holder | None:
    spec = _map(item.get("spec"))
    node = _text(spec.get("nodeName"))
    asks = _asks(spec) if node and _map(item.get("status")).get("phase") not in ("Succeeded", "Failed") else {}
    return Holder(namespace, name, node, asks) if asks else None


def _asks(spec: Mapping[str, Any]) -> dict[str, int]:
    """Sum what a pod holds: its containers and sidecars together, or what one init container needs."""
    containers, first = _maps(spec.get("containers")), _maps(spec.get("initContainers"))
    if len(containers) == 1 and not first:  # nearly all, of tens of thousands
        return {name: amount for name, amount in _requested(containers[0]).items() if amount > 0}
    running, most = Counter[str](), Counter[str]()
    for each in first:
        if each.get("restartPolicy") == "Always":
            running += Counter(_requested(each))
        else:
            most |= running + Counter(_requested(each))
    for each in containers:
        running += Counter(_requested(each))
    return running | most


def _requested(container: Mapping[str, Any]) -> dict[str, int]:
    resources = _map(container.get("resources"))
    return _amounts({**_map(resources.get("limits")), **_map(resources.get("requests"))})


def _amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    return {name: _count(amount) for name, amount in resources.items() if name.startswith(VENDOR)}


def _count(amount: Any) -> int:
    if type(amount) is int:
        return amount
    try:
        return int(quantity.parse(amount))
    except ValueError:
        return 0


# How the device plugin is installed


def _texts(item: Object) -> Texts:
    data = _map(item.get("data"))
    texts: dict[str, str | None] = {key: _small(text) for key, text in data.items()}
    for key, encoded in _map(item.get("binaryData")).items():
        try:
            texts[key] = _small(base64.b64decode(encoded, validate=True).decode("utf-8"))
        except (binascii.Error, TypeError, ValueError):
            texts[key] = None
    return texts


def _small(text: Any) -> str | None:
    return text if isinstance(text, str) and len(text) <= MAX_TEXT else None


OPERATORS_ENV: Mapping[str, str | None] = {
    "PASS_DEVICE_SPECS": "true",
    "FAIL_ON_INIT_ERROR": "true",
    "DEVICE_LIST_STRATEGY": None,
    "DEVICE_ID_STRATEGY": "uuid",
    "MPS_ROOT": "/run/nvidia/mps",
}
"""What the GPU Operator always sets (gpu-operator assets/state-device-plugin/0500_daemonset.yaml).

With CDI it changes the strategy by which devices are listed.
"""


def _cluster_policy(name: str, spec: Mapping[str, Any]) -> Installation | None:
    plugin = _map(spec.get("devicePlugin"))
    config = _map(plugin.get("config"))
    config_map = _text(config.get("name"))
    if not config_map or plugin.get("enabled") is False:
        return None
    mig = _text(_map(spec.get("mig")).get("strategy"))
    env = {**OPERATORS_ENV, **({"MIG_STRATEGY": mig} if mig else {}), **_env(plugin)}
    key = _text(config.get("default"))
    # The operator's own fallback is to share nothing (gpu-operator controllers/object_controls.go).
    return Installation("ClusterPolicy", "", name, config_map, chosen=True, key=key, fallbacks=("empty",), env=env)


_SIBLINGS = ("gpu-feature-discovery", "mps-control-daemon", "config-manager")
"""Programs of the device plugin's image that are not the plugin."""

_PROGRAM = "nvidia-device-plugin"


def _daemon_set(namespace: str, name: str, pod: Mapping[str, Any]) -> Installation | None:
    """Read how a DaemonSet runs the device plugin with a ConfigMap, as the Helm chart and the GPU Operator write it.

    Beside a config-manager the nodes choose; without one the plugin reads one file (k8s-device-plugin
    deployments/helm/nvidia-device-plugin/templates/daemonset-device-plugin.yml).
    """
    containers = _maps(pod.get("containers"))
    plugin = next(filter(_runs_the_plugin, containers), None)
    if plugin is None:
        return None
    env, selector = _env(plugin), {k: v for k, v in _map(pod.get("nodeSelector")).items() if isinstance(v, str)}
    for container in containers:
        if any("config-manager" in word for word in _words(container)):
            told = _env(container)
            folder = told.get("CONFIG_FILE_SRCDIR") or "/available-configs"
            config_map = next((source for at, source, _ in _mounts(pod, container) if at == PurePosixPath(folder)), "")
            fallbacks = tuple(filter(None, (told.get("FALLBACK_STRATEGIES") or "").split(",")))
            key = told.get("DEFAULT_CONFIG") or ""
            break
    else:
        config_map, key = _file(pod, plugin, env)
        fallbacks = ()
        told = None
    if not config_map:
        return None
    return Installation(
        "DaemonSet", namespace, name, config_map, told is not None, key, fallbacks, env=env, selector=selector
    )


def _runs_the_plugin(container: Mapping[str, Any]) -> bool:
    words = _words(container)
    if any(sibling in word for word in words for sibling in _SIBLINGS):
        return False
    return "k8s-device-plugin" in _text(container.get("image")) or any(_PROGRAM in word for word in words)


def _words(container: Mapping[str, Any]) -> list[str]:
    words = [container.get("name"), *_list(container.get("command")), *_list(container.get("args"))]
    return [word for word in words if isinstance(word, str)]


def _file(pod: Mapping[str, Any], plugin: Mapping[str, Any], env: Mapping[str, str | None]) -> tuple[str, str]:
    """Find the ConfigMap and the key that the plugin's one file comes from."""
    words = _words(plugin)
    said = [word.partition("=")[2] for word in words if word.startswith("--config-file=")]
    said += [after for word, after in pairwise(words) if word == "--config-file"]
    path = PurePosixPath((said[0] if said else env.get("CONFIG_FILE")) or "/")
    for at, source, keys in _mounts(pod, plugin):
        if at == path and len(keys) == 1:  # a subPath
            return source, next(iter(keys.values()))
        if at == path.parent:
            return source, keys.get(path.name, "" if keys else path.name)
    return "", ""


def _mounts(
    pod: Mapping[str, Any], container: Mapping[str, Any]
) -> Iterator[tuple[PurePosixPath, str, Mapping[str, str]]]:
    """Yield where a container mounts ConfigMaps: the place, the ConfigMap, and its keys by file where named."""
    volumes = {_text(each.get("name")): _map(each.get("configMap")) for each in _maps(pod.get("volumes"))}
    for mount in _maps(container.get("volumeMounts")):
        volume = volumes.get(_text(mount.get("name")), {})
        if source := _text(volume.get("name")):
            items = {_text(each.get("path")): _text(each.get("key")) for each in _maps(volume.get("items"))}
            if file := _text(mount.get("subPath")):
                items = {file: items.get(file, file)}
            yield PurePosixPath(_text(mount.get("mountPath"))), source, items


def _env(container: Mapping[str, Any]) -> dict[str, str | None]:
    return {
        _text(each.get("name")): None if each.get("valueFrom") else _text(each.get("value"))
        for each in _maps(container.get("env"))
    }


Source = Callable[[], Facts | None]
"""Gives the newest snapshot; None while there is none yet."""


class Dated:
    """A source whose facts know the day. They stay one object for as long as neither changes."""

    def __init__(self, source: Source, today: Callable[[], date]) -> None:
        self._source = source
        self._today = today
        self._last: tuple[Facts, Facts] | None = None

    def __call__(self) -> Facts | None:
        """Return the newest snapshot."""
        facts, day = self._source(), self._today()
        if facts is None:
            return None
        if self._last is None or self._last[0] is not facts or self._last[1].today != day:
            self._last = facts, replace(facts, today=day)
        return self._last[1]


class Fresh:
    """A source that gives nothing while what it has is older than a limit, in seconds."""

    def __init__(self, source: Source, age: Callable[[], float], limit: float) -> None:
        self._source = source
        self._age = age
        self._limit = limit

    def __call__(self) -> Facts | None:
        """Return the newest snapshot that is fresh enough."""
        return self._source() if self._age() <= self._limit else None


def group_kind(item: Object) -> tuple[str, str]:
    """The API group (empty for core) and kind of an object."""
    version = _text(item.get("apiVersion"))
    return version.rpartition("/")[0], _text(item.get("kind"))


def _labels(item: Object) -> Mapping[str, str]:
    labels = _map(_map(item.get("metadata")).get("labels"))
    if all(isinstance(value, str) for value in labels.values()):
        return labels  # one map for all the snapshots that a node is in
    return {key: value for key, value in labels.items() if isinstance(value, str)}


def _taints(item: Object) -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for each in map(_map, _list(_map(item.get("spec")).get("taints"))):
        key, effect = _text(each.get("key")), each.get("effect")
        if effect in ("NoSchedule", "NoExecute"):
            found[key] = found.get(key, frozenset()) | {effect}
    return found


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in _list(value) if isinstance(each, dict)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
