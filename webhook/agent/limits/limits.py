"""Keeps the driver's limits of cgroups equal to the wanted ones, and finds limits that another program has changed."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from webhook.agent.observe.limited import ROUNDING, LimitFault, WantedLimit
from webhook.agent.observe.nvml import UNLIMITED, Cards

AGAIN = 30.0
"""Seconds before a limit that could not be set is tried again."""

CHECK = 0.5
"""Seconds at least between two checks of the limits that are set: turns may need ten looks a second."""

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
    """A wrong limit: the container's id, the card's UUID (empty if of no single card), the fault and the reason."""

    container: str
    card: str
    fault: LimitFault
    why: str


@dataclass
class DriverLimits:
    """Keeps the driver's limits equal to the wanted ones.

    `failed` has the failures of the last step. `faults` has the differences that were found in running containers, by
    their ids.
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
        """The ids of the containers that have limits of their own."""
        return frozenset(each.container for each in self._limits.values() if not each.want.any)

    @property
    def containers(self) -> frozenset[str]:
        """The ids of the containers that have limits."""
        return frozenset(each.container for each in self._limits.values())

    def keep(
        self,
        now: float,
        wanted: Mapping[str, WantedLimit],
        folders: Mapping[str, Path],
        nvml: Cards,
        unknown: Collection[str] = (),
    ) -> tuple[tuple[tuple[str, str], ...], tuple[LimitDifference, ...]]:
        """Set the limits that are missing, too wide or changed, and remove those that are no longer wanted.

        A limit for any container of a pod only replaces a wider one. A failure to set it is not counted, because the
        cgroup may be that of the pod's sandbox. Limits that NVIDIA's hook has set, and those of `unknown` containers,
        are kept. Returns each pair of a container and a card whose limit was set, and the differences that were found.
        Limits are set on every card of the node, because a container's card is unknown until its first process uses
        one. The driver forgets the limits of a removed cgroup (nvml.h 13.5, nvmlSetMemoryLimits_v1_t).
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
        """Record differences, and yield those of a kind that was not recorded for their container before."""
        for each in found:
            before = self.faults.setdefault(each.container, set())
            if each.fault not in before:
                before.add(each.fault)
                yield each

    def forget(self) -> None:
        """Forget which limits are set, so that all are set again. Called after NVML or the driver has been restarted.

        The limits that containers had before the agent's first one are remembered.
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
            return f"the driver reports {size(read)} after a limit was set"
    limit.mib, limit.held = mib, max(mib, read or 0)
    return ""


def _lifted(key: Key, limit: _CardLimit, nvml: Cards) -> Iterator[LimitDifference]:
    """Yield that somebody has widened or removed a limit, which is then set again."""
    read = nvml.limit_of(*key)
    if read is None or read <= limit.held:
        return
    limit.mib = None
    fault = LimitFault.WIDER if read < UNLIMITED else LimitFault.MISSING
    yield LimitDifference(limit.container, key[0], fault, f"was found with {size(read)} after the agent had limited it")


def size(mib: int) -> str:
    """Write a limit in MiB in words."""
    return f"a limit of {mib} MiB" if mib < UNLIMITED else "no limit"
