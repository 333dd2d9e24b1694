"""Taints, tolerations and selectors, as kube-scheduler reads them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.selectors import NOTHING, NodeSelectorTerm, Requirement, Selector


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(NamedTuple):
    """A toleration of a pod; an empty `key` or `effect` stands for every one."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Tell whether it tolerates a taint (k8s.io/component-helpers scheduling/corev1/helpers.go)."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


def labels_of(value: Any) -> dict[str, str]:
    """Read labels, without those that are no strings."""
    return {key: each for key, each in mapping(value).items() if isinstance(each, str)}


def label_selector(value: Any) -> Selector:
    """Read a label selector. None matches nothing, and an empty one everything (apimachinery meta/v1/helpers.go)."""
    if not isinstance(value, dict):
        return NOTHING
    return Selector(labels_of(value.get("matchLabels")), tuple(requirements(value.get("matchExpressions"))))


def choice(term: Mapping[str, Any]) -> NodeSelectorTerm:
    """Read a term of a node selector."""
    return NodeSelectorTerm(
        tuple(requirements(term.get("matchExpressions"))),
        tuple(requirements(term.get("matchFields"))),
    )


def requirements(expressions: Any) -> Iterator[Requirement]:
    """Read `matchExpressions`, or the fields of a node selector term."""
    for each in mappings(expressions):
        values = frozenset(value for value in sequence(each.get("values")) if isinstance(value, str))
        yield Requirement(string(each.get("key")), string(each.get("operator")), values)
