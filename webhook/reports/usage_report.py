"""Writes the reports of `slicewarden usage` and `slicewarden idle`: who had and used the shared cards."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from webhook.policy.model import API_VERSION
from webhook.reports import usage_hours
from webhook.reports.usage_hours import UsageHour
from webhook.text import tables
from webhook.text.words import listed
from webhook.usage.document import ContainerNow, NodeUsage
from webhook.usage.record import HOUR, Amounts, CardAmounts, HolderKey

GROUPS: Mapping[str, Sequence[str]] = {
    "namespace": ("namespace",),
    "workload": ("namespace", "workload"),
    "pool": ("pool",),
    "card": ("node", "card"),
}
"""The columns that name a row, by the words of `--by`."""

FREE, UNSEEN = "(free)", "(not seen)"
"""The names of the rows of slices that nobody held, and of those of which nobody knows."""

MOST_NAMED = 5
"""Maximum number of nodes or cards that a note names."""


UNLISTED = "(nodes)"
"""Stands for the nodes without an agent if they cannot be listed."""


class UnseenNode(NamedTuple):
    """A node whose usage is not known, and the reason."""

    node: str
    why: str


@dataclass
class UsageRow:
    """The sums of one group. `cards` is the time of whole cards in milliseconds, and `cost` its cost.

    `rest` is true for the row of the slices that no container had, or whose container is not known. The name of a row
    does not show that, because a node may report a namespace of any name.
    """

    names: tuple[str, ...]
    amounts: Amounts = field(default_factory=Amounts)
    cards: float = 0.0
    cost: float = 0.0
    rest: bool = False


class UsageSums(NamedTuple):
    """The contents of a report: the rows, those with most card time first, then free and unseen time, and notes.

    The notes say which parts are missing. `hours` has the use of slices in each hour; it is empty for one namespace.
    """

    by: str
    since: int
    at: int
    rows: tuple[UsageRow, ...]
    notes: tuple[str, ...]
    unseen: tuple[UnseenNode, ...]
    priced: bool
    hours: tuple[UsageHour, ...] = ()


def sums(
    nodes: Sequence[NodeUsage], unseen: Sequence[UnseenNode], by: str, prices: Mapping[str, float], namespace: str = ""
) -> UsageSums:
    """Add up the usage of nodes. `prices` are for an hour of a whole card, by product; the empty one is for all others.

    A container's card-hours are its slice-hours divided by the slices of the card. With a `namespace`, only its rows
    are shown.
    """
    rows: dict[tuple[str, ...], UsageRow] = {}
    free, lost = (UsageRow((name, *[""] * (len(GROUPS[by]) - 1)), rest=True) for name in (FREE, UNSEEN))
    for usage in nodes:
        by_card, by_pool = _per_card(usage)
        for key, used in usage.book.holders.items():
            if namespace and key.namespace != namespace:
                continue
            names = tuple(_name(part, usage.node, key) for part in GROUPS[by])
            row = rows.setdefault(names, UsageRow(names))
            row.amounts = row.amounts.plus(used)
            per_card = by_card.get(key[1:4]) or by_pool.get(key[2:4], 0.0)
            _charge(row, used.held, per_card, prices, key.product)
        for card, amounts in usage.book.cards.items():
            per_card = _ratio(amounts)
            for other, held in ((free, amounts.free), (lost, amounts.unseen)):
                other.amounts = other.amounts.plus(Amounts(held=held))
                _charge(other, held, per_card, prices, card.product)
    ordered = sorted(rows.values(), key=lambda row: (-row.cards, row.names))
    rest = [] if namespace else [row for row in (free, lost) if row.amounts.held]
    known = [usage for usage in nodes if usage.at]
    return UsageSums(
        by,
        min((usage.since for usage in known), default=0),
        max((usage.at for usage in known), default=0),
        (*ordered, *rest),
        tuple(_notes(nodes)),
        tuple(unseen),
        bool(prices),
        () if namespace else usage_hours.of_nodes(nodes, sum(each.node != UNLISTED for each in unseen)),
    )


def _name(part: str, node: str, key: HolderKey) -> str:
    return node if part == "node" else str(getattr(key, part)) or "-"


def _per_card(usage: NodeUsage) -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
    """Return the slices of each card, and of the cards of each pool and product together: capacity over time."""
    pools: dict[tuple[str, ...], CardAmounts] = {}
    for key, amounts in usage.book.cards.items():
        pools[key[2:]] = pools.get(key[2:], CardAmounts()).plus(amounts)
    by_card = {tuple(map(str, key[1:])): _ratio(amounts) for key, amounts in usage.book.cards.items()}
    return by_card, {key: _ratio(amounts) for key, amounts in pools.items()}


def _ratio(amounts: CardAmounts) -> float:
    return amounts.capacity / amounts.counted if amounts.counted else 0.0


def _charge(row: UsageRow, held: int, per_card: float, prices: Mapping[str, float], product: str) -> None:
    cards = held / per_card if per_card else 0.0
    row.cards += cards
    row.cost += cards / HOUR * prices.get(product, prices.get("", 0.0))


def _notes(nodes: Iterable[NodeUsage]) -> Iterator[str]:
    """Yield what is missing. It is never estimated."""
    short = []
    for usage in nodes:
        if usage.trouble:
            yield f"note: {usage.node}: {usage.trouble}"
        whole, counted = usage.at - usage.since, dict[str, int]()
        for key, amounts in usage.book.cards.items():
            counted[key.card] = counted.get(key.card, 0) + amounts.counted
        short += [
            f"{usage.node} {card}: {hours(time)} of {hours(whole)} h"
            for card, time in counted.items()
            if usage.since and time < 0.99 * whole
        ]
        if not counted:
            yield f"note: {usage.node}: no card was counted: is it in a pool, and do its labels name its slices?"
    if short:
        yield f"note: not counted all the time: {listed(short, MOST_NAMED)}"


def hours(time: float) -> str:
    """Write a time in milliseconds as hours."""
    return f"{time / HOUR:.1f}"


_NUMBERS = ("slice-hours", "card-hours", "working h", "idle h", "unmeasured h", "peak MiB", "mean MiB", "cap MiB")


def table(report: UsageSums) -> str:
    """Write a table for people."""
    top = head(report)
    body = [row_cells(row, priced=report.priced) for row in report.rows]
    lines = [f"{moment(report.since)} to {moment(report.at)}", ""] if report.at else []
    right = range(len(GROUPS[report.by]), len(top))
    lines += tables.columns([top, *body], right) if body else ["nothing was counted"]
    return "\n".join(lines) + "\n"


def head(report: UsageSums) -> tuple[str, ...]:
    """Return the names of the columns."""
    return (*GROUPS[report.by], *_NUMBERS, *(["cost"] if report.priced else []))


def moment(time: int) -> str:
    """Write a node's time as a date in UTC. It may be any number, since anyone may have written it to a file."""
    try:
        return datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def row_cells(row: UsageRow, *, priced: bool) -> tuple[str, ...]:
    """Return the cells of a row, as people read them."""
    return tuple(_cells(row, priced=priced))


