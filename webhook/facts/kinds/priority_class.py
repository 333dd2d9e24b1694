"""Reads PriorityClasses: their values, and whether their pods evict others."""

from typing import NamedTuple

from webhook.api.resources import Resource
from webhook.facts.kind import Fact, Part, Table
from webhook.model import Object


class PriorityClass(NamedTuple):
    """A PriorityClass: its value, whether its pods evict others, and whether it is the cluster's default."""

    value: int
    preempts: bool = True
    default: bool = False


SYSTEM_CLASS = PriorityClass(2_000_000_000)
"""The lowest value of `system-*` classes, which every cluster has (kubernetes pkg/apis/scheduling/v1/helpers.go)."""

RESOURCES = (Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass"),)
TABLE = Table[str, PriorityClass]("priority_classes")


def read(item: Object, _: str, name: str) -> Fact:
    """Read a class."""
    value, never = item.get("value"), item.get("preemptionPolicy") == "Never"
    default = item.get("globalDefault") is True
    return TABLE.row(name, PriorityClass(value if type(value) is int else 0, not never, default))


def kept(item: Object) -> Part:
    """Keep the fields that `read` reads. A PriorityClass has no spec."""
    return {key: item[key] for key in ("value", "preemptionPolicy", "globalDefault") if key in item}
