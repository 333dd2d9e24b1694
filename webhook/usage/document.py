"""The NodeUsage that an agent answers with, and that the command line reads: the sums of a node's last hours, as JSON.

A node's agent may be an impostor's, so whatever is read is checked, and its size is limited.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from webhook.policy.model import API_VERSION
from webhook.usage import hourly
from webhook.usage.account import KEPT_HOURS, AccountState
from webhook.usage.record import (
    HOUR,
    REST,
    Amounts,
    Book,
    CardAmounts,
    CardKey,
    HolderKey,
    HourAmounts,
    PoolHour,
    SeenHours,
    added_hours,
)
from webhook.usage.store import DamagedRecord, SavedAt, number, text

KIND = "NodeUsage"

MOST_ROWS = 2_000
"""Maximum number of containers with a row of their own in an answer, and of namespaces with one."""

MOST_BYTES = 8 * 2**20
"""Maximum bytes of an answer that is read."""


_LATER = {"even": 0}
"""Amounts that agents of older releases do not give."""


class ContainerNow(NamedTuple):
    """The present state of a container.

    `held` is for how many milliseconds it has been seen, and `idle` for how many it has not worked. `shared` is whether
    its card is shared.
    """

    namespace: str
    workload: str
    pod: str
    container: str
    card: str
    pool: str
    slices: int
    held: int
    idle: int
    mib: int
    cap: int
    shared: bool


@dataclass(frozen=True)
class NodeUsage:
    """The usage of a node: the sums of its rows (of hour 0) from `since` to `at` (ms from 1970 in UTC).

    `now` has its present containers. If a part of the usage may be missing, `trouble` is the reason.
    """

    node: str
    since: int
    at: int
    book: Book = field(default_factory=Book)
    now: tuple[ContainerNow, ...] = ()
    trouble: str = ""


def first_hour(wall: int, hours: int | None) -> int:
    """Return the first of the last hours, of which the present one is the last."""
    return 0 if hours is None else max(wall // HOUR - min(hours, KEPT_HOURS) + 1, 0)


def present(state: AccountState) -> tuple[ContainerNow, ...]:
    """Return the containers that had slices when the agent last looked at the node."""
    cards = {card.uuid: card for card in state.last.cards}
    node_shares = any(card.slices > 1 for card in state.last.cards)
    found = []
    for holder in state.last.holders:
        slices = sum(share.slices + share.elsewhere for share in holder.shares)
        since = state.standing.get(holder.key)
        if not slices or since is None:
            continue
        first = holder.shares[0]
        card = cards.get(first.card)
        found.append(
            ContainerNow(
                holder.namespace,
                holder.workload,
                holder.pod,
                holder.container,
                first.card,
                card.pool if card else state.last.cards[0].pool if state.last.cards else "",
                slices,
                state.at - since.since,
                state.at - since.idle,
                sum(share.mib or 0 for share in holder.shares),
                first.cap,
                card.slices > 1 if card else node_shares,
            )
        )
    return tuple(found[:MOST_ROWS])


def collapsed(book: Book, since: int) -> Book:
    """Return the sums of a book's hours from `since` on, as rows of the hour 0, and the slices of each hour."""
    cards: dict[CardKey, CardAmounts] = {}
    for card, amounts in book.cards.items():
        if card.hour >= since:
            key = card._replace(hour=0)
            cards[key] = cards.get(key, CardAmounts()).plus(amounts)
    holders: dict[HolderKey, Amounts] = {}
    for holder, used in book.holders.items():
        if holder.hour >= since:
            row = holder._replace(hour=0)
            holders[row] = holders.get(row, Amounts()).plus(used)
    rows = ((key, used.peak) for key, used in book.holders.items() if key.hour >= since and key.pod != REST)
    seen = ((key._replace(hour=0), SeenHours(key.hour, key.hour, peak, key.hour)) for key, peak in rows)
    return Book(cards, holders, added_hours({}, seen), hourly.of_book(book, since))


