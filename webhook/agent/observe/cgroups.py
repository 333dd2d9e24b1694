"""Finds the cgroups of containers in the node's cgroup v2 file system."""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from webhook.agent.observe import places
from webhook.agent.observe.places import ContainerCgroup

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
    """Finds the cgroup folders of containers, by id or by pod, and remembers the ones that still exist."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, Path] = {}
        self._pods: dict[str, Path] = {}

    def find(self, containers: Collection[str]) -> Mapping[str, Path]:
        """Return the folder of each container that has one. Walks the hierarchy only if one is not known yet."""
        known = {each: folder for each, folder in self._known.items() if each in containers and folder.is_dir()}
        if any(each not in known for each in containers):
            known = {}
            for place, folder in self._walk(self._root):
                if place.container in containers:
                    known.setdefault(place.container, folder)
        self._known = known
        return known

    def of_pods(self, pods: Collection[str]) -> Mapping[str, tuple[str, Path]]:
        """Return the containers of pods by id, each with its pod's uid and its folder. A pod's sandbox is one of them.

        Walks the hierarchy only if a pod has no folder yet. A pod's folder has those of all its containers.
        """
        self._pods = {uid: folder for uid, folder in self._pods.items() if uid in pods and folder.is_dir()}
        if any(uid not in self._pods for uid in pods):
            self._pods = {place.pod: folder.parent for place, folder in self._walk(self._root) if place.pod in pods}
        found = (each for folder in self._pods.values() for each in self._walk(folder))
        return {place.container: (place.pod, folder) for place, folder in found if place.pod in pods}

    def _walk(self, top: Path) -> Iterator[tuple[ContainerCgroup, Path]]:
        """Yield the containers below a folder. Nothing below a container is read: a tenant may create folders there."""
        for at, below, _ in os.walk(top):
            place = places.place(f"0::/{Path(at).relative_to(self._root)}")
            if place is not None:
                below.clear()
                yield place, Path(at)
