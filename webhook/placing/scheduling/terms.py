"""Reads node and label selectors as kube-scheduler does."""

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.api.lenient import mappings, sequence, string, strings
from webhook.api.selectors import NOTHING, NodeSelectorTerm, Requirement, Selector


def label_selector(value: Any) -> Selector:
    """Read a label selector. None matches nothing, and an empty one everything (apimachinery meta/v1/helpers.go)."""
    if not isinstance(value, dict):
        return NOTHING
    return Selector(strings(value.get("matchLabels")), tuple(requirements(value.get("matchExpressions"))))


def choice(term: Mapping[str, Any]) -> NodeSelectorTerm:
    """Read one term of a node selector."""
    return NodeSelectorTerm(
        tuple(requirements(term.get("matchExpressions"))),
        tuple(requirements(term.get("matchFields"))),
    )


def requirements(expressions: Any) -> Iterator[Requirement]:
    """Read `matchExpressions` of a selector, or `matchFields` of a node selector term."""
    for each in mappings(expressions):
        values = frozenset(value for value in sequence(each.get("values")) if isinstance(value, str))
        yield Requirement(string(each.get("key")), string(each.get("operator")), values)
