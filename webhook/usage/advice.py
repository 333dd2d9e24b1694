"""Advises how large the slices of workloads should be, by the peaks in the usage record.

A workload that follows an advice must not run out of memory. So an advised size is never below the largest peak seen
plus RESERVE. If the record does not show the need for certain, there is no advice, but the reason in words.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from webhook.catalog import mig_profiles
from webhook.policy.model import CONTEXT_MIB, SharingLimits
from webhook.usage.document import NodeUsage
from webhook.usage.held import UNNAMED
from webhook.usage.record import HOUR, REST, Amounts, HolderKey, SeenHours

FEWEST = 24
"""Hours in which a workload must have been seen, and between its first and last one."""

WORKED = 1
"""Hours in which a workload must have been seen to work. One that does not work has not shown what it needs."""

GAP = 0.01
"""The part of the time that may be unseen, and the part of the nodes that may be silent."""

RESERVING = 0.5
"""The part of its cap above which a peak may be a reservation.

vLLM takes 0.9 of what it may have and JAX 0.75, with the context inside or outside of it. Of a small slice with several
processes, whose contexts the cap counts generously, that may be little more than half.
"""

CONTEXT = max(CONTEXT_MIB.values())
"""MiB by which a framework's cap may be below its slice (webhook.memory.budget)."""

RESERVE_MIB, RESERVE_PART, STEP = 256, 10, 64
"""What is added to a peak: a tenth of it, and at least this many MiB; the sum is rounded up to whole steps (MiB).

The agent looks once a second, and a cap is written in thousandths of a card, of 192 MiB at most.
"""

LEAST = 512
"""MiB that a framework needs at least (webhook.memory.budget)."""

LIVES = 8
"""Hours that a pod must have been seen before its own growth counts."""

MANY_SLICES = SharingLimits().max_replicas
"""Maximum number of slices that is advised for a card."""

MEMORY, POOL, PROFILE, SLICES = "memory", "pool", "profile", "slices"
"""Kinds of changes: a pod's annotation, another pool, a MIG profile, and the number of slices of a pool's cards."""


class SizeChange(NamedTuple):
    """One change to make, and how many slice-milliseconds of the pool it would have saved in the window."""

    kind: str
    value: str
    saved: int = 0


@dataclass
class SizedWorkload:
    """A container of a workload, its use, its need of a card's memory (MiB), and the changes that this need allows.

    If the need is not known, `unknown` is the reason. `slices` is the number of slices of a card of its pool. `cap` is
    its smallest cap in MiB.
    """

    namespace: str
    workload: str
    container: str
    pools: tuple[str, ...]
    amounts: Amounts
    slices: int = 0
    cap: int = 0
    need: int = 0
    unknown: str = ""
    changes: tuple[SizeChange, ...] = ()


@dataclass
class SizedPool:
    """The cards of one model in a pool: slices of a card, MiB of a slice, the slices in use, and the changes."""

    pool: str
    product: str
    slices: int
    mib: int
    held: int
    need: int = 0
    unknown: str = ""
    changes: tuple[SizeChange, ...] = ()


class SizeAdvice(NamedTuple):
    """The advice for a window of time (ms from 1970 in UTC). The change that saves most comes first."""

    since: int
    at: int
    workloads: tuple[SizedWorkload, ...] = ()
    pools: tuple[SizedPool, ...] = ()


class _Row(NamedTuple):
    """A row of a node's record."""

    node: str
    key: HolderKey
    used: Amounts
    seen: SeenHours | None


_Identity = tuple[str, str]
"""A namespace with a workload, or with a pod that has none."""

_Cards = tuple[str, str]
"""A pool and a model of a card."""


