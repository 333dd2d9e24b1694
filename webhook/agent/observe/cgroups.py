"""Finds the cgroups of containers in the node's cgroup v2 file system."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from webhook.cgroups import places
from webhook.cgroups.places import ContainerCgroup

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
    """Finds the cgroup folders of containers by their pods, and remembers those that still exist.

    No folder of another pod or inside a container's folder is read, because a tenant may create folders there.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._above = root, len(str(root).rstrip("/"))
        self._known: dict[str, Path] = {}
        self._pods: dict[str, list[Path]] = {}

    def find(self, containers: Mapping[str, str]) -> Mapping[str, Path]:
        """Return the folder of each container that has one. `containers` are ids, each with the uid of its pod.

        The API shows another uid for a static pod than its folder, so the folders of all static pods are read.
        """
        known = {each: folder for each, folder in self._known.items() if each in containers and folder.is_dir()}
        if missing := {uid for each, uid in containers.items() if each not in known}:
            own = self._of(missing)
            static = (folders for uid, folders in self._pods.items() if places.is_static(uid))
            for place, folder in [*own, *self._containers(static)]:
                uid = containers.get(place.container)
                if uid == place.pod or (uid is not None and places.is_static(place.pod)):
                    known.setdefault(place.container, folder)
        self._known = known
        return known

    def of_pods(self, pods: Collection[str]) -> Mapping[str, tuple[str, Path]]:
        """Return the containers of pods by id, each with its pod's uid and its folder. The sandbox is one of them."""
        return {place.container: (place.pod, folder) for place, folder in self._of(pods)}

    def _of(self, pods: Collection[str]) -> list[tuple[ContainerCgroup, Path]]:
        """Return the containers of pods.

        Walks the hierarchy only if no container of a pod is found where the pod was, or if a pod's containers are next
        to its folder.
        """
        found = [*self._containers(self._pods[uid] for uid in pods if uid in self._pods)]
        within = {place.pod for place, folder in found if folder not in self._pods[place.pod]}
        if within.issuperset(pods):
            return found
        self._pods = {}
        left = [self._root]
        while left:
            for folder in _below(left.pop()):
                if uid := places.pod(folder.name):
                    self._pods.setdefault(uid, []).append(folder)
                else:
                    left.append(folder)
        return [*self._containers(self._pods[uid] for uid in pods if uid in self._pods)]

    def _place(self, folder: Path) -> ContainerCgroup | None:
        return places.place(f"0::{str(folder)[self._above :]}")

    def _containers(self, pods: Iterable[Iterable[Path]]) -> Iterator[tuple[ContainerCgroup, Path]]:
        left = [folder for folders in pods for folder in folders]
        while left:
            folder = left.pop()
            if (place := self._place(folder)) is None:
                left += _below(folder)
            else:
                yield place, folder


def _below(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(each.path) for each in entries if each.is_dir(follow_symlinks=False)]
    except OSError:
        return []
