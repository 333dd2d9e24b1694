"""Label selectors and node selector terms: what they match, and whether they can hold together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from webhook.model import Object


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label, with the API's operators (k8s.io/api core/v1 NodeSelectorRequirement)."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a node or namespace with these labels satisfies the condition."""
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


def equals(labels: Mapping[str, str]) -> tuple[Requirement, ...]:
    """Turn a map of labels into the requirements it stands for."""
    return tuple(Requirement(key, "In", frozenset((value,))) for key, value in labels.items())


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector: `matchLabels` and `matchExpressions`, all of which must hold. Empty matches all.

    `requirements` are both together.
    """

    labels: Mapping[str, str]
    expressions: tuple[Requirement, ...] = ()
    requirements: tuple[Requirement, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "requirements", equals(self.labels) + self.expressions)

    @classmethod
    def read(cls, value: Object) -> "Selector":
        """Read a selector whose shape a schema has already checked."""
        return cls(
            labels=dict(value.get("matchLabels") or {}),
            expressions=tuple(
                Requirement(e["key"], e["operator"], frozenset(e.get("values") or ()))
                for e in value.get("matchExpressions") or ()
            ),
        )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether these labels satisfy every condition."""
        return all(r.matches(labels) for r in self.requirements)


def contradiction(requirements: Iterable[Requirement]) -> str | None:
    """Name the first label key on which no value could satisfy all the requirements; None when one could.

    Labels are independent of each other, so a node with all of them can exist exactly when each key has a
    value (or can be absent).
    """
    by_key: dict[str, list[Requirement]] = {}
    for requirement in requirements:
        by_key.setdefault(requirement.key, []).append(requirement)
    return next((key for key, group in by_key.items() if not _satisfiable(key, group)), None)


def _satisfiable(key: str, group: list[Requirement]) -> bool:
    if len(group) == 1 and group[0].operator in ("NotIn", "Exists", "DoesNotExist"):
        return True
    if all(r.matches({}) for r in group):
        return True
    named = {value for r in group if r.operator in ("In", "NotIn") for value in r.values}
    return any(all(r.matches({key: value}) for r in group) for value in (*named, *_others(group, named)))


def _others(group: list[Requirement], named: set[str]) -> list[str]:
    """Values that no requirement names: one of any kind, and integers inside the bounds of Gt and Lt."""
    values = (value for r in group if r.operator in ("Gt", "Lt") for value in r.values)
    bounds = [bound for bound in map(integer, values) if bound is not None]
    # A gap of n named values is passed by trying n + 1 integers beyond each bound.
    near = [b + d for b in bounds for d in range(-len(named) - 1, len(named) + 2)]
    spare = "x"
    while spare in named:
        spare += "x"
    return [spare, *map(str, near)]


def integer(text: str) -> int | None:
    """Read a whole number as Go's strconv.ParseInt does, which Kubernetes uses for labels; None for other text."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None
