"""Finds the ways in which a pod could reach GPUs. One pass looks for everything in the tables of `catalog/`."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple, cast

from webhook.api.fields import entries, flag, items, section, text, texts
from webhook.api.pods import DEFAULT_MESSAGE, MESSAGE, Container, Pod
from webhook.catalog import device_annotations, device_variables, host_paths, volume_drivers
from webhook.catalog.capabilities import CAPABILITIES, capability
from webhook.catalog.host_paths import Access
from webhook.catalog.names import Names
from webhook.model import Malformed, Object, Path


class Opening(NamedTuple):
    """A place in a pod that could give it a GPU: the key or variable (`name`), and its value, None if unknown."""

    path: Path
    name: str
    value: object
    container: Container | None = None


class HostPath(NamedTuple):
    """A hostPath volume: the path on the node (`name`), what containers may do with it, and the volume's name."""

    path: Path
    name: str
    access: Access
    volume: str


Way = Literal[
    "variables",
    "limit_variables",
    "variables_from",
    "privileges",
    "device_mounts",
    "limit_mounts",
    "host_paths",
    "created_paths",
    "message_paths",
    "node_disks",
    "clones",
    "mount_options",
    "volume_drivers",
    "shared_memory",
    "device_annotations",
    "runtime_annotations",
    "placements",
]
"""The kind of such a place: the name of its list in an Exposure.

The shared memory of a node is a way where MPS uses it.
"""

WHERE_EXPOSED: frozenset[Way] = frozenset(
    (
        "privileges",
        "host_paths",
        "created_paths",
        "message_paths",
        "node_disks",
        "clones",
        "mount_options",
        "volume_drivers",
        "runtime_annotations",
    )
)
"""The ways that are refused only in pods that may see a GPU: they have other uses elsewhere."""


class Exposure:
    """The ways in which a pod could reach a GPU: one list for each kind of place. Most pods have none, and no lists."""

    variables: Sequence[Opening] = ()
    limit_variables: Sequence[Opening] = ()
    variables_from: Sequence[Opening] = ()
    privileges: Sequence[Opening] = ()
    device_mounts: Sequence[Opening] = ()
    limit_mounts: Sequence[Opening] = ()
    host_paths: Sequence[HostPath] = ()
    created_paths: Sequence[HostPath] = ()
    message_paths: Sequence[Opening] = ()
    node_disks: Sequence[Opening] = ()
    clones: Sequence[Opening] = ()
    mount_options: Sequence[Opening] = ()
    volume_drivers: Sequence[Opening] = ()
    shared_memory: Sequence[HostPath] = ()
    device_annotations: Sequence[Opening] = ()
    runtime_annotations: Sequence[Opening] = ()
    placements: Sequence[Opening] = ()

    def add(self, way: Way, opening: Opening | HostPath) -> None:
        """Add a place that could give the pod a GPU to the list of its kind (`way`)."""
        vars(self).setdefault(way, []).append(opening)

    @property
    def ways(self) -> Collection[Way]:
        """The kinds of places in this pod that could give it a GPU."""
        return cast("Collection[Way]", vars(self).keys())


def of(pod: Pod) -> Exposure:
    """Find every way to a GPU that the pod opens."""
    exposure = Exposure()
    _annotations(pod, exposure)
    at = pod.at("spec")
    _host_paths(pod, at, exposure)
    _security(pod.spec, at, None, exposure)
    for container in pod.containers:
        _security(container.spec, container.path, container, exposure)
        _environment(container, exposure)
        _mounts(container, exposure)
    return exposure


def _annotations(pod: Pod, exposure: Exposure) -> None:
    for key in filter(device_annotations.adds_devices, pod.annotations):
        if not device_annotations.harmless_devices(key, pod.annotations[key]):
            place = pod.at("metadata", "annotations", key)
            exposure.add("device_annotations", Opening(place, key, pod.annotations[key]))
    for part, there, placing in (
        ("annotations", pod.annotations, device_annotations.PLACEMENT_ANNOTATIONS),
        ("labels", pod.labels, device_annotations.PLACEMENT_LABELS),
    ):
        for key in _NOTED.among(there):
            found = Opening(pod.at("metadata", part, key), key, there[key])
            if key in device_annotations.RUNTIME_ANNOTATIONS:
                exposure.add("runtime_annotations", found)
            if key in placing:
                exposure.add("placements", found)


_NOTED = Names(
    each
    for names in (
        device_annotations.RUNTIME_ANNOTATIONS,
        device_annotations.PLACEMENT_ANNOTATIONS,
        device_annotations.PLACEMENT_LABELS,
    )
    for each in names
)
"""The annotations and labels that are looked at: one search for all of them is cheaper."""


