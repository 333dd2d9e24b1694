"""Reads the names of containers by id, from log files or from the status of pods."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from webhook.api.lenient import mapping, mappings, string
from webhook.model import Object

_LOG = re.compile(r"(?P<pod>[a-z0-9.-]+)_(?P<namespace>[a-z0-9-]+)_(?P<container>[a-z0-9-]+)-(?P<id>[0-9a-f]{64})\.log")

STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


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


def by_status(pods: Iterable[Object]) -> Mapping[str, tuple[ContainerName, Object]]:
    """Read the names of containers by id, each with its pod, from the pods' status.

    An id is `containerd://0123...` (k8s.io/api core/v1 types.go, ContainerStatus). Ended containers are left out.
    """
    return {container: (name, pod) for pod in pods for container, name in _statuses(pod)}


def _statuses(pod: Object) -> Iterator[tuple[str, ContainerName]]:
    metadata, status = mapping(pod.get("metadata")), mapping(pod.get("status"))
    namespace, name = string(metadata.get("namespace")), string(metadata.get("name"))
    for kind in STATUSES:
        for each in mappings(status.get(kind)):
            container = string(each.get("containerID")).rpartition("://")[2]
            if container and "terminated" not in mapping(each.get("state")):
                yield container, ContainerName(namespace, name, string(each.get("name")))


def uid(pod: Object) -> str:
    """Return a pod's uid."""
    return string(mapping(pod.get("metadata")).get("uid"))
