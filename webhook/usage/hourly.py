"""Divides the slices of each hour and pool by what became of them, for plots. Values in, values out.

A container's slices count as working for the part of its seen time in which it worked, and as idle in the same way.
Both are rounded down, and the rest is unmeasured, so that the parts are always all slices.
"""

from collections.abc import Iterable, Mapping
from operator import add

from webhook.usage.record import Amounts, Book, CardAmounts, CardKey, HolderKey, HourAmounts, PoolHour


def of_book(book: Book, since: int = 0) -> dict[PoolHour, HourAmounts]:
    """Return the amounts of the hours from `since` on, by a book's rows of these hours.

    Slices of a container whose card is not known are among those that were not seen.
    """
    rows = ((key, *_parts(used)) for key, used in book.holders.items() if key.hour >= since and key.card)
    return of_rows(((key, each) for key, each in book.cards.items() if key.hour >= since), _by_hour(rows))


def _by_hour(rows: Iterable[tuple[HolderKey, int, int]]) -> dict[PoolHour, tuple[int, int]]:
    found: dict[PoolHour, tuple[int, int]] = {}
    for key, working, idle in rows:
        hour = PoolHour(key.hour, key.pool)
        before = found.get(hour, (0, 0))
        found[hour] = before[0] + working, before[1] + idle
    return found


def _parts(used: Amounts) -> tuple[int, int]:
    return (used.held * used.working // used.seen, used.held * used.idle // used.seen) if used.seen else (0, 0)


def of_rows(
    cards: Iterable[tuple[CardKey, CardAmounts]], parts: Mapping[PoolHour, tuple[int, int]]
) -> dict[PoolHour, HourAmounts]:
    """Return the amounts of hours, by the rows of cards and the slice-milliseconds with work and without."""
    counted: dict[PoolHour, dict[str, int]] = {}
    sums: dict[PoolHour, tuple[int, ...]] = {}
    for card, amounts in cards:
        key = PoolHour(card.hour, card.pool)
        times = counted.setdefault(key, {})
        times[card.card] = times.get(card.card, 0) + amounts.counted
        sums[key] = tuple(map(add, sums.get(key, (0, 0, 0)), (amounts.held, amounts.free, amounts.unseen)))
    return {
        key: divided(max(counted[key].values()), held, free, unseen, *parts.get(key, (0, 0)))
        for key, (held, free, unseen) in sums.items()
    }


def divided(counted: int, held: int, free: int, unseen: int, working: int, idle: int) -> HourAmounts:
    """Return the amounts of an hour. Of the held slices, those with work and without are no more than all of them."""
    working = min(working, held)
    idle = min(idle, held - working)
    return HourAmounts(counted, working, idle, held - working - idle, free, unseen)