def _cells(row: UsageRow, *, priced: bool) -> Iterator[str]:
    used = row.amounts
    yield from row.names
    yield from (hours(used.held), f"{row.cards / HOUR:.2f}")
    if row.rest:
        yield from ["-"] * 6
    else:
        yield from map(hours, (used.working, used.idle, used.unmeasured))
        mean = str(used.memory // used.measured) if used.measured else "-"
        yield from (str(used.peak), mean, str(used.cap) if used.cap else "-")
    if priced:
        yield f"{row.cost:.2f}"


def write(report: UsageSums) -> str:
    """Write a UsageReport as JSON."""
    return (
        json.dumps(
            {
                "apiVersion": API_VERSION,
                "kind": "UsageReport",
                "by": report.by,
                "since": report.since,
                "at": report.at,
                "rows": [_value(report.by, row, report.priced) for row in report.rows],
                "hours": [usage_hours.value(each) for each in report.hours],
                "notes": [note.removeprefix("note: ") for note in report.notes],
                "unseenNodes": [each._asdict() for each in report.unseen],
            },
            indent=2,
        )
        + "\n"
    )


def _value(by: str, row: UsageRow, priced: bool) -> dict[str, Any]:
    used = row.amounts
    return {
        **dict(zip(GROUPS[by], row.names, strict=True)),
        "sliceHours": used.held / HOUR,
        "cardHours": row.cards / HOUR,
        "workingHours": used.working / HOUR,
        "idleHours": used.idle / HOUR,
        "unmeasuredHours": used.unmeasured / HOUR,
        "overHours": used.over / HOUR,
        "contendedHours": used.contended / HOUR,
        "peakMiB": used.peak,
        "meanMiB": used.memory // used.measured if used.measured else None,
        "capMiB": used.cap or None,
        **({"cost": round(row.cost, 4)} if priced else {}),
    }


def comma_separated(report: UsageSums) -> str:
    """Write CSV with a head (RFC 4180). A name that a spreadsheet would take for a formula gets an apostrophe."""
    values = [_value(report.by, row, report.priced) for row in report.rows]
    text = io.StringIO()
    head = [*_value(report.by, UsageRow(tuple("" for _ in GROUPS[report.by])), report.priced)]
    writer = csv.writer(text)
    writer.writerow(head)
    for value in values:
        writer.writerow([_harmless(cell) if isinstance(cell, str) else cell for cell in value.values()])
    return text.getvalue()


def _harmless(cell: str) -> str:
    plain = "".join(character if character.isprintable() else "?" for character in cell)
    return f"'{plain}" if plain[:1] in tuple("=+-@") and len(plain) > 1 else plain


# Idle containers


class IdleContainer(NamedTuple):
    """A container that has slices of a shared card, and has certainly not worked for a while."""

    node: str
    container: ContainerNow


def idle(nodes: Iterable[NodeUsage], after: int, namespace: str = "") -> list[IdleContainer]:
    """Return the containers that have had slices of a shared card without work for `after` milliseconds or longer.

    Neither their CPU nor their memory counts, nor does time in which the agent could not see them.
    """
    found = [
        IdleContainer(usage.node, each)
        for usage in nodes
        for each in usage.now
        if each.shared and each.idle >= after and namespace in ("", each.namespace)
    ]
    return sorted(found, key=lambda each: (-each.container.idle, each))


def idle_table(found: Sequence[IdleContainer]) -> str:
    """Write a table for people."""
    if not found:
        return "no container holds a slice without work for so long\n"
    head = ("namespace", "pod", "container", "workload", "node", "card", "slices", "idle", "MiB")
    body = [
        (
            each.namespace,
            each.pod,
            each.container,
            each.workload or "-",
            node,
            each.card or "-",
            str(each.slices),
            duration(each.idle),
            str(each.mib),
        )
        for node, each in found
    ]
    return "\n".join(tables.columns([head, *body], right=range(6, 9))) + "\n"


def duration(time: int) -> str:
    """Write a time in ms for people, in whole minutes."""
    minutes = time // 60_000
    return f"{minutes // 1440}d {minutes // 60 % 24}h" if minutes >= 1440 else f"{minutes // 60}h {minutes % 60:02}m"


def idle_json(found: Sequence[IdleContainer], unseen: Sequence[UnseenNode]) -> str:
    """Write an IdleReport as JSON. `idleSeconds` are since its last work, as far as it was seen."""
    rows = [
        {
            "node": node,
            "namespace": each.namespace,
            "pod": each.pod,
            "container": each.container,
            "workload": each.workload,
            "card": each.card,
            "pool": each.pool,
            "slices": each.slices,
            "idleSeconds": each.idle // 1000,
            "seenSeconds": each.held // 1000,
            "usedMiB": each.mib,
        }
        for node, each in found
    ]
    value = {
        "apiVersion": API_VERSION,
        "kind": "IdleReport",
        "containers": rows,
        "unseenNodes": [each._asdict() for each in unseen],
    }
    return json.dumps(value, indent=2) + "\n"
