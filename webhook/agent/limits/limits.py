"""Has NVIDIA's driver limit each container of a pool with `memoryLimit: Driver` to its allowance."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from webhook.agent.actions import DONE, LIMIT, ConditionLog, NodeAction, Watcher
from webhook.agent.limits import compare
from webhook.agent.observe import limited
from webhook.agent.observe.admitted import UNKNOWN
from webhook.agent.observe.cgroups import CgroupFolders
from webhook.agent.observe.limited import ROUNDING, LimitCounts, LimitFault, WantedLimit
from webhook.agent.observe.nvml import UNLIMITED, Cards
from webhook.agent.observe.view import NodeContainer, Observation
from webhook.policy.model import REPORT
from webhook.telemetry.log import Log

LATE = 2.0
"""Seconds between two lists of the cgroups of pods. A container that is unknown in both gets the limit of its pod.

So NVIDIA's hook comes first, and nearly every container is known before.
"""

AGAIN = 30.0
"""Seconds before a limit that could not be set is tried again."""

CHECK = 0.5
"""Seconds at least between two checks of the limits that are set: turns may need ten looks a second."""

REASON = "GPULimitDiffers"
"""The reason of the Events."""

Key = tuple[str, str]
"""A card's UUID and the path of a container's cgroup."""


@dataclass
class _CardLimit:
    """The limit of a container on a card, in MiB.

    `first` is what the card had before the agent set a limit, read only if NVIDIA's hook should have set one, or if
    only the pod is known; None if it could not be read, or if there was none while only the pod was known. `mib` is
    what the agent has set; None if it has to be set (again). `held` is what the driver reported then, if that is more.
    `ours` is whether the agent has ever set one.
    """

    container: str
    want: WantedLimit
    first: int | None = None
    mib: int | None = None
    held: int = 0
    ours: bool = False


class LimitDifference(NamedTuple):
    """A difference that was found: the container's id, a card's UUID (empty if it is not of one card), what and why."""

    container: str
    card: str
    fault: LimitFault
    why: str


@dataclass
class DriverLimits:
    """Keeps the driver's limits in step with the wanted ones.

    `failed` has the failures of the last step, and `faults` the differences that were found of running containers, by
    id.
    """

    failed: Mapping[Key, str] = field(default_factory=dict)
    faults: dict[str, set[LimitFault]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._limits: dict[Key, _CardLimit] = {}
        self._again: dict[Key, float] = {}
        self._due = float("-inf")

    def __len__(self) -> int:
        return sum(each.mib is not None and not each.want.any for each in self._limits.values())

    @property
    def own(self) -> frozenset[str]:
        """The containers that have limits of their own, by id."""
        return frozenset(each.container for each in self._limits.values() if not each.want.any)

    @property
    def containers(self) -> frozenset[str]:
        """The containers that have limits, by id."""
        return frozenset(each.container for each in self._limits.values())

    def keep(
        self,
        now: float,
        wanted: Mapping[str, WantedLimit],
        folders: Mapping[str, Path],
        nvml: Cards,
        unknown: Collection[str] = (),
    ) -> tuple[tuple[tuple[str, str], ...], tuple[LimitDifference, ...]]:
        """Set the limits that are missing, wider or have changed, and remove those that are not wanted any more.

        A limit for any container of a pod only replaces a wider one, and a failure to set it is not counted, because it
        may be that of the pod's sandbox. Limits stay that NVIDIA's hook has set, and those of `unknown` containers.
        Returns each pair of a container and a card whose limit was set, and the differences that were found. Limits are
        set on every card of the node, because a container's card is unknown until its first process uses one. The
        driver forgets the limits of a removed cgroup (nvml.h 13.5, nvmlSetMemoryLimits_v1_t).
        """
        want = {
            (card, str(folders[each])): (each, own)
            for each, own in wanted.items()
            if each in folders
            for card in nvml.whole
        }
        failed = self._remove([key for key in self._limits if key not in want], nvml, unknown)
        due = now >= self._due
        self._due = now + CHECK if due else self._due
        done, found = list[tuple[str, str]](), list[LimitDifference]()
        for key, (container, own) in want.items():
            if (limit := self._limits.get(key)) is None:
                first = nvml.limit_of(*key) if own.any or own.stated is not None else None
                limit = self._limits[key] = _CardLimit(
                    container, own, None if own.any and first == UNLIMITED else first
                )
            limit.want = own
            if limit.mib == own.mib and due:
                found += _lifted(key, limit, nvml)
            if limit.mib == own.mib:
                continue
            if now < self._again.get(key, now):
                failed[key] = self.failed.get(key, "")
            elif why := _set(key, limit, nvml):
                failed[key] = why
                self._again[key] = now + AGAIN
            else:
                self._again.pop(key, None)
                if not own.any or (limit.ours and limit.first is not None):
                    done.append((container, key[0]))
        self._again = {key: at for key, at in self._again.items() if key in want}
        self.failed = {key: why for key, why in failed.items() if not self._limits[key].want.any}
        return tuple(done), tuple(found)

    def first(self, folder: Path, nvml: Cards) -> Mapping[str, int | None]:
        """Return the limits (MiB) that a container had before the agent set one, by card."""
        known = {card: self._limits.get((card, str(folder))) for card in nvml.whole}
        return {card: limit.first for card, limit in known.items() if limit is not None}

    def news(self, found: Collection[LimitDifference]) -> Iterator[LimitDifference]:
        """Record differences, and yield those that are the first of their kind of a container."""
        for each in found:
            before = self.faults.setdefault(each.container, set())
            if each.fault not in before:
                before.add(each.fault)
                yield each

    def forget(self) -> None:
        """Forget which limits are set, so that all are set again: NVML or the driver has been restarted.

        What was found before the first one is kept.
        """
        self._limits = {key: each for key, each in self._limits.items() if each.want.stated is not None}
        for each in self._limits.values():
            each.mib = None
        self._again.clear()

    def close(self, nvml: Cards) -> None:
        """Remove every limit, except those that NVIDIA's hook has set."""
        for key, limit in self._limits.items():
            if limit.ours and limit.want.stated is None and Path(key[1]).is_dir():
                nvml.limit(*key, limit.first)
        self._limits.clear()

    def _remove(self, keys: Collection[Key], nvml: Cards, unknown: Collection[str]) -> dict[Key, str]:
        failed: dict[Key, str] = {}
        for key in keys:
            limit = self._limits[key]
            if not Path(key[1]).is_dir():
                del self._limits[key]
            elif limit.container in unknown or (limit.want.stated is not None and not limit.want.any):
                continue
            elif limit.ours and (why := nvml.limit(*key, limit.first)):
                failed[key] = why  # the next step tries again
            else:
                del self._limits[key]
        return failed