def advise(nodes: Sequence[NodeUsage], silent: int | None = 0, namespace: str = "") -> SizeAdvice:
    """Advise sizes for all workloads of a namespace, or of all namespaces and then for the pools too.

    `silent` is how many nodes gave no answer; None if that is not known.
    """
    rows = [
        _Row(usage.node, key, used, usage.book.hours.get(key))
        for usage in nodes
        for key, used in usage.book.holders.items()
    ]
    groups: dict[_Identity, list[_Row]] = defaultdict(list)
    for row in rows:
        if row.key.pod != REST:
            groups[row.key.namespace, row.key.workload or f"Pod/{row.key.pod}"].append(row)
    sizes = _sizes(nodes, rows)
    doubts = _Doubts(
        {usage.node: gap for usage in nodes if (gap := _gap(usage))},
        silent is None or silent > GAP * (silent + len(nodes)),
        _rests(rows),
    )
    larger = _LargerCounts(sizes.values())
    found = [_sized(name, own, doubts, sizes, larger) for name, own in groups.items()]
    found = [each for each in found if each.amounts.held]
    known = [usage for usage in nodes if usage.at]
    return SizeAdvice(
        min((usage.since for usage in known), default=0),
        max((usage.at for usage in known), default=0),
        tuple(sorted((each for each in found if namespace in ("", each.namespace)), key=_order)),
        () if namespace else tuple(_pools(sizes, found, rows)),
    )


def _order(each: SizedWorkload) -> tuple[int, bool, int, str, str]:
    saved = max((change.saved for change in each.changes), default=0)
    return -saved, bool(each.unknown), -each.amounts.held, each.namespace, each.workload


# What may be missing


class _Doubts(NamedTuple):
    """What may hide a use: gaps of nodes, silent nodes, and the peaks of rows that are added up, by namespace."""

    gaps: Mapping[str, str]
    silent: bool
    rests: Mapping[str, int]

    def hidden(self, namespace: str) -> int:
        """Return the highest peak (MiB) in a row without a name that may belong to a workload of a namespace."""
        return max(self.rests.get(namespace, 0), self.rests.get(REST, 0))


def _rests(rows: Iterable[_Row]) -> Mapping[str, int]:
    found: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.key.pod == REST:
            found[row.key.namespace] = max(found[row.key.namespace], row.used.peak)
    return found


def _gap(usage: NodeUsage) -> str:
    """Return why the record of a node may hide a use; empty if too little is missing.

    Slices may be unseen although somebody looked: those of a container whose card is not known. So a gap is no longer
    than the unseen time of a card, and no longer than what the container that was seen longest leaves of the time.
    """
    if usage.trouble:
        return f"the record of {usage.node} may not be complete"
    counted: dict[str, int] = defaultdict(int)
    unseen: dict[str, float] = defaultdict(float)
    for card, amounts in usage.book.cards.items():
        counted[card.card] += amounts.counted
        unseen[card.card] += amounts.unseen / amounts.capacity * amounts.counted if amounts.capacity else 0
    whole = max(counted.values(), default=0)
    longest = max((used.seen for used in usage.book.holders.values()), default=0)
    gap = min(max(unseen.values(), default=0.0), max(whole - longest, 0))
    if not whole:
        return f"no card of {usage.node} was counted"
    if gap > GAP * whole:
        return (
            f"{usage.node} was not seen for {gap / HOUR:.1f} of {whole / HOUR:.1f} h; at most {GAP:.0%} may be missing"
        )
    return ""


# Workloads


def _sized(
    name: _Identity,
    rows: Sequence[_Row],
    doubts: _Doubts,
    sizes: Mapping[_Cards, SizedPool],
    larger: "_LargerCounts",
) -> SizedWorkload:
    namespace, workload = name
    total = Amounts()
    for row in rows:
        total = total.plus(row.used)
    cards = sorted({(row.key.pool, row.key.product) for row in rows})
    containers = sorted({row.key.container for row in rows if row.used.held or row.used.peak})
    size = sizes.get(cards[0]) if len(cards) == 1 else None
    found = SizedWorkload(
        namespace,
        workload,
        ", ".join(containers),
        tuple(sorted({pool for pool, _ in cards})),
        total,
        size.slices if size else 0,
        min((row.used.cap for row in rows if row.used.cap), default=0),
    )
    found.unknown = next(_reasons(name, rows, total, containers, doubts), "")
    if not found.unknown:
        found.need = need(total.peak)
        found.changes = tuple(_changes(found, size, larger))
    return found


