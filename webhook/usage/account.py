"""Counts usage: adds the time between two looks at a node to its usage record.

Times are whole milliseconds. Durations come from a monotonic clock, and the hour from the wall clock (UTC), which may
be set at any moment. So an hour may have less or more than 3,600 counted seconds, but no time is counted twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.usage.record import HOUR, Amounts, Book, CardAmounts, CardKey, HolderKey, SlicedCard

LONGEST = 5_000
"""Milliseconds between two looks above which the time counts as unseen: nobody knows what happened meanwhile."""

LATE = 1_500
"""Milliseconds between two looks above which a container may have worked unseen, so that it no longer counts as idle.

NVML keeps samples of a second at most, and the agent looks once a second.
"""

KEPT_HOURS = 35 * 24
"""Hours that a node keeps, and the longest gap that is recorded."""


class CardShare(NamedTuple):
    """A container's slices and work on one card. `card` is empty if it is not known which card it is.

    `work` is whether it worked; None if NVML cannot tell. `mib` is its memory; None if unknown. `cap` is its allowance
    in MiB, 0 if there is none, and `over` whether its memory exceeds the allowance. `contended` is whether another
    container worked on the card too. `elsewhere` is how many more slices it has, on unknown cards. `even` is its MiB
    if each of its several processes had as much as the largest one; 0 if it has one, or if that is unknown.
    """

    card: str
    slices: int
    work: bool | None = False
    mib: int | None = 0
    cap: int = 0
    over: bool = False
    contended: bool = False
    elsewhere: int = 0
    even: int = 0


class HolderLook(NamedTuple):
    """A container that has slices or works on a card: its names, and its share of each card.

    `key` is the same in all looks at the container, and differs from that of any other: the uid of its pod, and its
    name. `ended` is whether it has ended; it keeps its slices until its pod ends.
    """

    key: str
    namespace: str
    workload: str
    pod: str
    container: str
    shares: tuple[CardShare, ...]
    ended: bool = False


class NodeLook(NamedTuple):
    """The result of one look at a node. If `seen` is false, only its cards are known until the next look.

    `complete` is whether `holders` has all containers that may have slices. If not, no slice counts as free.
    """

    cards: tuple[SlicedCard, ...] = ()
    holders: tuple[HolderLook, ...] = ()
    seen: bool = True
    complete: bool = True


UNSEEN = NodeLook(seen=False)


class HeldSince(NamedTuple):
    """The times since which a container has been seen, and has certainly not worked (ms, by the monotonic clock)."""

    since: int
    idle: int


class QuietTime(NamedTuple):
    """How long a container has certainly not worked, in milliseconds, and whether it has slices of a shared card.

    `ended` is whether the container has ended.
    """

    ms: int
    holds: bool
    ended: bool = False


@dataclass(frozen=True)
class AccountState:
    """The state between looks: the last look with its two times, and what has been counted and not been stored yet.

    `standing` has the containers of the last look by key.
    """

    at: int
    wall: int
    last: NodeLook = UNSEEN
    book: Book = field(default_factory=Book)
    standing: Mapping[str, HeldSince] = field(default_factory=dict)


def advance(before: AccountState, look: NodeLook, now: int, wall: int) -> AccountState:
    """Add the time since the last look to the counts, and remember this look.

    The result of a look counts until the next look, and in the hour of its wall clock. If the next look comes later
    than LONGEST, or if the last one saw nothing, all slices of the last look's cards count as unseen for that time.
    """
    elapsed = max(now - before.at, 0)
    gap = elapsed > LONGEST or not before.last.seen
    book = before.book
    for hour, part in hours(before.wall, elapsed):
        book = book.plus(_counted(before.last, hour, part, gap=gap))
    standing = (
        {}
        if not look.seen
        else {each.key: _standing(before, each, now, late=gap or elapsed > LATE) for each in look.holders}
    )
    return AccountState(max(now, before.at), wall, look, book, standing)


def quiet(state: AccountState) -> Mapping[str, QuietTime]:
    """Return how long each container of the last look has not worked, by its key."""
    shared = {card.uuid: card.slices > 1 for card in state.last.cards}
    found = {}
    for each in state.last.holders:
        since = state.standing.get(each.key)
        if since is not None:
            holds = any(
                share.elsewhere or (share.slices and shared.get(share.card, any(shared.values())))
                for share in each.shares
            )
            found[each.key] = QuietTime(state.at - since.idle, bool(holds), each.ended)
    return found


def hours(wall: int, elapsed: int) -> Iterator[tuple[int, int]]:
    """Yield the hours of a period that began at `wall`, each with its part in ms; at most the last KEPT_HOURS hours."""
    end, begin = wall + elapsed, max(wall, wall + elapsed - KEPT_HOURS * HOUR)
    while begin < end:
        hour = begin // HOUR
        part = min((hour + 1) * HOUR, end) - begin
        yield hour, part
        begin += part


def _standing(before: AccountState, holder: HolderLook, now: int, *, late: bool) -> HeldSince:
    known = before.standing.get(holder.key)
    if known is None:
        return HeldSince(now, now)
    quiet = not late and all(share.work is False for share in holder.shares)
    return HeldSince(known.since, known.idle if quiet else now)


def _counted(look: NodeLook, hour: int, part: int, *, gap: bool) -> Book:
    """Return what a look has shown, for `part` milliseconds of an hour.

    Of slices that do not fit on the card where a container was seen, it is not known which card they belong to.
    """
    room = {card.uuid: card.slices for card in look.cards}
    by_uuid = {card.uuid: card for card in look.cards}
    unknown = look.cards[0]._replace(uuid="", slices=0) if look.cards else SlicedCard("", 0)
    rows: dict[HolderKey, Amounts] = {}
    pending = 0
    for holder in () if gap else look.holders:
        for share in holder.shares:
            card = by_uuid.get(share.card, unknown)
            fits = min(share.slices, room.get(share.card, 0))
            if share.card in room:
                room[share.card] -= fits
            elsewhere = share.elsewhere + share.slices - fits
            pending += elsewhere
            key = _key(hour, card, holder)
            used = _amounts(share, part, fits)
            rows[key] = rows[key].plus(used) if key in rows else used
            if elsewhere:
                key = _key(hour, unknown, holder)
                rows[key] = rows.get(key, Amounts()).plus(Amounts(held=elsewhere * part))
    cards = {}
    for card in look.cards:
        left = room[card.uuid]
        lost = left if gap or not look.complete else min(left, pending)
        cards[CardKey(hour, card.uuid, card.pool, card.product)] = CardAmounts(
            part, card.slices * part, (card.slices - left) * part, (left - lost) * part, lost * part
        )
    return Book(cards, rows)


def _key(hour: int, card: SlicedCard, holder: HolderLook) -> HolderKey:
    names = holder.namespace, holder.workload, holder.pod, holder.container
    return HolderKey(hour, card.uuid, card.pool, card.product, *names)


def _amounts(share: CardShare, part: int, slices: int) -> Amounts:
    return Amounts(
        held=slices * part,
        working=part * (share.work is True),
        idle=part * (share.work is False),
        unmeasured=part * (share.work is None),
        memory=(share.mib or 0) * part,
        measured=part * (share.mib is not None),
        over=part * share.over,
        contended=part * share.contended,
        peak=share.mib or 0,
        cap=share.cap,
        even=share.even,
    )
