"""Finds the results that an update adds. Only these count, so a stricter policy does not block what already runs."""

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable

from webhook.allowance import Allowance
from webhook.api.fields import MAX_NAME
from webhook.model import Object, Path, Result

Mark = tuple[str, tuple[Hashable, ...], Hashable]
"""Identifies a fault: the rule, a place that does not depend on list indices, and one part of the finding.

Its long texts are replaced by their hashes (see `short`).
"""


def added(
    results: Iterable[Result], item: Object, old_results: Iterable[Result], old: Object, allowance: Allowance
) -> list[Result]:
    """Return the results with at least one part (see `Finding`) that the old object's results do not have.

    Raises TooLate.
    """
    known = defaultdict[Mark, int](int)
    values: dict[int, Hashable] = {}
    for result in old_results:
        allowance.look()
        for mark in _marks(result, old, values):
            known[mark] += 1
    fresh = []
    for result in results:
        allowance.look()
        new = False
        for mark in _marks(result, item, values):
            known[mark] -= 1  # each old fault excuses only one new result
            new = new or known[mark] < 0
        if new:
            fresh.append(result)
    return fresh


def _marks(result: Result, item: Object, values: dict[int, Hashable]) -> list[Mark]:
    """Return one mark for each part of a result. Without parts, the message with the value at the path is the part.

    `values` has the texts of values that were written before, by their identity: many results may have one place.
    """
    finding = result.finding
    place, value = _at(item, finding.path)
    if finding.parts:
        return [(result.rule, place, part) for part in finding.parts]
    if id(value) not in values:
        values[id(value)] = short(_text(value))
    return [(result.rule, place, (finding.message, values[id(value)]))]


def _text(value: object) -> str:
    try:
        return _JSON.encode(value)
    except RecursionError:  # too deep to compare, so it counts as new
        return str(id(value))


# Made once: making an encoder takes ten times as long as encoding a short text.
_JSON = json.JSONEncoder(sort_keys=True, default=str)


def short(text: str) -> str:
    """Return a short text that is equal for equal texts. It names the length and the hash of a long one.

    A text keeps its hash, so a name that many results have is read once. Nobody can make two texts with one hash,
    because each process has a secret key for it.
    """
    return text if len(text) <= MAX_NAME else f"{len(text)} {hash(text)}"


def _at(item: Object, path: Path) -> tuple[tuple[Hashable, ...], object]:
    """Return the value at a path, and the path with the names or texts of list items instead of their indices."""
    place: list[Hashable] = []
    there: object = item
    for key in path:
        if isinstance(there, list) and isinstance(key, int) and key < len(there):
            there = there[key]
            name = there.get("name") if isinstance(there, dict) else there
            place.append(short(name) if isinstance(name, str) else key)
        else:
            there = there.get(key) if isinstance(there, dict) else None
            place.append(short(key) if isinstance(key, str) else key)
    return tuple(place), there
