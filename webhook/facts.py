"""The cluster at one moment, as a value. Rules read it; nothing in it calls out."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from webhook.model import Object

KINDS = frozenset({("", "Namespace"), ("", "Node"), ("nvidia.com", "ClusterPolicy")})
"""Group and kind of the objects that facts are made of."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node's name and labels; GPU Feature Discovery writes what a card is into the labels.

    `taints` are the keys of those that keep pods away which do not tolerate them.
    """

    name: str
    labels: Mapping[str, str]
    taints: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Facts:
    """A snapshot: labels of namespaces by name, nodes, and what the GPU Operator is told of ConfigMaps.

    Two snapshots are the same only if they are one object, so what is derived from one can be remembered.
    """

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    plugin_configs: frozenset[str] = frozenset()
    """Names of the ConfigMaps that a ClusterPolicy's `spec.devicePlugin.config` gives to the device plugin."""
    today: date | None = None
    """The day in UTC, by which exemptions end."""

    @classmethod
    def of(cls, objects: Iterable[Object]) -> "Facts":
        """Take the facts out of API objects, as `kubectl get -o yaml` prints them; other kinds are passed over.

        A later node replaces an earlier one of its name; a later namespace adds its labels, as applying it would.
        """
        namespaces: dict[str, Mapping[str, str]] = {}
        nodes: dict[str, Node] = {}
        configs: set[str] = set()
        for item in objects:
            name = _text(_map(item.get("metadata")).get("name"))
            match group_kind(item):
                case ("", "Namespace"):
                    # The API server labels every namespace with its own name (KEP-2161).
                    known = namespaces.get(name, {"kubernetes.io/metadata.name": name})
                    namespaces[name] = {**known, **_labels(item)}
                case ("", "Node"):
                    nodes[name] = Node(name, _labels(item), _taints(item))
                case ("nvidia.com", "ClusterPolicy"):
                    plugin = _map(_map(item.get("spec")).get("devicePlugin"))
                    if config := _text(_map(plugin.get("config")).get("name")):
                        configs.add(config)
        return cls(namespaces, tuple(nodes.values()), frozenset(configs))


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


def group_kind(item: Object) -> tuple[str, str]:
    """The API group (empty for core) and kind of an object."""
    version = _text(item.get("apiVersion"))
    return version.rpartition("/")[0], _text(item.get("kind"))


def _labels(item: Object) -> dict[str, str]:
    labels = _map(_map(item.get("metadata")).get("labels"))
    return {key: value for key, value in labels.items() if isinstance(value, str)}


def _taints(item: Object) -> frozenset[str]:
    taints = _map(item.get("spec")).get("taints")
    return frozenset(
        _text(_map(each).get("key"))
        for each in (taints if isinstance(taints, list) else ())
        if _map(each).get("effect") in ("NoSchedule", "NoExecute")
    )


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
