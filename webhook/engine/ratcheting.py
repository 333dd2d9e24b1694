"""The findings that an update adds. Only these count, so that a tightened policy blocks nothing that runs already."""

import json
from collections import Counter
from collections.abc import Iterable

from webhook.allowance import Allowance
from webhook.model import Object, Path, Result

Mark = tuple[str, Path, str]
"""A rule, a place that stays the same when its neighbours move, and one thing that is wrong there."""


def news(
    results: Iterable[Result], item: Object, old_results: Iterable[Result], old: Object, allowance: Allowance
) -> list[Result]:
    """Return the results on an object of which the old object did not have every part. Raises TooLate."""
    known = Counter[Mark]()
    for result in old_results:
        allowance.look()
        known.update(_marks(result, old))
    fresh = []
    for result in results:
        allowance.look()
        marks = Counter(_marks(result, item))
        if any(count > known[mark] for mark, count in marks.items()):
            fresh.append(result)
        known.subtract(marks)  # what stood once excuses one
    return fresh


def _marks(result: Result, item: Object) -> list[Mark]:
    """Without parts of its own a finding is about the value at its path, of which another is another wrong."""
    finding = result.finding
    place, value = _at(item, finding.path)
    parts = finding.parts or (f"{finding.message}\n{_text(value)}",)
    return [(result.rule, place, part) for part in parts]


def _text(value: object) -> str:
    try:
        return _JSON.encode(value)
    except RecursionError:  # deeper than can be told, and so never what it was
        return str(id(value))


# Made once: a new one costs ten times what it does for a short text.
_JSON = json.JSONEncoder(sort_keys=True, default=str)


def _at(item: Object, path: Path) -> tuple[Path, object]:
    """Go to a place, and call items of lists by their names where they have one, as variables do; text by itself."""
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
