"""Finds the cgroups of containers in the node's cgroup v2 file system."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from webhook.agent.observe import places

MOUNTS = Path("/proc/self/mountinfo")


def mount(mounts: Path = MOUNTS) -> Path | None:
    """Return where the root of cgroup v2 is mounted; None if it is not mounted (man 5 proc_pid_mountinfo).

    If there are several mounts, the last one counts: in a container, the node's mount covers the container's own.
    """
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    found = None
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if after.startswith("cgroup2 ") and len(fields) > 4 and fields[3] == "/":
            found = Path(fields[4])
    return found


class CgroupFolders:
    """Finds the cgroup folders of containers by id, and remembers the ones that still exist."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, Path] = {}

    def find(self, containers: Collection[str]) -> Mapping[str, Path]:
        """Return the folder of each container that has one. Walks the hierarchy only if one is not known yet."""
        known = {each: folder for each, folder in self._known.items() if each in containers and folder.is_dir()}
        if any(each not in known for each in containers):
            known = {each: folder for each, folder in self._walk().items() if each in containers}
        self._known = known
        return known

    def _walk(self) -> dict[str, Path]:
        """Find the folder of every container. Nothing below a container is read: a tenant may create folders there."""
        found: dict[str, Path] = {}
        for at, below, _ in os.walk(self._root):
            place = places.place(f"0::/{Path(at).relative_to(self._root)}")
            if place is not None:
                below.clear()
                found.setdefault(place.container, Path(at))
        return found
