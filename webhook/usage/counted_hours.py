"""Reads from Prometheus in which hours containers were seen and had their peaks: writes queries and reads answers.

Each query is asked for the ends of full hours, and looks back for an hour. So it has no value for an hour in which
Prometheus read nothing, and nothing is filled in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from webhook.usage.counted import ANCHOR, ChosenSeries, CountedTime, HourlySeries, grown, holder_of
from webhook.usage.document import NodeUsage
from webhook.usage.record import HOUR, HolderKey, SeenHours
from webhook.usage.scraped import MIB

MOST_POINTS = 200_000
"""Maximum number of values to ask for at once. One takes up to 40 bytes of an answer."""

LONGEST = 7 * 24
"""Maximum number of hours to ask for at once."""

SECONDS = HOUR // 1000

SeenRows = Mapping[str, Mapping[HolderKey, SeenHours]]
"""The hours in which containers were seen, by node."""


def hours_of(time: CountedTime) -> range:
    """Return the hours of a period, from 1970 in UTC."""
    return range(time.since // SECONDS, -(-time.at // SECONDS))


def parts(hours: range, series: int) -> Iterator[range]:
    """Divide hours into parts, so that none has more than MOST_POINTS values of so many series."""
    step = min(max(MOST_POINTS // max(series, 1), 1), LONGEST)
    for first in range(hours.start, hours.stop, step):
        yield range(first, min(first + step, hours.stop))


def seen_query(chosen: ChosenSeries) -> str:
    """Return the query for the highest use of each container in an hour in which its counters grew.

    The counters stay for a while after its end, so their presence does not show that it was there.
    """
    anchor = chosen.of(ANCHOR, container=False)
    held, work = (grown(chosen.of(f"{name}_seconds_total"), anchor, SECONDS) for name in ("slice", "work"))
    peak = f"max_over_time({chosen.of('peak_bytes')}[{SECONDS}s])"
    return f"max by ({', '.join(chosen.holder)}) ({peak} and (({held}) > 0 or sum without (work) ({work}) > 0))"


def seen(answer: Iterable[HourlySeries], chosen: ChosenSeries) -> SeenRows:
    """Return the hours of each container, computed from an answer to `seen_query`. Raises DamagedRecord."""
    found: dict[str, dict[HolderKey, SeenHours]] = {}
    for series in answer:
        node, key = holder_of(series.labels, chosen)
        for hour, value in series.values.items():
            _add(found, node, key, SeenHours(hour, hour, round(value / MIB), hour))
    return found


def _add(found: dict[str, dict[HolderKey, SeenHours]], node: str, key: HolderKey, hours: SeenHours) -> None:
    rows = found.setdefault(node, {})
    rows[key] = rows[key].plus(hours) if key in rows else hours


def with_hours(nodes: Iterable[NodeUsage], answers: Sequence[SeenRows]) -> list[NodeUsage]:
    """Return the usage of nodes with the hours of their containers."""
    found: dict[str, dict[HolderKey, SeenHours]] = {}
    for node, key, hours in ((node, *row) for rows in answers for node, own in rows.items() for row in own.items()):
        _add(found, node, key, hours)
    return [
        replace(
            usage,
            book=replace(
                usage.book,
                hours={key: each for key, each in found.get(usage.node, {}).items() if key in usage.book.holders},
            ),
        )
        for usage in nodes
    ]
