"""Reads ResourceSlices: the devices that each driver offers."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from webhook.api.devices import GROUP, MEMORY
from webhook.api.lenient import mapping, mappings, string
from webhook.api.resources import Resource
from webhook.facts.kind import Fact, Reach, Table
from webhook.facts.parts import count
from webhook.model import Object
from webhook.policy.model import Policy


class Device(NamedTuple):
    """A device that a driver offers in a ResourceSlice. `node` is empty if several nodes can use it.

    `memory` is in MiB, 0 if unknown. The device is `shared` if several claims may have it at once, and `uncounted` if a
    claim that does not request memory takes none of it (resource/v1 Device, CapacityRequestPolicy).
    """

    driver: str
    node: str
    name: str
    product: str = ""
    memory: int = 0
    shared: bool = False
    uncounted: bool = False


SLICE = (GROUP, "ResourceSlice")

RESOURCES = (Resource(GROUP, "v1", "resourceslices", SLICE[1]),)
TABLE = Table[str, tuple[Device, ...]]("devices")
REACH = Reach.EVERYWHERE


def needed(policy: Policy) -> bool:
    """For pools of device classes; without such a pool, no ResourceSlices are read."""
    return policy.has_device_pools


def read(item: Object, _: str, name: str) -> Fact:
    """Read the devices of a slice."""
    return TABLE.row(name, tuple(_devices(mapping(item.get("spec")))))


def _devices(spec: Mapping[str, Any]) -> Iterator[Device]:
    driver, node = string(spec.get("driver")), string(spec.get("nodeName"))
    for item in mappings(spec.get("devices")):
        # In v1beta1 everything but the name was under `basic`.
        said = {**item, **mapping(item.get("basic"))}
        attributes = {
            name.rpartition("/")[2]: mapping(value) for name, value in mapping(said.get("attributes")).items()
        }
        sizes = {name.rpartition("/")[2]: mapping(value) for name, value in mapping(said.get("capacity")).items()}
        memory, shared = sizes.get(MEMORY, {}), said.get("allowMultipleAllocations") is True
        policy = mapping(memory.get("requestPolicy"))
        yield Device(
            driver,
            string(said.get("nodeName")) or node,
            string(item.get("name")),
            # NVIDIA's driver names a card as in `nvidia-smi`; GPU Feature Discovery writes the same with dashes.
            "-".join(string(attributes.get("productName", {}).get("string")).split()),
            count(memory.get("value", 0)) // 2**20,
            shared,
            shared and (not memory or ("default" in policy and count(policy["default"]) == 0)),
        )
