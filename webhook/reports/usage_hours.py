"""The hours and days of `slicewarden usage`: what became of the slices of each pool, as rows and as plots."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from webhook.text.plot import BarPlot, PlotBar, PlotPart
from webhook.usage.account import KEPT_HOURS
from webhook.usage.document import NodeUsage
from webhook.usage.record import HOUR, HourAmounts

MOST_POOLS = 20
"""Maximum number of pools with hours of their own: those with the most slice-hours."""

DAY = 24
"""Hours of a day, and the most bars of a plot of hours."""

LATE = 120_000
"""Milliseconds between the answers of two agents below which the time between them is no gap."""

PARTS = {
    "working": PlotPart("cap", "working"),
    "idle": PlotPart("context", "idle"),
    "unmeasured": PlotPart("reserve", "unmeasured"),
    "free": PlotPart("card", "free"),
    "unseen": PlotPart("gap", "not seen"),
}
"""The amounts of an hour that a plot shows, and how."""


class UsageHour(NamedTuple):
    """What became of the slices of a pool in an hour, counted from 1970 in UTC. The empty pool stands for all of them.

    `missing` and `whole` are milliseconds of nodes: those that have no record, and all until the end of the report.
    """

    hour: int
    pool: str
    amounts: HourAmounts
    missing: int
    whole: int


class _NodeHours(NamedTuple):
    """The hours of a node, and until when they can have a record (ms)."""

    until: int
    hours: Mapping[int, HourAmounts]


def of_nodes(nodes: Iterable[NodeUsage], silent: int) -> tuple[UsageHour, ...]:
    """Return each hour of all pools together, and then of each pool. `silent` nodes have given no answer.

    There are at most KEPT_HOURS hours and MOST_POOLS pools, because anyone may have written a node's record.
    """
    known = [usage for usage in nodes if usage.at]
    end = max((usage.at for usage in known), default=0)
    first = max(min((usage.since for usage in known), default=0) // HOUR, -(-end // HOUR) - KEPT_HOURS)
    hours = range(first, -(-end // HOUR))
    sizes = Counter[str]()
    for usage in known:
        for (hour, pool), each in usage.book.hourly.items():
            sizes[pool] += sum(each[1:]) if hour in hours else 0
    own = {pool: list[_NodeHours]() for pool, size in sizes.most_common(MOST_POOLS) if pool and size}
    every = list[_NodeHours]()
    for usage in known:
        until = usage.at if end - usage.at < LATE else end
        found: dict[str, dict[int, HourAmounts]] = defaultdict(dict)
        whole: dict[int, HourAmounts] = {}
        for (hour, pool), each in usage.book.hourly.items():
            if hour in hours:
                found[pool][hour] = each
                before = whole.get(hour, HourAmounts())
                whole[hour] = before.plus(each)._replace(counted=max(before.counted, each.counted))
        every.append(_NodeHours(until, whole))
        for pool in own.keys() & found:
            own[pool].append(_NodeHours(until, found[pool]))
    if not sizes.total():
        return ()
    rows = [*_rows("", every, silent * [end], hours)]
    for pool in sorted(own):
        rows += _rows(pool, own[pool], [], hours)
    return tuple(rows)


def _rows(pool: str, nodes: Sequence[_NodeHours], silent: Sequence[int], hours: Iterable[int]) -> Iterator[UsageHour]:
    for hour in hours:
        found = [node.hours.get(hour, HourAmounts()) for node in nodes]
        lengths = [_length(hour, node.until) for node in nodes]
        lost = sum(_length(hour, until) for until in silent)
        missing = sum(max(length - each.counted, 0) for length, each in zip(lengths, found, strict=True))
        amounts = HourAmounts(*map(sum, zip(*found, strict=True)))
        yield UsageHour(hour, pool, amounts, missing + lost, sum(lengths) + lost)


def _length(hour: int, until: int) -> int:
    return min(max(until - hour * HOUR, 0), HOUR)


def value(each: UsageHour) -> dict[str, Any]:
    """Return an hour for JSON: its start (ms), its slice-hours, and the part of its nodes' time without a record."""
    return {
        "pool": each.pool or None,
        "hour": each.hour * HOUR,
        **{f"{name}SliceHours": getattr(each.amounts, name) / HOUR for name in PARTS},
        "notRecorded": round(_part([each]), 4),
    }


def _part(hours: Sequence[UsageHour]) -> float:
    whole = sum(each.whole for each in hours)
    return sum(each.missing for each in hours) / whole if whole else 0.0


def plots(hours: Iterable[UsageHour]) -> list[BarPlot]:
    """Return the plots of all pools together, and of each pool: its last day by hours, and a longer time by days."""
    pools: dict[str, list[UsageHour]] = {}
    for each in hours:
        pools.setdefault(each.pool, []).append(each)
    found = []
    for number, (pool, own) in enumerate(pools.items()):
        title = f"Pool {pool}" if pool else "All pools"
        by_hour = [_bar([each], _text(each.hour, "%Y-%m-%d %H:00"), _text(each.hour, "%H")) for each in own[-DAY:]]
        found.append(_plot(f"hours-{number}", f"{title}: the last {len(by_hour)} hours, in UTC", "hour", by_hour))
        if len(own) > DAY:
            by_day: dict[int, list[UsageHour]] = {}
            for each in own:
                by_day.setdefault(each.hour // DAY, []).append(each)
            bars = [_bar(each, _day(day, len(each)), _text(day * DAY, "%m-%d")) for day, each in by_day.items()]
            found.append(_plot(f"days-{number}", f"{title}: {len(bars)} days, in UTC", "day", bars))
    return found


def _plot(name: str, title: str, span: str, bars: Sequence[PlotBar]) -> BarPlot:
    return BarPlot(name, title, "slice-hours", span, [*PARTS.values()], bars)


def _bar(hours: Sequence[UsageHour], time: str, tick: str) -> PlotBar:
    amounts = [sum(getattr(each.amounts, name) for each in hours) / HOUR for name in PARTS]
    return PlotBar(time, tick, amounts, _part(hours))


def _day(day: int, hours: int) -> str:
    return _text(day * DAY, "%Y-%m-%d") + (f" ({hours} h)" if hours < DAY else "")


def _text(hour: int, form: str) -> str:
    """Write an hour, which may be any number, since anyone may have written it to a file."""
    try:
        return datetime.fromtimestamp(hour * HOUR / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "?"
