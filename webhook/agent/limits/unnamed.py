"""Finds containers whose names are unknown, by their cgroups: the path of a cgroup has the uid of the pod."""

from collections.abc import Collection, Mapping
from pathlib import Path

from webhook.agent.observe.cgroups import CgroupFolders
from webhook.agent.observe.view import Observation
from webhook.memory.admitted import UNKNOWN

LATE = 2.0
"""Seconds between two lists of the cgroups of pods. A container without a name in both counts.

So NVIDIA's hook comes first, and nearly every container has a name before.
"""


class UnnamedContainers:
    """Lists the cgroups of the node's pods. `folders` is None if the node has no cgroup v2."""

    def __init__(self, folders: CgroupFolders | None) -> None:
        self._folders, self._due = folders, float("-inf")
        self._listed: Mapping[str, tuple[str, Path]] = {}
        self._late: Mapping[str, tuple[str, Path]] = {}

    @property
    def pods(self) -> frozenset[str]:
        """The uids of the pods for which the last look found a cgroup, of a container or of the sandbox."""
        return frozenset(uid for uid, _ in self._listed.values())

    def look(self, seen: Observation, now: float, own: Collection[str]) -> Mapping[str, tuple[str, Path]]:
        """Return the containers whose names are unknown, by id, each with its pod's uid and its cgroup.

        Containers in `own`, which have limits of their own, are left out. `now` is in seconds of a monotonic clock.
        """
        if self._folders and now >= self._due:
            before, self._due = self._listed, now + LATE
            self._listed = self._folders.of_pods(seen.pods.keys())
            self._late = {each: at for each, at in self._listed.items() if each in before}
        return {
            each: (uid, folder)
            for each, (uid, folder) in self._late.items()
            if uid in seen.pods and not named(seen, each, uid) and each not in own
        }


def named(seen: Observation, container: str, pod: str = "") -> bool:
    """Whether the admission of a container is known. With `pod`, only as one of the pod with this uid."""
    known = seen.containers.get(container)
    return known is not None and known.admitted != UNKNOWN and pod in ("", known.uid)
