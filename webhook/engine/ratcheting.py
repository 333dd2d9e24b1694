"""Finds the results that an update adds. Only these count, so a stricter policy does not block what already runs."""

import json
from collections import defaultdict
from collections.abc import Iterable

from webhook.allowance import Allowance
from webhook.model import Object, Path, Result

Mark = tuple[str, Path, str]
"""Identifies a fault: the rule, a place that does not depend on list indices, and one part of the finding."""


def added(
    results: Iterable[Result], item: Object, old_results: Iterable[Result], old: Object, allowance: Allowance
) -> list[Result]:
    """Return the results with at least one part (see `Finding`) that the old object's results do not have.

    Raises TooLate.
    """
    known = defaultdict[Mark, int](int)
    for result in old_results:
        allowance.look()
        for mark in _marks(result, old):
            known[mark] += 1
    fresh = []
    for result in results:
        allowance.look()
        new = False
        for mark in _marks(result, item):
            known[mark] -= 1  # each old fault excuses only one new result
            new = new or known[mark] < 0
        if new:
            fresh.append(result)
    return fresh


def _marks(result: Result, item: Object) -> list[Mark]:
    """Return one mark for each part of a result. Without parts, the message with the value at the path is the part."""
    finding = result.finding
    place, value = _at(item, finding.path)
    parts = finding.parts or (f"{finding.message}\n{_text(value)}",)
    return [(result.rule, place, part) for part in parts]


def _text(value: object) -> str:
    try:
        return _JSON.encode(value)
    except RecursionError:  # too deep to compare, so it counts as new
        return str(id(value))


# Made once: making an encoder takes ten times as long as encoding a short text.
_JSON = json.JSONEncoder(sort_keys=True, default=str)


def _at(item: Object, path: Path) -> tuple[Path, object]:
    """Return the value at a path, and the path with the names or texts of list items instead of their indices."""
    place: list[str | int] = []
    there: object = item
    for key in path:
        if isinstance(there, list) and isinstance(key, int) and key < len(there):
            there = there[key]
            name = there.get("name") if isinstance(there, dict) else there
            place.append(name if isinstance(name, str) else key)
        else:
            there = there.get(key) if isinstance(there, dict) else None
            place.append(key)
    return tuple(place), there
