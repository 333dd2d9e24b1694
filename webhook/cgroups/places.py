"""Finds the pod and the container of a process from the text of its cgroup file.

Sources of the formats: kubernetes pkg/kubelet/cm/cgroup_manager_linux.go, containerd internal/cri/server/podsandbox
(getCgroupsPath), cri-o internal/config/cgmgr, cri-dockerd core/convert.go.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_TEXT = 64 * 1024
"""Maximum number of characters read from a cgroup file. Real files have fewer than 2,000."""

_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(rf"(?:[^/]*-)?pod(?P<uid>{_UID})(?:\.slice(?::[^:/]*:(?P<id>[0-9a-f]{{64}}))?)?")
"""A pod's cgroup, or with `id` a container's: it is next to the pod's if only the kubelet has the driver `systemd`."""

_CONTAINER = re.compile(r"(?:(?:cri-containerd|crio|cri-o|docker|libpod)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?")


class ContainerCgroup(NamedTuple):
    """A container's cgroup: the pod's uid, the container's id, and the cgroup's path below the mount.

    `pod` is 32 hexadecimal digits for a static pod. `path` ends at the container. `version` is the cgroup version: 2,
    or 1 for a path in the freezer hierarchy.
    """

    pod: str
    container: str
    path: str
    version: int

    @property
    def reachable(self) -> bool:
        """Whether this process can use the path. A path outside its cgroup namespace contains `..`."""
        return ".." not in self.path.split("/")


def pod(name: str) -> str:
    """Return a pod's uid by the name of its cgroup's folder, or of a container's next to it; else empty."""
    match = _POD.fullmatch(name)
    return _dashed(match["uid"]) if match else ""


def is_static(uid: str) -> bool:
    """Whether a uid in a folder's name is that of a static pod, which has another uid in the API."""
    return "-" not in uid


def place(text: str) -> ContainerCgroup | None:
    """Return the container of the process whose /proc/PID/cgroup has this text; None if it is in no pod.

    Version 2 takes precedence over the freezer hierarchy of version 1. The result is the outermost pod and container,
    because a tenant may be able to create cgroups with any name below its own. If the versions name different
    containers, the result is None: the runtime manages one of them, and a tenant may have moved its process in the
    other one, to pass for another container.
    """
    found = sorted(_places(text[:MAX_TEXT]), key=lambda place: -place.version)
    return found[0] if len({(place.pod, place.container) for place in found}) == 1 else None


def _places(text: str) -> Iterator[ContainerCgroup]:
    for line in text.split("\n"):
        hierarchy, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        version = 2 if hierarchy == "0" and not controllers else 1
        if not colon or (version == 1 and "freezer" not in controllers.split(",")):
            continue
        if one := _place(path, version):
            yield one


def _place(path: str, version: int) -> ContainerCgroup | None:
    uid, parts = "", path.split("/")
    for depth, part in enumerate(parts):
        match = (_CONTAINER if uid else _POD).fullmatch(part)
        if match is not None:
            uid = uid or _dashed(match["uid"])
            if match["id"]:
                return ContainerCgroup(uid, match["id"], "/".join(parts[: depth + 1]), version)
    return None


def _dashed(uid: str) -> str:
    return uid.replace("_", "-")