def write(usage: NodeUsage) -> str:
    """Write a NodeUsage as JSON."""
    return json.dumps(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "node": usage.node,
            "since": usage.since,
            "at": usage.at,
            "trouble": usage.trouble,
            "cards": [{**_names(key), **amounts._asdict()} for key, amounts in usage.book.cards.items()],
            "containers": [
                {**_names(key), **amounts._asdict(), **_hours(usage.book.hours.get(key))}
                for key, amounts in usage.book.holders.items()
            ],
            "hourly": [{**key._asdict(), **each._asdict()} for key, each in usage.book.hourly.items()],
            "now": [each._asdict() for each in usage.now],
        }
    )


def _names(key: CardKey | HolderKey) -> dict[str, Any]:
    return {name: value for name, value in key._asdict().items() if name != "hour"}


def _hours(seen: SeenHours | None) -> dict[str, Any]:
    return {} if seen is None else {"hours": [seen.first, seen.last, seen.reached]}


def read(data: str | bytes) -> NodeUsage:
    """Read a NodeUsage. Raises DamagedRecord if it is none, or too large."""
    if len(data) > MOST_BYTES:
        raise DamagedRecord(f"it has more than {MOST_BYTES // 2**20} MiB")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedRecord("it is no JSON") from error
    if not isinstance(value, dict) or value.get("kind") != KIND or value.get("apiVersion") != API_VERSION:
        raise DamagedRecord(f"it is no {KIND} of {API_VERSION}")
    cards = {
        CardKey(0, *(text(each.get(name)) for name in CardKey._fields[1:])): CardAmounts(
            *(number(each.get(name)) for name in CardAmounts._fields)
        )
        for each in _maps(value.get("cards"))
    }
    if any(each.held + each.free + each.unseen != each.capacity for each in cards.values()):
        raise DamagedRecord("the slices of a card do not add up")
    holders: dict[HolderKey, Amounts] = {}
    seen: dict[HolderKey, SeenHours] = {}
    for each in _maps(value.get("containers")):
        key = HolderKey(0, *(text(each.get(name)) for name in HolderKey._fields[1:]))
        holders[key] = Amounts(*(number(each.get(name, _LATER.get(name))) for name in Amounts._fields))
        if "hours" in each:
            seen[key] = _seen(each["hours"], holders[key].peak)
    since, at = number(value.get("since")), number(value.get("at"))
    hours = {
        PoolHour(number(each.get("hour")), text(each.get("pool"))): HourAmounts(
            *(number(each.get(name)) for name in HourAmounts._fields)
        )
        for each in _maps(value.get("hourly", []))  # agents of older releases have none
    }
    return NodeUsage(
        text(value.get("node")),
        since,
        at,
        Book(cards, holders, seen, hours),
        tuple(_now(each) for each in _maps(value.get("now"))),
        text(value.get("trouble")),
    )


def _maps(value: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise DamagedRecord("it has no lists of rows")
    yield from value


def _seen(value: Any, peak: int) -> SeenHours:
    if not isinstance(value, list) or len(value) != 3:
        raise DamagedRecord("it has hours that cannot be read")
    first, last, reached = map(number, value)
    if not first <= reached <= last:
        raise DamagedRecord("it has hours that cannot be")
    return SeenHours(first, last, peak, reached)


def _now(value: Mapping[str, Any]) -> ContainerNow:
    return ContainerNow(
        text(value.get("namespace")),
        text(value.get("workload")),
        text(value.get("pod")),
        text(value.get("container")),
        text(value.get("card")),
        text(value.get("pool")),
        number(value.get("slices")),
        number(value.get("held")),
        number(value.get("idle")),
        number(value.get("mib")),
        number(value.get("cap")),
        value.get("shared") is True,
    )


def of_file(last: SavedAt | None, book: Book, hours: int | None) -> NodeUsage:
    """Return the usage in a copy of a node's file."""
    if last is None:
        return NodeUsage("", 0, 0, book, trouble="the agent has not saved anything yet")
    return NodeUsage(last.node, first_hour(last.wall, hours) * HOUR, last.wall, book)
