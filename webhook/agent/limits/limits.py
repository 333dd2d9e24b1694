"""Has NVIDIA's driver limit each container of a pool with `memoryLimit: Driver` to its allowance."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from webhook.agent.actions import DONE, LIMIT, ConditionLog, NodeAction, Watcher
from webhook.agent.observe.admitted import UNKNOWN, Admitted
from webhook.agent.observe.cgroups import CgroupFolders
from webhook.agent.observe.nvml import UNLIMITED, Cards
from webhook.agent.observe.view import NodeContainer, Observation
from webhook.telemetry.log import Log

AGAIN = 30.0
"""Seconds before a limit that could not be set is tried again."""

Key = tuple[str, str]
"""A card's UUID and the path of a container's cgroup."""

SetLimit = Callable[[str, str, int | None], str]
"""Sets a cgroup's limit on a card, in MiB, or removes it with None. Returns why that failed, or an empty text."""


def wanted(containers: Mapping[str, NodeContainer]) -> Mapping[str, int]:
    """Return the limit (MiB) of each container that the driver must limit, by id.

    A container without an allowance gets no limit, because the request that it was admitted with is unknown.
    """
    return {
        container: each.admitted.allowance
        for container, each in containers.items()
        if each.admitted.driver and each.admitted.allowance is not None and not each.admitted.exempt
    }


class DriverLimits:
    """Keeps the driver's limits in step with the wanted ones. `failed` has the failures of the last step."""

    def __init__(self) -> None:
        self._set: dict[Key, tuple[str, int]] = {}
        self._again: dict[Key, float] = {}
        self.failed: Mapping[Key, str] = {}

    def __len__(self) -> int:
        return len(self._set)

    @property
    def containers(self) -> frozenset[str]:
        """The containers that have limits, by id."""
        return frozenset(container for container, _ in self._set.values())

    def keep(
        self,
        now: float,
        wanted: Mapping[str, int],
        folders: Mapping[str, Path],
        cards: Collection[str],
        set_: SetLimit,
        kept: Collection[str] = (),
    ) -> tuple[tuple[str, str], ...]:
        """Set the limits that are missing or have changed, and remove the others, except those of `kept` containers.

        Returns each pair of a container and a card whose limit was set. Limits are set on every card of the node,
        because a container's card is unknown until its first process uses one. The driver forgets the limits of a
        removed cgroup (nvml.h 13.5, nvmlSetMemoryLimits_v1_t).
        """
        want = {
            (card, str(folders[each])): (each, mib) for each, mib in wanted.items() if each in folders for card in cards
        }
        failed: dict[Key, str] = {}
        for key in [key for key in self._set if key not in want]:
            if not Path(key[1]).is_dir():
                del self._set[key]
            elif self._set[key][0] in kept:
                continue
            elif why := set_(*key, None):
                failed[key] = why  # the next step tries again
            else:
                del self._set[key]
        done = []
        for key, (container, mib) in want.items():
            if self._set.get(key) == (container, mib):
                continue
            if now < self._again.get(key, now):
                failed[key] = self.failed.get(key, "")
            elif why := set_(*key, mib):
                failed[key] = why
                self._again[key] = now + AGAIN
            else:
                self._set[key] = container, mib
                done.append((container, key[0]))
        self._again = {key: at for key, at in self._again.items() if key in want}
        self.failed = failed
        return tuple(done)

    def forget(self) -> None:
        """Forget which limits are set, so that all are set again: NVML or the driver has been restarted."""
        self._set.clear()
        self._again.clear()

    def remove(self, set_: SetLimit, kept: Collection[str] = ()) -> None:
        """Remove every limit, except those of `kept` containers, by id."""
        for key, (container, _) in self._set.items():
            if container not in kept and Path(key[1]).is_dir():
                set_(*key, None)
        self._set.clear()


def _fault(most: int, found: Iterable[int | None]) -> str:
    """Say what is wrong with the limits (MiB) that NVIDIA's hook has set for a container; empty if nothing is.

    The hook limits only the container's own cards, so a limit on one card is enough.
    """
    known = [limit for limit in found if limit is not None]
    own = [limit for limit in known if limit < UNLIMITED]
    if known and not own:
        return "NVIDIA's hook had set no limit"
    return f"NVIDIA's hook had set {max(own)} MiB" if own and max(own) > most else ""


def _admitted(seen: Observation, container: str) -> Admitted:
    known = seen.containers.get(container)
    return known.admitted if known is not None else UNKNOWN


class Limiter(Watcher):
    """Sets the driver's limits. `folders` finds the cgroups of containers; None if the node has no cgroup v2."""

    def __init__(self, folders: CgroupFolders | None, log: Log) -> None:
        self._folders, self._conditions = folders, ConditionLog(log)
        self._limits = DriverLimits()
        self._hooked: frozenset[str] = frozenset()
        self._corrected: dict[str, str] = {}
        self._found: dict[Key, int | None] = {}
        self._nvml: Cards | None = None

    @property
    def counts(self) -> tuple[int, int, int]:
        """The number of limits that are set, one for each container and card, of those that failed, and of containers.

        Of the containers those count for which NVIDIA's hook had set no limit, or a larger one.
        """
        return len(self._limits), len(self._limits.failed), len(self._corrected)

    def look(self, seen: Observation, now: float) -> Iterator[NodeAction]:
        """Set the limits of all containers of the node, including those that use no card yet.

        Limits stay that NVIDIA's hook has set, and those of containers about which nothing is known any more: a pod
        that was deleted by force runs on until its grace period ends.
        """
        if seen.nvml is not self._nvml:
            self._limits.forget()
            self._nvml = seen.nvml
        mib = wanted(seen.containers)
        if not mib and not len(self._limits):
            return
        folders = self._folders.find(mib.keys()) if self._folders else {}
        hooked = {str(at): mib[each] for each, at in folders.items() if seen.containers[each].admitted.hooked}
        self._hooked |= {each for each in folders if seen.containers[each].admitted.hooked}
        self._found = {key: limit for key, limit in self._found.items() if key[1] in hooked}

        def set_(card: str, cgroup: str, limit: int | None) -> str:
            if limit is not None and cgroup in hooked and (card, cgroup) not in self._found:
                self._found[card, cgroup] = seen.nvml.limit_of(card, cgroup)
            return seen.nvml.limit(card, cgroup, limit)

        unknown = {each for each in self._limits.containers if _admitted(seen, each) == UNKNOWN}
        done = self._limits.keep(now, mib, folders, seen.nvml.whole, set_, self._hooked | unknown)
        self._hooked &= self._limits.containers
        for at, most in hooked.items():
            if at not in self._corrected and (why := _fault(most, [self._found.get((c, at)) for c in seen.nvml.whole])):
                self._corrected[at] = why
        self._corrected = {at: why for at, why in self._corrected.items() if at in hooked}
        for container, card in done:
            had = self._corrected.get(str(folders[container]), "")
            why = f"limited to {mib[container]} MiB of GPU {card} by the driver{had and f'; {had}'}"
            yield NodeAction(LIMIT, container, why, gpu=card, target=seen.containers[container], outcome=DONE)
        why = "" if self._folders or not mib else "the root of cgroup v2 is not mounted"
        self._conditions.set("no limit by the driver", why or next(iter(self._limits.failed.values()), ""))

    def close(self) -> Iterator[NodeAction]:
        """Remove the limits, except those that containers had before the agent: NVIDIA's hook has set them."""
        if self._nvml is not None:
            self._limits.remove(self._nvml.limit, self._hooked)
        yield from ()
