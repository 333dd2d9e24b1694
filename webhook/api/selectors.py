"""Label selectors and node selector terms: what they match, and whether several can be true together."""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from webhook.model import immutable


class Requirement(NamedTuple):
    """One condition on one label, with the API's operators (k8s.io/api core/v1 NodeSelectorRequirement)."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node or namespace with these labels satisfies the condition."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return value is not None and self._compares(value)
        return False  # the API server matches nothing by an operator it does not know

    @property
    def readable(self) -> bool:
        """Whether the scheduler can read it (apimachinery pkg/labels/selector.go, NewRequirement).

        A term with an unreadable requirement matches no node.
        """
        match self.operator:
            case "In" | "NotIn":
                counted = bool(self.values)
            case "Exists" | "DoesNotExist":
                counted = not self.values
            case "Gt" | "Lt":
                counted = len(self.values) == 1 and integer(next(iter(self.values))) is not None
            case _:
                counted = False
        return counted and is_label_key(self.key) and all(map(is_label_value, self.values))

    def _compares(self, value: str) -> bool:
        bound, number = integer(next(iter(self.values), "")), integer(value)
        if bound is None or number is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound

    def __str__(self) -> str:
        match self.operator:
            case "In" if len(self.values) == 1:
                return f"{self.key}={next(iter(self.values))}"
            case "In" | "NotIn":
                verb = "in" if self.operator == "In" else "not in"
                return f"{self.key} {verb} ({', '.join(sorted(self.values))})"
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
        return f"{self.key} {self.operator} {', '.join(sorted(self.values))}"


class NodeSelectorTerm(NamedTuple):
    """The conditions of one node selector term, on a node's labels and on its fields.

    The API knows one field here, `metadata.name`.
    """

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @property
    def readable(self) -> bool:
        """Whether the scheduler can read all of it (component-helpers scheduling/corev1/nodeaffinity)."""
        fields = all(len(r.values) == 1 and r.operator in ("In", "NotIn") for r in self.fields)
        return fields and all(r.readable for r in self.labels)

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node with this name and these labels satisfies all conditions. An unknown field is empty."""
        return all(r.matches(labels) for r in self.labels) and all(
            r.matches({r.key: name if r.key == "metadata.name" else ""}) for r in self.fields
        )


NOWHERE = NodeSelectorTerm((Requirement("", ""),))
"""A choice that matches no node."""


def equals(labels: Mapping[str, str]) -> tuple[Requirement, ...]:
    """Turn a map of labels into requirements."""
    return tuple(Requirement(key, "In", frozenset((value,))) for key, value in labels.items())


@immutable
class Selector:
    """A label selector: `matchLabels` and `matchExpressions`, which must all match. An empty one matches everything."""

    labels: Mapping[str, str]
    expressions: tuple[Requirement, ...] = ()

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """The conditions of `matchLabels` and `matchExpressions` together."""
        return equals(self.labels) + self.expressions

    @cached_property
    def by_key(self) -> Mapping[str, list[Requirement]]:
        """The same conditions by their label key."""
        return by_key(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether these labels satisfy every condition."""
        return all(r.matches(labels) for r in self.requirements)


class Nothing(Selector):
    """A selector that matches nothing."""

    def matches(self, _: Mapping[str, str]) -> bool:
        """Return false."""
        return False


NOTHING = Nothing({})


def contradiction(requirements: Iterable[Requirement]) -> str | None:
    """Return the first label key for which no value satisfies all the requirements; None if there is no such key.

    Labels are independent of each other: a matching node can exist exactly if each key has a possible value, or can
    be absent.
    """
    return next((key for key, group in by_key(requirements).items() if not satisfiable(group)), None)


def by_key(requirements: Iterable[Requirement]) -> dict[str, list[Requirement]]:
    """Group requirements by their label key."""
    groups: dict[str, list[Requirement]] = {}
    for requirement in requirements:
        groups.setdefault(requirement.key, []).append(requirement)
    return groups


def satisfiable(group: list[Requirement]) -> bool:
    """Return whether some value of one label, or its absence, satisfies all requirements. Runs in linear time."""
    operators = {r.operator for r in group}
    if operators <= _BY_ABSENCE:
        return True
    if not operators <= _BY_PRESENCE:
        return False
    if operators == _ONE_OF:
        return bool(frozenset.intersection(*[r.values for r in group]))
    low, high = -MAX_INTEGER - 1, MAX_INTEGER
    bounded = not operators.isdisjoint(("Gt", "Lt"))
    for r in group if bounded else ():
        if r.operator in ("Gt", "Lt"):
            bound = integer(next(iter(r.values), ""))
            if bound is None:
                return False
            low, high = (max(low, bound + 1), high) if r.operator == "Gt" else (low, min(high, bound - 1))
    excluded = frozenset[str]().union(*(r.values for r in group if r.operator == "NotIn"))
    if allowed := [r.values for r in group if r.operator == "In"]:
        left = frozenset.intersection(*allowed) - excluded
        return any(not bounded or ((n := integer(value)) is not None and low <= n <= high) for value in left)
    if not bounded:
        return True  # any value that no requirement names satisfies all
    numbers = {n for n in map(integer, excluded) if n is not None}
    return high - low + 1 > sum(low <= n <= high for n in numbers)


_BY_ABSENCE = frozenset(("NotIn", "DoesNotExist"))
"""The operators that an absent label satisfies."""
_BY_PRESENCE = frozenset(("In", "NotIn", "Exists", "Gt", "Lt"))
"""The operators that a label with some value satisfies."""
_ONE_OF = frozenset(("In",))

MAX_INTEGER = 2**63 - 1


def integer(text: str) -> int | None:
    """Read an integer as Go's strconv.ParseInt(text, 10, 64) does, which Kubernetes uses for labels.

    Leading zeros are allowed. Returns None for other text, and for a number of more than 64 bits.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    significant = digits.lstrip("0") or "0"
    if len(significant) > len(str(MAX_INTEGER)):
        return None
    number = -int(significant) if text[0] == "-" else int(significant)
    return number if -MAX_INTEGER - 1 <= number <= MAX_INTEGER else None


_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def is_label_value(text: str) -> bool:
    """Return whether this is a valid label value (apimachinery pkg/util/validation IsValidLabelValue)."""
    return _LABEL_VALUE.fullmatch(text) is not None


_LABEL_KEY = re.compile(
    r"(?:(?=.{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LONGEST_KEY = 253 + 1 + 63


def is_label_key(text: str) -> bool:
    """Return whether this is a valid label key (apimachinery pkg/util/validation IsQualifiedName)."""
    return len(text) <= _LONGEST_KEY and _LABEL_KEY.fullmatch(text) is not None
