"""Reads ResourceClaims and their templates: the devices that each requests."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from webhook.api.devices import CLAIM, DEVICES, GROUP, MEMORY, TEMPLATE, DeviceRequest, device_requests
from webhook.api.fields import MAX_NAME
from webhook.api.lenient import mapping
from webhook.api.resources import Resource
from webhook.facts.kind import Fact, Part, Reach, Table
from webhook.model import Malformed, Object


class ClaimedRequest(NamedTuple):
    """The part of a stored claim's `DeviceRequest` that rules read.

    `mib` is the memory it names, None if it names none.

    Nothing else is kept, because a claim can have a megabyte of selectors, and anybody may create many claims.
    """

    device_class: str
    number: int = 1
    mib: int | None = None
    place: int = 0
    admin: bool = False
    apart: int | None = None


MAX_REQUESTS = 32 * 8
"""Maximum requests of a claim, with all alternatives (k8s.io/api resource/v1 types.go, DeviceRequestsMaxSize and
FirstAvailableDeviceRequestMaxSize). A claim with more, or with a name of a class that is too long, counts as unknown;
no API server stores one."""

MAX_ALIKE = 8
"""Maximum requests of a claim that shares them with claims that request the same."""

RESOURCES = (
    Resource(GROUP, "v1", "resourceclaims", CLAIM, namespaced=True),
    Resource(GROUP, "v1", "resourceclaimtemplates", TEMPLATE, namespaced=True),
)
_OF_A_REQUEST = (
    *("name", "deviceClassName", "allocationMode", "adminAccess", "count", "capacity.requests"),
    "derivedAttributes[].name",
)
_OF_DEVICES = (
    *(f"requests[].{field}" for field in _OF_A_REQUEST),
    *(f"requests[].exactly.{field}" for field in _OF_A_REQUEST),
    *(f"requests[].firstAvailable[].{field}" for field in _OF_A_REQUEST),
    *("constraints[].distinctAttribute", "constraints[].requests"),
)
FIELDS = (
    *(f"spec.devices.{field}" for field in _OF_DEVICES),
    *(f"spec.spec.devices.{field}" for field in _OF_DEVICES),  # of a template
)
TABLE = Table[tuple[str, str, str], tuple[ClaimedRequest, ...]]("claimed")
REACH = Reach.EVERYWHERE


def read(item: Object, namespace: str, name: str) -> Fact:
    """Read what a claim or a template requests, with all alternatives; None if it has a wrong shape or is too large."""
    return TABLE.row((item["kind"], namespace, name), _claimed(item["kind"], item))


def kept(item: Object) -> Part:
    """Keep what `read` reads of the spec. Selectors and a template's labels can have a megabyte in every claim."""
    whole: Any = mapping(item.get("spec"))
    if item.get("kind") == TEMPLATE:
        return {"spec": {"spec": _devices_of(mapping(whole.get("spec")))} if "spec" in whole else {}}
    return {"spec": _devices_of(whole)}


def _devices_of(spec: Object) -> Object:
    devices = spec.get("devices")
    if not isinstance(devices, dict):
        return {"devices": devices} if "devices" in spec else {}
    return {"devices": {key: _part(key, devices[key]) for key in ("requests", "constraints") if key in devices}}


_UNREAD = frozenset(("selectors", "tolerations"))

_INNER = frozenset(("requests", "exactly", "firstAvailable"))


def _part(key: str, value: Any) -> Any:
    """Return the part of a field of a claim that facts need: requests without selectors, and memory of capacities."""
    if isinstance(value, list):
        return [_part(key, each) for each in value]
    if not isinstance(value, dict):
        return value
    if key == "capacity":
        sizes = mapping(value.get("requests"))
        return {"requests": {name: size for name, size in sizes.items() if name.rpartition("/")[2] == MEMORY}}
    if key == "derivedAttributes":
        return {"name": value.get("name")}
    return {name: _part(name, each) for name, each in value.items() if name not in _UNREAD} if key in _INNER else value


def _claimed(kind: str, item: Object) -> tuple[ClaimedRequest, ...] | None:
    base = DEVICES[GROUP, kind]
    devices = item
    for key in base:
        devices = mapping(devices.get(str(key)))
    try:
        requests = _reduced(device_requests(devices, base))
    except Malformed:
        return None
    if len(requests) > MAX_REQUESTS or any(len(one.device_class) > MAX_NAME for one in requests):
        return None
    return _alike(requests) if len(requests) <= MAX_ALIKE else requests


def _reduced(requests: Iterable[DeviceRequest]) -> tuple[ClaimedRequest, ...]:
    """Return the requests that name a class, each once. Requests for one class share its name."""
    names: dict[str, str] = {}
    found = (
        ClaimedRequest(names.setdefault(name, name), one.number, one.mib, one.place, one.admin, one.apart)
        for one in requests
        if (name := one.device_class)
    )
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=1024)  # a template makes a claim for each pod, and all of them request the same
def _alike(requests: tuple[ClaimedRequest, ...]) -> tuple[ClaimedRequest, ...]:
    return requests