def _host_paths(pod: Pod, at: Path, exposure: Exposure) -> None:
    accesses: Mapping[str, Access] | None = None
    paths: dict[str, str] = {}
    for index, volume in entries(pod.spec, "volumes", at):
        if not _JUDGED.isdisjoint(volume):
            _judged(volume, (*at, "volumes", index), exposure)
        if volume.get("hostPath") is None:
            continue
        place = (*at, "volumes", index, "hostPath")
        source = section(volume, "hostPath", place[:-1])
        path = text(source, "path", place)
        if len(path) > host_paths.LONGEST:  # it would be read again for each template that shares the volumes
            longest = f"must have at most {host_paths.LONGEST} characters, because no node has a longer path"
            raise Malformed((*place, "path"), longest)
        memory, leads = host_paths.shares_memory(path), host_paths.leads_to_gpu(path)
        if not memory and not leads:
            continue
        accesses = _accesses(pod) if accesses is None else accesses
        name = text(volume, "name", place[:-1])
        if leads:
            paths[name] = path
        access = accesses.get(name, Access.NOTHING)
        found = HostPath((*place, "path"), path, access, name)
        if memory:
            exposure.add("shared_memory", found)
        kind = text(source, "type", place)
        created = access > Access.NOTHING and kind in host_paths.CREATING
        if host_paths.leads_to_gpu(path, access):
            exposure.add("host_paths", found)
        elif created and not memory and not host_paths.may_be_made(path, kind):
            exposure.add("created_paths", found)
    if paths:
        for container in pod.containers:
            _messages(container, paths, exposure)


def _messages(container: Container, paths: Mapping[str, str], exposure: Exposure) -> None:
    """Find read-only mounts with the container's message in them, of hostPaths (`paths`, by their volumes).

    Kata Containers, where it shares no file system, writes the message into the source of the first mount at the
    message's path, whatever the mount's options, as root of the node (kata-containers
    src/runtime/virtcontainers/container.go). A writable mount needs no message.
    """
    message: str | None = None
    for index, mount in entries(container.spec, "volumeMounts", container.path):
        at = (*container.path, "volumeMounts", index)
        name = text(mount, "name", at)
        if name not in paths or access_of(mount) is Access.WRITE:
            continue
        if message is None:
            message = f"{host_paths.normal(text(container.spec, MESSAGE, container.path) or DEFAULT_MESSAGE)}/"
        place = text(mount, "mountPath", at)
        if message.startswith(f"{host_paths.normal(place)}/"):  # no copy of the message for each mount
            exposure.add("message_paths", Opening((*at, "mountPath"), paths[name], place, container))


_JUDGED = frozenset(
    (
        *host_paths.NODE_DISKS,
        *host_paths.CLONES,
        *host_paths.SERVERS,
        *volume_drivers.SOURCES,
        *volume_drivers.IN_TREE,
    )
)
"""Sources of volumes, next to hostPath, that are looked at: hardly any volume has one."""


def _judged(volume: Object, at: Path, exposure: Exposure) -> None:
    """Find disks of nodes, and names of servers that a program of the node reads as an option or a path.

    Also find what the node would clone, and drivers that may mount a folder of the node, because of what the pod says
    to them.
    """
    for disk in host_paths.NODE_DISKS:
        if volume.get(disk) is not None:
            exposure.add("node_disks", Opening((*at, disk), disk, None))
    for clone in host_paths.CLONES:
        if volume.get(clone) is not None:
            exposure.add("clones", Opening((*at, clone), clone, None))
    for source, names in host_paths.SERVERS.items():
        if volume.get(source) is None:
            continue
        place, found = (*at, source), section(volume, source, at)
        for name in names:
            if name == host_paths.MONITORS:
                some = [((*place, name, index), "server", value) for index, value in texts(found, name, place)]
            else:
                some = [((*place, name), name, text(found, name, place))]
            for path, what, value in some:
                if host_paths.misread(name, value):
                    exposure.add("mount_options", Opening(path, what, value))
    for source, harmless in volume_drivers.SOURCES.items():
        if volume.get(source) is not None:
            name = text(section(volume, source, at), "driver", (*at, source))
            if name not in harmless:
                exposure.add("volume_drivers", Opening((*at, source), source, name))
    for source, name in volume_drivers.IN_TREE.items():
        if volume.get(source) is not None:
            exposure.add("volume_drivers", Opening((*at, source), source, name))


def _accesses(pod: Pod) -> Mapping[str, Access]:
    """Return the strongest access of the pod's containers to each volume, by the volume's name."""
    found: dict[str, Access] = {}
    for container in pod.containers:
        for index, mount in entries(container.spec, "volumeMounts", container.path):
            name = text(mount, "name", (*container.path, "volumeMounts", index))
            access = access_of(mount)
            found[name] = min(found.get(name, access), access)
    return found


