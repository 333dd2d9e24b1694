"""Evaluates label selectors and node selector terms: which objects match, and whether several can match together."""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
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
        """Whether the scheduler can read the requirement (apimachinery pkg/labels/selector.go, NewRequirement).

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
        """Whether the scheduler can read every condition (component-helpers scheduling/corev1/nodeaffinity)."""
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
    def values(self) -> "Mapping[str, Values]":
        """The values that the selector allows for each label that it names."""
        return {key: Values.of(group) for key, group in by_key(self.requirements).items()}

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

    Labels are independent of each other. So a matching node can exist exactly if each key has a possible value, or can
    be absent.
    """
    return next((key for key, group in by_key(requirements).items() if not satisfiable(group)), None)


def by_key(requirements: Iterable[Requirement]) -> dict[str, list[Requirement]]:
    """Group requirements by their label key."""
    groups: dict[str, list[Requirement]] = {}
    for requirement in requirements:
        groups.setdefault(requirement.key, []).append(requirement)
    return groups


def satisfiable(group: Collection[Requirement]) -> bool:
    """Return whether some value of one label, or its absence, satisfies all requirements."""
    if group and all(r.operator == "In" for r in group):  # nearly always
        return bool(frozenset.intersection(*[r.values for r in group]))
    return Values.of(group).possible


@immutable
class Values:
    """The values that requirements allow for one label, and whether it may be absent.

    The values of many requirements are read once, and then compared with those of each pool.
    """

    absent: bool = True
    """Whether the label may be absent."""
    present: bool = True
    """Whether the label may have a value."""
    numbers: range | None = None
    """The integers between which the value must be; None if it need not be an integer."""
    listed: frozenset[str] | None = None
    """The only values that are left, if requirements list them. All are among `numbers`, and none is `excluded`."""
    excluded: frozenset[str] = frozenset()
    """The values that the label may not have."""

    @classmethod
    def of(cls, group: Collection[Requirement]) -> "Values":
        """Read the requirements on one label."""
        operators = {r.operator for r in group}
        absent, present = operators <= _BY_ABSENCE, operators <= _BY_PRESENCE
        bounds = [(r.operator, integer(next(iter(r.values), ""))) for r in group if r.operator in _BOUNDS]
        above = [bound + 1 for operator, bound in bounds if operator == "Gt" and bound is not None]
        below = [bound for operator, bound in bounds if operator == "Lt" and bound is not None]
        if len(above) + len(below) < len(bounds):
            present = False  # no value compares with a bound that is no integer
        numbers = range(max(above, default=-MAX_INTEGER - 1), min(below, default=MAX_INTEGER + 1)) if bounds else None
        excluded = frozenset[str]().union(*(r.values for r in group if r.operator == "NotIn"))
        lists = [r.values for r in group if r.operator == "In"]
        left = frozenset.intersection(*lists) - excluded if lists else None
        if left and numbers is not None:
            left = frozenset(value for value in left if (n := integer(value)) is not None and n in numbers)
        return cls(absent, present, numbers, left, excluded)

    @property
    def possible(self) -> bool:
        """Whether the requirements allow any value, or the absence of the label."""
        return self.meet(_ANY)

    def meet(self, other: "Values") -> bool:
        """Return whether some value, or the absence of the label, satisfies the requirements of both.

        Once the integers of both are sorted, the cost depends only on the one with fewer values.
        """
        if self.absent and other.absent:
            return True
        if not (self.present and other.present):
            return False
        if self.listed is not None:
            return other._has_one_of(self) if other.listed is None else not self.listed.isdisjoint(other.listed)
        if other.listed is not None:
            return self._has_one_of(other)
        numbers = _common(self.numbers, other.numbers)
        if numbers is None:
            return True  # any value that no requirement names satisfies all
        few, many = sorted((self._excluded_integers, other._excluded_integers), key=len)
        lost = _count(many, numbers) + sum(n in numbers and not _count(many, range(n, n + 1)) for n in few)
        return numbers.stop - numbers.start > lost

    def _has_one_of(self, other: "Values") -> bool:
        """Return whether a value that the other lists is left. Each look but the last meets an excluded value."""
        if self.numbers is None:
            return any(value not in self.excluded for value in other.listed or ())
        integers = other._listed_integers
        first, end = (bisect_left(integers, (bound, "")) for bound in (self.numbers.start, self.numbers.stop))
        return any(integers[at][1] not in self.excluded for at in range(first, end))

    @cached_property
    def _listed_integers(self) -> list[tuple[int, str]]:
        return sorted((n, value) for value in self.listed or () if (n := integer(value)) is not None)

    @cached_property
    def _excluded_integers(self) -> list[int]:
        return sorted({n for n in map(integer, self.excluded) if n is not None})


_ANY = Values()


def _common(one: range | None, other: range | None) -> range | None:
    if one is None or other is None:
        return other if one is None else one
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _count(integers: list[int], numbers: range) -> int:
    """Return how many of the sorted integers are among the numbers."""
    return bisect_left(integers, numbers.stop) - bisect_left(integers, numbers.start) if numbers else 0


_BY_ABSENCE = frozenset(("NotIn", "DoesNotExist"))
"""The operators that an absent label satisfies."""
_BY_PRESENCE = frozenset(("In", "NotIn", "Exists", "Gt", "Lt"))
"""The operators that a label with some value satisfies."""
_BOUNDS = frozenset(("Gt", "Lt"))

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
