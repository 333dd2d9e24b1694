"""Reads DeviceClasses: their selectors, and the extended resource by which pods can request each."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from webhook.api.devices import CLASS, GROUP
from webhook.api.lenient import mapping, mappings, string
from webhook.api.resources import Resource
from webhook.facts.kind import Fact, Reach, Table
from webhook.model import Object


class DeviceClass(NamedTuple):
    """A DeviceClass: the text of its selectors, and the extended resource by which pods can request it, or empty.

    A device of the class meets all selectors, so they are joined as one expression.
    """

    selectors: str
    resource: str = ""


RESOURCES = (Resource(GROUP, "v1", "deviceclasses", CLASS),)
TABLE = Table[str, DeviceClass]("device_classes")
REACH = Reach.EVERYWHERE


def read(item: Object, _: str, name: str) -> Fact:
    """Read a class."""
    spec = mapping(item.get("spec"))
    return TABLE.row(name, DeviceClass(" && ".join(_selectors(spec)), string(spec.get("extendedResourceName"))))


def _selectors(spec: Mapping[str, Any]) -> Iterator[str]:
    for selector in mappings(spec.get("selectors")):
        yield string(mapping(selector.get("cel")).get("expression"))