def _set(key: Key, limit: _CardLimit, nvml: Cards) -> str:
    """Set a limit, and read it back. Returns why that failed, or an empty text."""
    limit.mib, mib = None, limit.want.mib
    read = nvml.limit_of(*key) if limit.want.any else None
    if read is None or read > mib:
        if why := nvml.limit(*key, mib):
            return why
        limit.ours = True
        read = nvml.limit_of(*key)
        if read is not None and read > mib + ROUNDING:
            return f"the driver reports {_size(read)} after a limit was set"
    limit.mib, limit.held = mib, max(mib, read or 0)
    return ""


def _lifted(key: Key, limit: _CardLimit, nvml: Cards) -> Iterator[LimitDifference]:
    """Yield that somebody has widened or removed a limit, which is then set again."""
    read = nvml.limit_of(*key)
    if read is None or read <= limit.held:
        return
    limit.mib = None
    fault = LimitFault.WIDER if read < UNLIMITED else LimitFault.MISSING
    yield LimitDifference(
        limit.container, key[0], fault, f"was found with {_size(read)} after the agent had limited it"
    )


def _size(mib: int) -> str:
    return f"a limit of {mib} MiB" if mib < UNLIMITED else "no limit"


class Limiter(Watcher):
    """Sets the driver's limits. `folders` finds the cgroups of containers; None if the node has no cgroup v2.

    With `watch_only` it only reads them, and reports what differs.
    """

    def __init__(self, folders: CgroupFolders | None, log: Log, *, watch_only: bool = False) -> None:
        self._folders, self._conditions, self._watch_only = folders, ConditionLog(log), watch_only
        self._limits = DriverLimits()
        self._listed: Mapping[str, tuple[str, Path]] = {}
        self._late: Mapping[str, tuple[str, Path]] = {}
        self._due = float("-inf")
        self._nvml: Cards | None = None

    @property
    def counts(self) -> LimitCounts:
        """The limits that are set or failed, and the differences."""
        faults = Counter(each for found in self._limits.faults.values() for each in found)
        return LimitCounts(len(self._limits), len(self._limits.failed), faults)

    def look(self, seen: Observation, now: float) -> Iterator[NodeAction]:
        """Set the limits of all containers of the node, including those that use no card yet.

        A container of which only the pod is known gets the widest limit of the pod's containers. Limits stay that
        NVIDIA's hook has set, and those of containers about which nothing is known any more: a pod that was deleted by
        force runs on until its grace period ends.
        """
        if seen.nvml is not self._nvml:
            self._limits.forget()
            self._nvml = seen.nvml
        want = compare.wanted(seen.containers)
        if not want and not seen.pods and not self._limits.containers and not self._limits.faults:
            return
        folders = self._folders.find({each: seen.containers[each].uid for each in want}) if self._folders else {}
        if self._watch_only:
            yield from self._compare(seen, folders)
            return
        late = self._strangers(seen, now)
        names = {**seen.containers, **{each: seen.pods[uid] for each, (uid, _) in late.items()}}
        wider = compare.wanted({each: names[each] for each in late})
        want = {**want, **{each: own._replace(any=True) for each, own in wider.items()}}
        folders = {**folders, **{each: folder for each, (_, folder) in late.items()}}
        unknown = {each for each in self._limits.containers if _unknown(seen, each)}
        done, found = self._limits.keep(now, want, folders, seen.nvml, unknown)
        for container, card in done:
            why = f"limited to {want[container].mib} MiB of GPU {card} by the driver"
            yield NodeAction(LIMIT, container, why, gpu=card, target=names[container], outcome=DONE)
        yield from self._report([*self._hooks(seen, want, folders), *found], names, self._limits.containers)
        why = "" if self._folders or not want else "the root of cgroup v2 is not mounted"
        self._conditions.set("no limit by the driver", why or next(iter(self._limits.failed.values()), ""))

    def close(self) -> Iterator[NodeAction]:
        """Remove the limits, except those that containers had before the agent: NVIDIA's hook has set them."""
        if self._nvml is not None:
            self._limits.close(self._nvml)
        yield from ()

    def _strangers(self, seen: Observation, now: float) -> Mapping[str, tuple[str, Path]]:
        """Return the containers of which only the pod is known, by id, each with its pod's uid and its cgroup."""
        if self._folders and now >= self._due:
            before, self._due = self._listed, now + LATE
            self._listed = self._folders.of_pods(seen.pods.keys())
            self._late = {each: at for each, at in self._listed.items() if each in before}
        own = self._limits.own
        return {
            each: (uid, folder)
            for each, (uid, folder) in self._late.items()
            if uid in seen.pods and _unknown(seen, each) and each not in own
        }

    def _hooks(
        self, seen: Observation, want: Mapping[str, WantedLimit], folders: Mapping[str, Path]
    ) -> Iterator[LimitDifference]:
        """Yield how the limits that NVIDIA's hook has set differ from those that the containers' variables state."""
        using = limited.used(seen.cards)
        known = {each: own for each, own in want.items() if not own.any and each in folders}
        stated = {each: own.stated for each, own in known.items() if own.stated is not None}
        for container, mib in stated.items():
            first = self._limits.first(folders[container], seen.nvml)
            match limited.fault(mib, first, using.get(container, ())):
                case LimitFault.WIDER:
                    most = max(each for each in first.values() if each is not None and each < UNLIMITED)
                    why = f"had {_size(most)} from NVIDIA's hook, which is more than its {mib} MiB"
                    yield LimitDifference(container, "", LimitFault.WIDER, why)
                case LimitFault.MISSING:
                    yield LimitDifference(container, "", LimitFault.NO_HOOK, "had no limit from NVIDIA's hook")
                case LimitFault.OTHER_CARD:
                    yield LimitDifference(container, "", LimitFault.OTHER_CARD, OTHER_CARD)

    def _compare(self, seen: Observation, folders: Mapping[str, Path]) -> Iterator[NodeAction]:
        """Report what differs, with no limit set by this agent."""
        found = [
            LimitDifference(each.id, "", each.fault, NOTES[each.fault].format(each.most))
            for each in compare.compare(seen.nvml, seen.cards, seen.containers, folders)
            if each.fault is not None
        ]
        yield from self._report(found, seen.containers, {each.container for each in found})

    def _report(
        self, found: Collection[LimitDifference], names: Mapping[str, NodeContainer], known: Collection[str]
    ) -> Iterator[NodeAction]:
        """Report each difference once while its container is known."""
        for each in self._limits.news(found):
            target = names.get(each.container)
            yield NodeAction(REPORT, each.container, each.why, REASON, each.card, target, outcome=DONE)
        self._limits.faults = {each: faults for each, faults in self._limits.faults.items() if each in known}


OTHER_CARD = "uses a GPU on which NVIDIA's hook had set no limit, and has a limit on another GPU"

NOTES = {
    LimitFault.MISSING: "has no limit by the driver, and should have {} MiB",
    LimitFault.WIDER: "has a wider limit by the driver than its {} MiB",
    LimitFault.OTHER_CARD: "uses a GPU on which it has no limit by the driver, and has a limit on another GPU",
}
"""What is reported where the agent only watches; with the limit in MiB."""


def _unknown(seen: Observation, container: str) -> bool:
    known = seen.containers.get(container)
    return known is None or known.admitted == UNKNOWN