def need(peak: int) -> int:
    """Return the MiB that a program with this peak must be allowed to use."""
    most = peak + max(RESERVE_MIB, -(-peak // RESERVE_PART))
    return max(-(-most // STEP) * STEP, LEAST)


def _reasons(
    name: _Identity, rows: Sequence[_Row], total: Amounts, containers: Collection[str], doubts: _Doubts
) -> Iterator[str]:
    """Yield why the need of a workload is not known, the most telling reason first."""
    seen = total.seen
    pods = _by_pod(rows)
    if total.over:
        yield f"it was over its cap for {total.over / HOUR:.1f} h, so the cap does not limit it"
    if any(row.used.cap and row.used.peak > min(RESERVING * row.used.cap, row.used.cap - CONTEXT) for row in rows):
        yield f"it reserves its cap, or may: its peak is above {RESERVING:.0%} of it, or within {CONTEXT} MiB"
    if total.even > need(total.peak):
        yield (
            f"its processes are unequal, and share a cap equally: {total.even} MiB would be needed if each had as much "
            "as the largest"
        )
    if any(row.used.peak and not row.used.cap for row in rows):
        yield "no cap of it is known"
    if name[1] == UNNAMED:
        yield "what controls its pods has no valid name"
    if len(containers) > 1:
        yield "several containers of its pods use a GPU, and their needs together are not known"
    if any(_several(own) for own in pods.values()):
        yield "a container of it holds several slices"
    if total.working < WORKED * HOUR:
        yield f"it was seen to work for {total.working / HOUR:.1f} h; at least {WORKED} h is needed"
    if seen < FEWEST * HOUR:
        yield f"it was seen for {seen / HOUR:.1f} h; at least {FEWEST} h are needed"
    if seen - total.measured > GAP * seen:
        missing = (seen - total.measured) / HOUR
        yield f"its memory is not known for {missing:.1f} of {seen / HOUR:.1f} h; at most {GAP:.0%} may be missing"
    if any(row.seen is None for row in rows):
        yield "the record does not say in which hour its memory was highest"
    lives = [row.seen for row in rows if row.seen is not None]
    if lives:
        life = _joined(lives)
        if life.last - life.first + 1 < FEWEST:
            hours = life.last - life.first + 1
            yield f"it was seen within {hours} h; at least {FEWEST} h are needed"
        if _grows(life):
            yield f"its memory still grew: it was highest {life.last - life.reached} h before its last hour"
        own = [_joined([row.seen for row in each if row.seen is not None]) for each in pods.values()]
        long = [each for each in own if each.last - each.first + 1 >= LIVES]
        if 2 * sum(map(_grows, long)) > len(long):
            yield "the memory of most of its pods grew until they ended"
    yield from (doubts.gaps[node] for node in sorted({row.node for row in rows}) if node in doubts.gaps)
    if doubts.silent and any(row.key.workload for row in rows):  # a pod without an owner stays on its node
        yield "it may have run on nodes that gave no answer"
    if doubts.hidden(name[0]) > total.peak:
        yield f"a part of its use may be under {REST}"


def _by_pod(rows: Iterable[_Row]) -> Mapping[tuple[str, str, str], list[_Row]]:
    found: dict[tuple[str, str, str], list[_Row]] = defaultdict(list)
    for row in rows:
        found[row.node, row.key.pod, row.key.container].append(row)
    return found


def _several(rows: Sequence[_Row]) -> bool:
    """Whether a container held several slices: more than one at a time, or of several cards in the same hours."""
    if sum(row.used.held for row in rows) > sum(row.used.seen for row in rows) * (1 + GAP):
        return True
    lives = sorted(row.seen[:2] for row in rows if row.key.card and row.seen is not None)
    return any(later[0] < earlier[1] for earlier, later in pairwise(lives))


def _joined(lives: Sequence[SeenHours]) -> SeenHours:
    life = lives[0]
    for each in lives[1:]:
        life = life.plus(each)
    return life


def _grows(life: SeenHours) -> bool:
    """Whether the peak came in the last quarter of the hours: as a leak's does, however slow it is."""
    return 4 * (life.last - life.reached) < life.last - life.first + 1


# Changes


def _sizes(nodes: Iterable[NodeUsage], rows: Sequence[_Row]) -> dict[_Cards, SizedPool]:
    """Return the cards of each pool. Those whose number of slices differs or has changed are left out.

    A slice has at least the largest cap of a container with one slice. Of several nodes the smallest one counts, so
    that one node that reports too much does not count for all.
    """
    slices: dict[_Cards, set[float]] = defaultdict(set)
    for usage in nodes:
        for card, amounts in usage.book.cards.items():
            if amounts.counted:
                slices[card.pool, card.product].add(amounts.capacity / amounts.counted)
    caps: dict[_Cards, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    held: dict[_Cards, int] = defaultdict(int)
    for (node, pod, _), own in _by_pod(rows).items():
        one = pod != REST and len({row.key.card for row in own} - {""}) == 1 and not _several(own)
        for row in own:
            cards = row.key.pool, row.key.product
            held[cards] += row.used.held
            if one and row.used.held:
                caps[cards][node] = max(caps[cards][node], row.used.cap)
    return {
        cards: SizedPool(*cards, int(count), min(caps[cards].values(), default=0), held[cards])
        for cards, counts in slices.items()
        if len(counts) == 1 and (count := min(counts)) == int(count) and count > 1
    }


class _LargerCounts:
    """Finds the pool with the most slices of a card that are large enough, without a look at each pool."""

    def __init__(self, pools: Iterable[SizedPool]) -> None:
        by_product: dict[str, list[SizedPool]] = defaultdict(list)
        for each in pools:
            by_product[each.product].append(each)
        self._sizes: dict[str, list[int]] = {}
        self._best: dict[str, list[SizedPool]] = {}
        for product, own in by_product.items():
            own.sort(key=lambda each: -each.mib)
            self._sizes[product] = [-each.mib for each in own]
            self._best[product] = [*accumulate(own, _better)]

    def beyond(self, size: SizedPool, mib: int) -> SizedPool | None:
        """Return that pool of the same cards, whose slices have so many MiB; None if it has no more slices."""
        enough = bisect_right(self._sizes[size.product], -mib)
        best = self._best[size.product][enough - 1] if enough else size
        return best if best.slices > size.slices else None


def _better(one: SizedPool, other: SizedPool) -> SizedPool:
    return max(one, other, key=lambda each: (each.slices, each.pool))


def _changes(found: SizedWorkload, size: SizedPool | None, larger: _LargerCounts) -> Iterator[SizeChange]:
    held = found.amounts.held
    if found.need + CONTEXT <= found.cap:
        yield SizeChange(MEMORY, f"{found.need}Mi")
    if size is None:
        return
    if best := larger.beyond(size, found.need + CONTEXT):
        yield SizeChange(POOL, best.pool, _saved(held, size.slices, best.slices))
    for profile in mig_profiles.named(size.product):
        if profile.memory >= found.need and profile.devices > size.slices:
            yield SizeChange(PROFILE, profile.name, _saved(held, size.slices, profile.devices))
            return


def _pools(
    sizes: Mapping[_Cards, SizedPool], found: Sequence[SizedWorkload], rows: Sequence[_Row]
) -> Iterator[SizedPool]:
    """Yield the pools with the number of slices that all their workloads fit in, if all needs are known."""
    added = {row.key.pool for row in rows if row.key.pod == REST}
    counts, unknown, needs = Counter[str](), Counter[str](), dict[str, int]()
    for each in found:
        for pool in each.pools:
            counts[pool] += 1
            unknown[pool] += bool(each.unknown)
            needs[pool] = max(needs.get(pool, 0), each.need)
    for size in sizes.values():
        if not counts[size.pool]:
            continue
        if size.pool in added:
            size.unknown = f"a part of its use is under {REST}"
        elif unknown[size.pool]:
            size.unknown = f"the need of {unknown[size.pool]} of its {counts[size.pool]} workloads is not known"
        else:
            size.need = needs[size.pool]
            most = size.mib * size.slices // (size.need + CONTEXT)
            if size.slices < (slices := min(most, MANY_SLICES)):
                size.changes = (SizeChange(SLICES, str(slices), _saved(size.held, size.slices, slices)),)
        yield size


def _saved(held: int, slices: int, instead: int) -> int:
    """Return what is saved of slices if a card is divided into more of them."""
    return held * (instead - slices) // instead