def access_of(mount: Object) -> Access:
    """Return what a container may do with a mount."""
    if mount.get("readOnly") is not True:
        return Access.WRITE
    match mount.get("recursiveReadOnly"):
        case "Enabled":
            return Access.READ_ALL
        case "IfPossible":
            return Access.READ_IF_POSSIBLE
        case _:
            return Access.READ


def _security(holder: Object, at: Path, container: Container | None, exposure: Exposure) -> None:
    """Find the privileges in a security context. In the context of a whole pod, only `windowsOptions` can give any."""
    if holder.get("securityContext") is None:
        return
    security = section(holder, "securityContext", at)
    if _GIVING.isdisjoint(security):
        return
    at = (*at, "securityContext")
    if security.get("windowsOptions") is not None:
        windows = section(security, "windowsOptions", at)
        if flag(windows, "hostProcess", (*at, "windowsOptions")):
            place = (*at, "windowsOptions", "hostProcess")
            exposure.add("privileges", Opening(place, "hostProcess", True, container))
    if security.get("privileged") is not None and flag(security, "privileged", at):
        exposure.add("privileges", Opening((*at, "privileged"), "privileged", True, container))
    capabilities = section(security, "capabilities", at)
    if "add" not in capabilities:
        return
    at = (*at, "capabilities")
    for index, name in texts(capabilities, "add", at):
        if capability(name) in CAPABILITIES:
            exposure.add("privileges", Opening((*at, "add", index), name, name, container))


_GIVING = frozenset(("windowsOptions", "privileged", "capabilities"))
"""The fields of a security context that may give privileges."""


def _environment(container: Container, exposure: Exposure) -> None:
    spec, at = container.spec, (*container.path, "env")
    if spec.get("env") is not None:
        listed, named = items(spec, "env", container.path), device_variables.NAMED_VARIABLES
        length, starts = named.length, named.starts
        try:  # no calls: this runs for every variable of every pod
            likely = [index for index, entry in enumerate(listed) if entry["name"][:length] in starts]
        except (KeyError, TypeError):
            entry_list = entries(spec, "env", container.path)
            index = next(index for index, entry in entry_list if not isinstance(entry.get("name"), str))
            raise Malformed((*at, index, "name"), "must be a string") from None
        for index in likely:
            entry = listed[index]
            if (name := entry["name"]) in named:
                value = None if entry.get("valueFrom") else text(entry, "value", (*at, index))
                way: Way = "variables" if name in device_variables.DEVICE_VARIABLES else "limit_variables"
                exposure.add(way, Opening((*at, index), name, value, container))
    if spec.get("envFrom") is not None:
        for index, entry in entries(spec, "envFrom", container.path):
            place = (*container.path, "envFrom", index)
            prefix = text(entry, "prefix", place)
            if device_variables.may_open(prefix):
                exposure.add("variables_from", Opening(place, prefix, None, container))


_LIMITS = (*host_paths.LIMIT_MOUNTS, *host_paths.PLUGIN_MOUNTS)


def _mounts(container: Container, exposure: Exposure) -> None:
    if not _some_may_lead(container):
        return
    for at, place in container.places:
        if not _may_lead(place):
            continue
        normal = host_paths.normal(place)
        # The toolkit reads only mounts of /dev/null (internal/config/image/cuda_image.go), so no message.
        if host_paths.asks_for_device(normal) and at[-1] != MESSAGE:
            exposure.add("device_mounts", Opening(at, place, place, container))
        elif normal == "/etc" or host_paths.within(normal, _LIMITS):
            exposure.add("limit_mounts", Opening(at, place, place, container))


def _some_may_lead(container: Container) -> bool:
    """Whether some place in a container may lead to a GPU, or lift a limit. One search is cheaper than one for each."""
    spec, at = container.spec, container.path
    try:
        places = [mount["mountPath"] for mount in items(spec, "volumeMounts", at)]
        if spec.get("volumeDevices") is not None:
            places += [device["devicePath"] for device in items(spec, "volumeDevices", at)]
        if (message := spec.get(MESSAGE)) is not None:
            places.append(message)
        return _may_lead("\n".join(places))
    except (KeyError, TypeError):  # `places` says which of them is malformed
        return True


def _may_lead(places: str) -> bool:
    """Whether some of these places, one a line, may lead somewhere, as they are written."""
    for part in _PARTS:  # no generator: this runs for every container of every pod
        if part in places:
            return True
    return "etc" in places and _ETC.search(places) is not None


_PARTS = ("nvidia-container", "..", *host_paths.LIMIT_PARTS)
"""A place that leads somewhere has one of these texts in it, or ends in a folder `etc`."""


_ETC = re.compile(r"etc[/.]*$", re.MULTILINE)
