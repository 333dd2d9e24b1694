"""Combines a look at the cards with the containers that have slices, for the usage record. Has no side effects."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from webhook.agent.observe.look import CardUse
from webhook.agent.observe.nvml import CardReading
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.view import ContainerRow, Observation
from webhook.memory.admitted import Admitted
from webhook.usage.account import UNSEEN, CardShare, HolderLook, NodeLook
from webhook.usage.held import NodeSlices
from webhook.usage.record import SlicedCard

Places = Mapping[str, tuple[str, ...]]
"""The UUIDs of the cards on which each container was seen, in this order, by its key."""


class _Names(NamedTuple):
    """A container's names, and the slices that it holds."""

    namespace: str
    workload: str
    pod: str
    container: str
    slices: int = 0
    ended: bool = False


def sight(
    seen: Observation, node: NodeSlices, before: Places, frozen: Collection[ContainerName] = ()
) -> tuple[NodeLook, Places]:
    """Return the use of a node's slices at one look, and the cards on which each container has been seen so far.

    The kubelet's choice of a card is not known. So a container counts as being on the card on which its processes were
    seen, or on the only card of the node. Until then its card is unknown, and it may work on a card that NVML cannot
    open. MIG devices are not counted. A pod may request any number of slices, for example a pod that a tenant has bound
    to the node; it counts as having at most all of them.
    """
    cards = [card for card in seen.cards if card.reading.opened and not card.reading.mig]
    if not node.slices or not cards:
        return UNSEEN, before
    most = node.slices * sum(not card.reading.mig for card in seen.cards)
    names = {
        key(each.uid, each.container): _Names(*each[1:5], min(each.slices, most), each.ended) for each in node.held
    }
    on: dict[str, dict[str, ContainerRow]] = {}
    counted = {card.reading.uuid for card in cards}
    for row in seen.rows:
        if row.container is not None and row.reading.uuid in counted:
            name = row.container.name
            own = key(row.container.uid or row.use.place.pod, name.container)
            names.setdefault(own, _Names(name.namespace, "", name.pod, name.container))
            on.setdefault(own, {})[row.reading.uuid] = row
    hidden = not all(card.reading.opened for card in seen.cards)
    doubts = {card.reading.uuid: _doubtful(card, seen.rows) for card in cards}
    used = {card.reading.uuid: _used(card.reading) for card in cards}
    working = {card.reading.uuid: _working(card) for card in cards}
    admitted = {key(each.uid, each.name.container): each.admitted for each in seen.containers.values()}
    places: dict[str, tuple[str, ...]] = {}
    holders = []
    for own, each in names.items():
        rows = on.get(own, {})
        here = tuple(dict.fromkeys(uuid for uuid in (*before.get(own, ()), *sorted(rows)) if uuid in counted))
        places[own] = here = here or (tuple(counted) if len(counted) == 1 else ())
        frozen_now = ContainerName(each.namespace, each.pod, each.container) in frozen
        quiet = not frozen_now and not (hidden and len(rows) < each.slices)
        shares = [
            _share(
                *(uuid, rows.get(uuid), slices, elsewhere, doubts[uuid], working[uuid], seen.rules.slack),
                quiet=quiet and not (uuid in rows and used[uuid]),
            )
            for uuid, slices, elsewhere in _spread(here, each.slices, alone=len(counted) == 1)
        ] or [CardShare("", each.slices, None if any(doubts.values()) or not quiet else False, 0)]
        shares = [share._replace(cap=share.cap or _cap(admitted.get(own))) for share in shares]
        holders.append(HolderLook(own, *each[:4], tuple(shares), each.ended))
    offered = tuple(SlicedCard(card.reading.uuid, node.slices, node.pool, node.product) for card in cards)
    return NodeLook(offered, tuple(holders), True, node.complete), places


def key(uid: str, container: str) -> str:
    """Return a key for a container that no other container of any pod has."""
    return f"{uid}/{container}"


def _spread(cards: tuple[str, ...], slices: int, *, alone: bool) -> Iterable[tuple[str, int, int]]:
    """Yield each card with the slices there, and how many more the container holds of cards that are not known.

    A container that was seen on a card holds a slice of it at least. The others may be of any card.
    """
    for number, uuid in enumerate(cards):
        own = slices if alone else int(number < slices)
        yield uuid, own, 0 if alone or number else max(slices - len(cards), 0)


def _share(
    uuid: str,
    row: ContainerRow | None,
    slices: int,
    elsewhere: int,
    doubtful: bool,
    working: int,
    slack: int,
    *,
    quiet: bool,
) -> CardShare:
    work = None if doubtful or not quiet else False
    if row is None:
        return CardShare(uuid, slices, work, None if doubtful else 0, elsewhere=elsewhere)
    work = work if row.use.work is False else row.use.work
    mib = row.use.mib if row.use.known else None
    over = mib is not None and row.over(slack)
    each = [process.mib or 0 for process in row.use.processes]
    even = len(each) * max(each) if row.use.known and len(each) > 1 else 0
    return CardShare(uuid, slices, work, mib, row.allowance or 0, over, work is True and working > 1, elsewhere, even)


def _doubtful(card: CardUse, rows: Iterable[ContainerRow]) -> bool:
    """Whether a container without visible work on a card may work nevertheless.

    So it is if NVML failed, if a process cannot be attributed to a container, if clients of MPS are on the card, or if
    the card is busy and no process has used it, by NVML.
    """
    reading = card.reading
    attributed = sum(len(use.processes) for use in card.uses) + len(card.host)
    return (
        bool(reading.errors)
        or reading.busy is None
        or attributed < len(reading.processes)
        or any(process.mps for process in reading.processes)
        or any(row.container is None for row in rows if row.reading.uuid == reading.uuid)
        or (reading.busy > 0 and not any(process.sm for process in reading.processes))
    )


def _used(reading: CardReading) -> bool:
    """Whether anything used a card. Then no container with a process there has certainly been idle.

    NVML assigns use to the process that had the SMs last. While one process copied to an H200, NVML showed 0 percent
    for it, and 99 for another one, which waited. Short kernels next to long ones had 0, too (docs/evidence/gpu.md,
    driver 580).
    """
    return bool(reading.busy) or any(each.sm or each.other for each in reading.processes)


def _working(card: CardUse) -> int:
    """Return how many containers and processes of the host work on a card."""
    return sum(bool(use.sm) for use in card.uses) + any(process.sm for process in card.host)


def _cap(admitted: Admitted | None) -> int:
    return (admitted.allowance or 0) if admitted else 0
