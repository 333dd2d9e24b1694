"""Reads hours from Prometheus: of containers with their peaks, and of all slices. Writes queries and reads answers.

Each query is asked for the ends of full hours, and looks back for an hour. So it has no value for an hour in which
Prometheus read nothing, and nothing is filled in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from webhook.usage import hourly
from webhook.usage.counted import (
    ANCHOR,
    STEP,
    WORK,
    ChosenSeries,
    CountedTime,
    HourlySeries,
    Sample,
    card_amounts,
    grown,
    holder_of,
    names,
)
from webhook.usage.document import NodeUsage
from webhook.usage.record import HOUR, HolderKey, HourAmounts, PoolHour, SeenHours
from webhook.usage.scraped import MIB
from webhook.usage.store import DamagedRecord

MOST_POINTS = 200_000
"""Maximum number of values to ask for at once. One takes up to 40 bytes of an answer."""

LONGEST = 7 * 24
"""Maximum number of hours to ask for at once."""

MOST_HOURS = 1_000_000
"""Maximum number of hours of all nodes and pools that are read for plots."""

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


# All slices

_FIELDS = {"cards": ("state", ("held", "free", "unseen")), "work": ("work", WORK)}
"""The label of an answer that says what its values are, and its values."""

HourlyRows = Mapping[str, Mapping[PoolHour, HourAmounts]]
"""What became of the slices of each pool in each hour, by node."""


def queries(chosen: ChosenSeries) -> dict[str, str]:
    """Return the queries for what became of all slices in an hour, by name.

    The slices of a container count as working for the part of its seen time in which it worked (usage.hourly).
    """
    anchor = chosen.of(ANCHOR, container=False)

    def total(series: str) -> str:
        return f"({grown(series, anchor, SECONDS)})"

    held, work = total(chosen.placed("slice_seconds_total")), total(chosen.placed("work_seconds_total"))
    counted, cards = (total(chosen.of(f"card_{name}_seconds_total", container=False)) for name in ("counted", "slice"))
    part = f"{work} / ignoring (work) group_left () (sum without (work) ({work}) > 0)"
    return {
        "known": f"sum by (node, pool) ({held})",
        "work": f"sum by (node, pool, work) ({part} * ignoring (work) group_left () {held})",
        "cards": f"sum by (node, pool, state) ({cards})",
        "counted": f"max by (node, pool) (sum by (node, pool, gpu) ({counted}))",
    }


def series_of(answers: Mapping[str, Sequence[Sample]], hours: range) -> int:
    """Return for how many series to ask at once, by the answers for the whole time. Raises DamagedRecord.

    An answer has three series for each node and pool, but Prometheus also reads those of all containers for it.
    """
    pools = len({sample.names("node", "pool") for sample in answers["cards"]})
    if pools * len(hours) > MOST_HOURS:
        raise DamagedRecord(
            f"it has {pools * len(hours):,} hours of nodes and pools, and at most {MOST_HOURS:,} are read; ask for "
            "less time, for one namespace, or for a table"
        )
    return max(3 * pools, len(answers["work"]))


def rows(answers: Mapping[str, Sequence[HourlySeries]]) -> HourlyRows:
    """Return what became of the slices, computed from the answers to `queries`. Raises DamagedRecord."""
    found: dict[str, dict[PoolHour, dict[str, float]]] = {}
    for name, answer in answers.items():
        for series in answer:
            node, pool = names(series.labels, "node", "pool")
            label, fields = _FIELDS.get(name, ("", ()))
            field = str(series.labels.get(label)) if label else name
            if label and field not in fields:
                raise DamagedRecord(f"it has slices with {label} of an unknown kind")
            for hour, value in series.values.items():
                found.setdefault(node, {}).setdefault(PoolHour(hour, pool), {})[field] = value * 1000
    return {node: {key: _hour(each) for key, each in own.items() if each.get("counted")} for node, own in found.items()}


def _hour(parts: Mapping[str, float]) -> HourAmounts:
    """Return the amounts of an hour. Those of a time before it, in which Prometheus read nothing, are left out."""
    card = card_amounts(parts, round(parts.get("known", 0.0)), HOUR)
    working, idle = (round(parts.get(name, 0.0)) for name in ("working", "idle"))
    if card.counted <= HOUR + STEP * 1000:
        return hourly.divided(card.counted, card.held, card.free, card.unseen, working, idle)
    return hourly.divided(
        HOUR, *(each * HOUR // card.counted for each in (card.held, card.free, card.unseen, working, idle))
    )


def with_rows(nodes: Iterable[NodeUsage], answers: Sequence[HourlyRows]) -> list[NodeUsage]:
    """Return the usage of nodes with what became of their slices in each hour."""
    found: dict[str, dict[PoolHour, HourAmounts]] = {}
    for node, own in (row for each in answers for row in each.items()):
        found.setdefault(node, {}).update(own)
    return [replace(usage, book=replace(usage.book, hourly=found.get(usage.node, {}))) for usage in nodes]
