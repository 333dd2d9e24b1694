"""ResourceClaims and their templates: the devices that each requests."""

import json
from functools import lru_cache

from webhook.api.devices import CLAIM, DEVICES, GROUP, TEMPLATE, DeviceRequest, device_requests
from webhook.api.lenient import mapping
from webhook.api.resources import Resource
from webhook.facts import parts
from webhook.facts.kind import Fact, Part, Reach, Table
from webhook.model import Malformed, Object, Path

RESOURCES = (
    Resource(GROUP, "v1", "resourceclaims", CLAIM, namespaced=True),
    Resource(GROUP, "v1", "resourceclaimtemplates", TEMPLATE, namespaced=True),
)
TABLE = Table[tuple[str, str, str], tuple[DeviceRequest, ...]]("claimed")
REACH = Reach.EVERYWHERE


def read(item: Object, namespace: str, name: str) -> Fact:
    """Read what a claim or a template requests, with all alternatives; None if it has a wrong shape."""
    return TABLE.row((item["kind"], namespace, name), _claimed(item["kind"], item))


def kept(item: Object) -> Part:
    """Keep the spec without the configuration of drivers."""
    return {"spec": parts.without_config(mapping(item.get("spec")))}


def _claimed(kind: str, item: Object) -> tuple[DeviceRequest, ...] | None:
    base = DEVICES[GROUP, kind]
    devices = item
    for key in base:
        devices = mapping(devices.get(str(key)))
    try:
        text = json.dumps({key: devices.get(key) for key in _READ}, sort_keys=True)
    except (TypeError, ValueError, RecursionError):  # only in files: no API server stores such a value
        return _requests(devices, base)
    return _alike(text, base) if len(text) <= MAX_ALIKE else _requests(devices, base)


_READ = ("requests", "constraints")
"""The parts of a claim's `devices` that define what it requests."""

MAX_ALIKE = 2048
"""Maximum characters of requests, as JSON, whose parsed form is shared between claims."""


@lru_cache(maxsize=1024)  # a template makes a claim for each pod, and all of them request the same
def _alike(text: str, base: Path) -> tuple[DeviceRequest, ...] | None:
    return _requests(json.loads(text), base)


def _requests(devices: Object, base: Path) -> tuple[DeviceRequest, ...] | None:
    try:
        return tuple(one for one in device_requests(devices, base) if one.device_class)
    except Malformed:
        return None
