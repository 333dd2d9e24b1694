"""Decides which device classes are for GPUs: by the policy, by the facts, by known names."""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache

from webhook.catalog import gpu_requests
from webhook.facts.kinds.resource_slice import Device
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy


class Class(Enum):
    """The purpose of a device class: GPUs, other devices, the daemons of a driver, or unknown."""

    GPU = "GPU"
    OTHER = "other"
    DAEMON = "daemon"
    UNKNOWN = "unknown"

    @property
    def without_gpu(self) -> bool:
        """Whether the devices of the class are known to give no GPU."""
        return self in (Class.OTHER, Class.DAEMON)


def sort_of(name: str, policy: Policy, facts: Facts) -> Class:
    """Return the purpose of a device class. The policy decides first, then the drivers that the class selects."""
    forms = policy.forms
    if policy.pools_of_class(name) or (forms.classes_named and name in forms.device_classes):
        return Class.GPU
    if name in forms.daemon_classes:
        return Class.DAEMON
    if forms.classes_named:
        return Class.OTHER
    known = facts.device_classes.get(name)
    selectors = known.selectors if known else ""
    if any(_is_named(driver, selectors) for driver in gpu_requests.GPU_CLASSES):
        return Class.GPU
    if name not in forms.device_classes:
        return Class.OTHER
    if name in gpu_requests.GPU_CLASSES:
        return Class.GPU
    return Class.OTHER if _required(selectors) in gpu_requests.OTHER_CLASSES else Class.UNKNOWN


def _is_named(driver: str, selectors: str) -> bool:
    """Whether selectors contain a driver's name in single or double quotes."""
    return f'"{driver}"' in selectors or f"'{driver}'" in selectors


_ONLY = re.compile(r"""\s*device\.driver\s*==\s*(["'])(?P<driver>[^"'\\]+)\1\s*(?:&&|$)""")
"""Matches selectors that begin with a required driver and only add further conditions."""

_LOOSE = re.compile(r"\|\||(?<![.\[])\?")
"""CEL operators after which the driver would no longer be required. In `.?` and `[?` the mark is no operator."""


def _required(selectors: str) -> str:
    """Return the driver that selectors require of every device; empty if they only name one, or do so further on."""
    only = _ONLY.match(selectors)
    return only["driver"] if only and not _LOOSE.search(selectors) else ""


def drivers_of(name: str, facts: Facts) -> frozenset[str]:
    """Return the drivers of the known devices that a class may select, by the drivers that its selectors name.

    A class that names none of these drivers may select any device, unless it requires a driver without devices.
    """
    known = facts.device_classes.get(name)
    drivers = frozenset(_drivers(facts))
    if known is not None and (only := _required(known.selectors)):
        return drivers & {only}
    named = {each for each in drivers if known is not None and _is_named(each, known.selectors)}
    return frozenset(named) or drivers


def devices_of(name: str, facts: Facts) -> tuple[Device, ...]:
    """Return the known devices that a class may select."""
    drivers = drivers_of(name, facts)
    return tuple(device for device in facts.devices if device.driver in drivers)


def uncounted(name: str, facts: Facts) -> bool:
    """Return whether a claim for a class may share a device without using up any of the device's memory."""
    drivers = _drivers(facts)
    return any(drivers[driver] for driver in drivers_of(name, facts))


def unjudged(policy: Policy, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield each class that offers GPUs as a resource which the policy does not know, with the resource.

    An unknown class counts if some of the known devices that it may select are GPUs.
    """
    for name, known in facts.device_classes.items():
        if known.resource and known.resource not in policy.gpu_resources:
            sort = sort_of(name, policy, facts)
            drivers = drivers_of(name, facts) if sort is Class.UNKNOWN else ()
            if sort is Class.GPU or any(driver in gpu_requests.GPU_CLASSES for driver in drivers):
                yield name, known.resource


@lru_cache(maxsize=2)  # once per snapshot, which may have ten thousand devices
def _drivers(facts: Facts) -> Mapping[str, bool]:
    """Return the drivers of the known devices, and for each whether one of its devices is `uncounted`."""
    found: dict[str, bool] = {}
    for device in facts.devices:
        found[device.driver] = found.get(device.driver, False) or device.uncounted
    return found
