"""What an update makes worse: only that counts, so that a tightened policy blocks nothing that runs already."""

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
    place = _place(item, result.finding.path)
    return [(result.rule, place, part) for part in result.finding.parts or (result.finding.message,)]


def _place(item: Object, path: Path) -> Path:
    """Call the items of a list by their names, where they have one, as containers and variables do; text by itself."""
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
    return tuple(place)
