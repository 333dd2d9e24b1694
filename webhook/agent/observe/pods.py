"""Reads the names of containers by id, from log files or from the status of pods."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from webhook.api.lenient import mapping, mappings, string
from webhook.model import Object

_LOG = re.compile(r"(?P<pod>[a-z0-9.-]+)_(?P<namespace>[a-z0-9-]+)_(?P<container>[a-z0-9-]+)-(?P<id>[0-9a-f]{64})\.log")

_LINK = re.compile(r"(?:.*/)?[^/_]+_[^/_]+_(?P<uid>[^/_]+)/[^/]+/(?P<restarts>[0-9]{1,9})\.log")

UNNAMED = "(unknown)"
"""The name of a container of which only the pod is known. No container may have this name."""

STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")

FIELDS = tuple(f"status.{kind}[].{field}" for kind in STATUSES for field in ("name", "containerID", "state"))
"""The fields of a pod's status that are read, next to its phase."""


class ContainerName(NamedTuple):
    """A container's namespace, pod and name."""

    namespace: str
    pod: str
    container: str


def by_logs(files: Iterable[str]) -> Mapping[str, ContainerName]:
    """Read the names of containers by id from the names of log files in /var/log/containers.

    The kubelet cuts a long file name at 255 bytes, within the id (kubernetes pkg/kubelet/kuberuntime/legacy.go). Such a
    file is left out.
    """
    matches = (_LOG.fullmatch(file) for file in files)
    return {
        match["id"]: ContainerName(match["namespace"], match["pod"], match["container"]) for match in matches if match
    }


def unreported(
    pods: Iterable[Object], names: Mapping[str, ContainerName], links: Mapping[str, str]
) -> Mapping[str, tuple[ContainerName, Object]]:
    """Return the started containers that are not in their pods' status yet, by id, each with its pod.

    The kubelet reports a container only when its postStart hook has ended and the pod's other containers have started,
    however long that takes. The container's log exists before that (kubernetes
    pkg/kubelet/kuberuntime/kuberuntime_container.go, startContainer). `links` has the log's path by id,
    `/var/log/pods/NAMESPACE_POD_UID/CONTAINER/RESTARTS.log` (helpers.go). Only a container's newest log counts.
    """
    alive = running(pods)
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for container, link in links.items():
        if (match := _LINK.fullmatch(link)) and match["uid"] in alive:
            key = match["uid"], names[container].container
            newest[key] = max(newest.get(key, (-1, "")), (int(match["restarts"]), container))
    reported = {container for pod in alive.values() for container, _, _ in _statuses(pod)}
    return {each: (names[each], alive[of]) for (of, _), (_, each) in newest.items() if each not in reported}


def running(pods: Iterable[Object]) -> Mapping[str, Object]:
    """Return the pods that have not ended, by uid."""
    return {uid(pod): pod for pod in pods if mapping(pod.get("status")).get("phase") not in ("Succeeded", "Failed")}


def by_status(pods: Iterable[Object]) -> Mapping[str, tuple[ContainerName, Object]]:
    """Read the names of containers by id, each with its pod, from the pods' status.

    An id is `containerd://0123...` (k8s.io/api core/v1 types.go, ContainerStatus). Ended containers are left out.
    """
    return {container: (name, pod) for pod in pods for container, name, ended in _statuses(pod) if not ended}


def statuses(status: Object) -> Object:
    """Return the names, ids and states of the started containers in a pod's status."""
    return {
        kind: [
            {**each, "state": dict.fromkeys(mapping(each.get("state")))}
            for each in mappings(status.get(kind))
            if each.get("containerID")
        ]
        for kind in STATUSES
    }


def _statuses(pod: Object) -> Iterator[tuple[str, ContainerName, bool]]:
    """Yield the id and the name of each container in a pod's status, and whether it has ended."""
    status = mapping(pod.get("status"))
    for kind in STATUSES:
        for each in mappings(status.get(kind)):
            container = string(each.get("containerID")).rpartition("://")[2]
            if container:
                yield container, named(pod, string(each.get("name"))), "terminated" in mapping(each.get("state"))


def named(pod: Object, container: str) -> ContainerName:
    """Return the names of a container of a pod."""
    metadata = mapping(pod.get("metadata"))
    return ContainerName(string(metadata.get("namespace")), string(metadata.get("name")), container)


def uid(pod: Object) -> str:
    """Return a pod's uid."""
    return string(mapping(pod.get("metadata")).get("uid"))
