"""Decodes the sections `sharing.timeSlicing` and `sharing.mps`, and their entries."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

from webhook.deviceplugin.decoders import Decoded, Decoding, Fault, _key, integer, must, resource_name, truth
from webhook.deviceplugin.devices import device_list
from webhook.model import Path


class ReplicatedResource(NamedTuple):
    """An entry of `resources` (api/config/v1/replicas.go). A field is None if it is absent or unreadable.

    `name` and `rename` have the plugin's prefix. The plugin ignores `rename` and `devices`
    (DisableResourceNamingInConfig). `replicas` is a number of any sign.
    """

    path: Path
    name: Decoded | None = None
    replicas: Decoded | None = None
    rename: Decoded | None = None
    devices: Decoded | None = None


@dataclass(slots=True)
class Section:
    """The map `sharing.timeSlicing` or `sharing.mps`.

    `path` is the path of the spelling of its key that was read last.
    """

    path: Path
    rename_by_default: Decoded | None = None
    fail_requests: Decoded | None = None
    """`failRequestsGreaterThanOne`. By default MPS refuses such requests, and time-slicing does not."""
    entries: tuple[ReplicatedResource, ...] = ()
    capacity: tuple[ReplicatedResource, ...] = ()
    """The Go slice behind `entries` up to its capacity. A later spelling's list is decoded over it (encoding/json)."""

    @property
    def replicated(self) -> bool:
        """Whether any resource has more than one replica."""
        return any(entry.replicas and entry.replicas.value > 1 for entry in self.entries)


def decode_section(
    value: Any, path: Path, previous: Section | None, *, pointer: bool
) -> Generator[Fault, None, Section | None]:
    """Decode a section, on top of the one from an earlier spelling of its key.

    A null removes it only for a `pointer`.
    """
    if value is None and pointer:  # null sets the pointer to nil
        return None
    if value is not None and not isinstance(value, dict):
        yield Fault(path, must(path, value, "a map"))
        return previous
    fields = value or {}
    section = Section(path, capacity=previous.capacity if previous else ())
    if "renameByDefault" in fields:
        rename_by_default = yield from truth(fields["renameByDefault"], (*path, "renameByDefault"), None)
        section.rename_by_default = rename_by_default or (previous.rename_by_default if previous else None)
    if "failRequestsGreaterThanOne" in fields:
        at = (*path, "failRequestsGreaterThanOne")
        section.fail_requests = yield from truth(fields[at[-1]], at, None)
    elif previous:
        section.fail_requests = previous.fail_requests
    listed = fields.get("resources")
    if not isinstance(listed, list) or not listed:
        at = (*path, "resources") if listed else path
        yield Fault(at, "the section needs a list `resources` of entries with `name` and `replicas`")
        return section
    capacity = list(section.capacity)
    for index, item in enumerate(listed):
        at = (*path, "resources", index)
        if index == len(capacity):
            capacity.append(ReplicatedResource(at))
        capacity[index] = yield from _entry(item, at, capacity[index])
    section.entries, section.capacity = tuple(capacity[: len(listed)]), tuple(capacity)
    return section


def _entry(value: Any, path: Path, previous: ReplicatedResource) -> Generator[Fault, None, ReplicatedResource]:
    if value is not None and not isinstance(value, dict):
        yield Fault(path, must(path, value, "a map"))
        return previous
    fields = value or {}
    entry = previous._replace(path=path)
    if "name" not in fields:
        yield Fault(path, "the entry has no name; add one such as nvidia.com/gpu")
    else:
        entry = entry._replace(name=(yield from resource_name(fields["name"], (*path, "name"))))
    if "devices" in fields:
        entry = entry._replace(devices=(yield from device_list(fields["devices"], (*path, "devices"))))
    if "replicas" not in fields:
        yield Fault((*path, "replicas"), "the entry has no number of replicas; add at least 2")
    else:
        entry = entry._replace(
            replicas=(yield from _replicas(fields["replicas"], (*path, "replicas"), previous.replicas))
        )
    if "rename" in fields:
        entry = entry._replace(rename=(yield from resource_name(fields["rename"], (*path, "rename"))))
    return entry


def _replicas(value: Any, path: Path, previous: Decoded | None) -> Decoding:
    number = integer(value)
    if value is None and previous:
        return previous
    if value is None:
        yield Fault(path, "the entry has no number of replicas; add at least 2")
    elif number is None:
        yield Fault(
            path,
            must(path, value, "a whole number" if not isinstance(value, int | float) else "a whole number of 64 bits"),
        )
    elif number < 2:
        yield Fault(path, f"{_key(path)} must be at least 2, not {number}")
    return None if number is None else Decoded(number, path)


SECTION_KEYS = ("renameByDefault", "failRequestsGreaterThanOne", "resources")
ENTRY_KEYS = ("name", "rename", "devices", "replicas")
"""The keys of a section and of its entries. Their case matters (replicas.go)."""
