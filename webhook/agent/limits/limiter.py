"""Has NVIDIA's driver limit each container of a pool with `memoryLimit: Driver` to its allowance."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from webhook.agent.actions import DONE, LIMIT, ConditionLog, NodeAction, Watcher
from webhook.agent.limits import compare
from webhook.agent.limits.limits import AGAIN, DriverLimits, LimitDifference, size
from webhook.agent.limits.unnamed import UnnamedContainers, named
from webhook.agent.observe import limited
from webhook.agent.observe.cgroups import CgroupFolders
from webhook.agent.observe.limited import LimitCounts, LimitFault, WantedLimit
from webhook.agent.observe.nvml import UNLIMITED, Cards
from webhook.agent.observe.view import NodeContainer, Observation
from webhook.memory.driver import start
from webhook.memory.driver.start import StartNeed
from webhook.policy.model import REPORT
from webhook.telemetry.log import Log

REASON = "GPULimitDiffers"
"""The reason of the Events."""


class Limiter(Watcher):
    """Sets the driver's limits. `folders` finds the cgroups of containers; None if the node has no cgroup v2.

    With `watch_only` it only reads the limits, and reports those that differ. `by_hook` is whether the policy has
    NVIDIA's hook set limits on this node.
    """

    def __init__(
        self, folders: CgroupFolders | None, log: Log, by_hook: Callable[[], bool], *, watch_only: bool = False
    ) -> None:
        self._folders, self._conditions, self._watch_only = folders, ConditionLog(log), watch_only
        self._limits, self._unnamed = DriverLimits(), UnnamedContainers(folders)
        self._nvml: Cards | None = None
        self._by_hook = by_hook
        self._met: Mapping[StartNeed, bool] = {}
        self._needs: Mapping[StartNeed, bool] = {}
        self._missing: dict[str, float] = {}
        self._lost: tuple[str, ...] = ()

    @property
    def counts(self) -> LimitCounts:
        """The numbers of limits, failures and differences. A container without a cgroup counts as a failure."""
        faults = Counter(each for found in self._limits.faults.values() for each in found)
        return LimitCounts(len(self._limits), len(self._limits.failed) + len(self._lost), faults, self._needs)

    def look(self, seen: Observation, now: float) -> Iterator[NodeAction]:
        """Set the limits of all containers of the node, including those that use no card yet.

        If only the pod of a container is known, the container gets the widest limit of the pod's containers. Limits
        that NVIDIA's hook has set are kept. So are those of containers about which nothing is known any more, because a
        pod that was deleted by force runs on until its grace period ends. A container counts as lost if neither its
        cgroup nor its pod's sandbox is found for AGAIN seconds: then the runtime names cgroups in an unknown way.
        """
        if seen.nvml is not self._nvml:
            self._limits.forget()
            self._nvml, self._met = seen.nvml, start.needs(seen.nvml.has_limits, mig=seen.nvml.mig)
        self._needs = self._met if self._by_hook() else {}
        unmet = [start.UNMET[need] for need, met in self._needs.items() if not met]
        self._conditions.set("no limit before the start", "; ".join(unmet))
        want = compare.wanted(seen.containers)
        if not want and not seen.pods and not self._limits.containers and not self._limits.faults and not self._missing:
            return
        folders = self._folders.find({each: seen.containers[each].uid for each in want}) if self._folders else {}
        if self._watch_only:
            yield from self._compare(seen, folders)
            return
        unnamed = self._unnamed.look(seen, now, self._limits.own)
        hidden = seen.pods.keys() - self._unnamed.pods
        missing = [each for each in want if each not in folders and seen.containers[each].uid in hidden]
        self._missing = {each: self._missing.get(each, now) for each in missing}
        self._lost = tuple(each for each, since in self._missing.items() if now - since >= AGAIN)
        lost = f"no cgroup was found of {'/'.join(seen.containers[self._lost[0]].name)}" if self._lost else ""
        names = {**seen.containers, **{each: seen.pods[uid] for each, (uid, _) in unnamed.items()}}
        wider = compare.wanted({each: names[each] for each in unnamed})
        want = {**want, **{each: own._replace(any=True) for each, own in wider.items()}}
        folders = {**folders, **{each: folder for each, (_, folder) in unnamed.items()}}
        unknown = {each for each in self._limits.containers if not named(seen, each)}
        done, found = self._limits.keep(now, want, folders, seen.nvml, unknown)
        for container, card in done:
            why = f"limited to {want[container].mib} MiB of GPU {card} by the driver"
            yield NodeAction(LIMIT, container, why, gpu=card, target=names[container], outcome=DONE)
        yield from self._report([*self._hooks(seen, want, folders), *found], names, self._limits.containers)
        why = "" if self._folders or not want else "the root of cgroup v2 is not mounted"
        self._conditions.set("no limit by the driver", why or next(iter(self._limits.failed.values()), lost))

    def close(self) -> Iterator[NodeAction]:
        """Remove the limits, except those that containers had before the agent started, which NVIDIA's hook has set."""
        if self._nvml is not None:
            self._limits.close(self._nvml)
        yield from ()

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
                    why = f"had {size(most)} from NVIDIA's hook, which is more than its {mib} MiB"
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
