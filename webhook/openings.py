"""Which doors a pod opens: everything the tables name, found in one pass."""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from webhook import doors
from webhook.model import Malformed, Object, Path
from webhook.targets import Container, Pod, entries, flag, section, text, texts


class Door(Enum):
    """The doors, by where they are in a pod."""

    VARIABLE = auto()
    LIMIT_VARIABLE = auto()
    VARIABLES_FROM = auto()
    PRIVILEGE = auto()
    DEVICE_MOUNT = auto()
    LIMIT_MOUNT = auto()
    HOST_PATH = auto()
    DEVICE_ANNOTATION = auto()
    PLACEMENT_ANNOTATION = auto()


class Opening(NamedTuple):
    """One place where a pod opens a door: the name by which it does, and its value, None where that is not known."""

    path: Path
    name: str
    value: object
    container: Container | None = None


Openings = Mapping[Door, tuple[Opening, ...]]
Add = Callable[[Door, Opening], None]


@lru_cache(maxsize=1)  # as with asks: all rules judge one pod before the next
def openings(pod: Pod) -> Openings:
    """Every door that the pod opens; those it leaves shut are not in the map."""
    found: dict[Door, tuple[Opening, ...]] = {}

    def add(door: Door, opening: Opening) -> None:
        found[door] = (*found.get(door, ()), opening)

    _annotations(pod, add)
    at = pod.at("spec")
    for index, volume in entries(pod.spec, "volumes", at):
        if volume.get("hostPath") is not None:
            place = (*at, "volumes", index, "hostPath")
            path = text(section(volume, "hostPath", place[:-1]), "path", place)
            if doors.leads_to_gpu(path):
                add(Door.HOST_PATH, Opening((*place, "path"), path, path))
    _security(pod.spec, at, None, add)
    for container in pod.containers:
        _security(container.spec, container.path, container, add)
        _environment(container, add)
        _mounts(container, add)
    return found


def _annotations(pod: Pod, add: Add) -> None:
    for key, value in pod.annotations.items():
        if doors.adds_devices(key):
            if doors.harmless_devices(key, value):
                continue
            door = Door.DEVICE_ANNOTATION
        elif key in doors.PLACEMENT_ANNOTATIONS:
            door = Door.PLACEMENT_ANNOTATION
        else:
            continue
        add(door, Opening(pod.at("metadata", "annotations", key), key, value))


def _security(holder: Object, at: Path, container: Container | None, add: Add) -> None:
    """Look at the security context of a pod or a container; a pod's own has no more than Windows' part."""
    if holder.get("securityContext") is None:
        return
    security, at = section(holder, "securityContext", at), (*at, "securityContext")
    if security.get("windowsOptions") is not None:
        windows = section(security, "windowsOptions", at)
        if flag(windows, "hostProcess", (*at, "windowsOptions")):
            add(Door.PRIVILEGE, Opening((*at, "windowsOptions", "hostProcess"), "hostProcess", True, container))
    if security.get("privileged") is not None and flag(security, "privileged", at):
        add(Door.PRIVILEGE, Opening((*at, "privileged"), "privileged", True, container))
    capabilities, at = section(security, "capabilities", at), (*at, "capabilities")
    for index, name in texts(capabilities, "add", at):
        if doors.capability(name) in doors.CAPABILITIES:
            add(Door.PRIVILEGE, Opening((*at, "add", index), name, name, container))


def _environment(container: Container, add: Add) -> None:
    spec, at = container.spec, (*container.path, "env")
    if spec.get("env") is not None:
        names, prefixes = doors.NAMED_VARIABLES, doors.NAMED_PREFIXES
        for index, entry in entries(spec, "env", container.path):
            name = entry.get("name")
            if type(name) is not str:  # spelt out: this runs for every variable of every pod
                raise Malformed((*at, index, "name"), "must be a string")
            if name in names or name.startswith(prefixes):
                value = None if entry.get("valueFrom") else text(entry, "value", (*at, index))
                door = Door.VARIABLE if name in doors.DEVICE_VARIABLES else Door.LIMIT_VARIABLE
                add(door, Opening((*at, index), name, value, container))
    if spec.get("envFrom") is not None:
        for index, entry in entries(spec, "envFrom", container.path):
            place = (*container.path, "envFrom", index)
            prefix = text(entry, "prefix", place)
            if doors.may_open(prefix):
                add(Door.VARIABLES_FROM, Opening(place, prefix, None, container))


def _mounts(container: Container, add: Add) -> None:
    for field, key in (("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")):
        if container.spec.get(field) is None:
            continue
        for index, mount in entries(container.spec, field, container.path):
            path = mount.get(key)
            if not isinstance(path, str):
                raise Malformed((*container.path, field, index, key), "must be a string")
            # Most of all mounts lead nowhere, and this is cheaper than to write each of them one way.
            if not ("nvidia-container" in path or "ld.so" in path or ".." in path or path.rstrip("/.").endswith("etc")):
                continue
            normal = doors.normal(path)
            if doors.within(normal, doors.DEVICE_MOUNTS):
                add(Door.DEVICE_MOUNT, Opening((*container.path, field, index, key), path, path, container))
            elif normal == "/etc" or doors.within(normal, doors.LIMIT_MOUNTS):
                add(Door.LIMIT_MOUNT, Opening((*container.path, field, index, key), path, path, container))
