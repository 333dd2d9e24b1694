"""Decodes the values of a configuration by their Go types, as the device plugin does.

A decoder yields the faults that would keep the plugin from starting, and returns the value.
"""

import re
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from webhook.api.duration import MAX_LENGTH, nanoseconds
from webhook.model import Path
from webhook.text.words import shown


class Fault(NamedTuple):
    """A fault that would keep the plugin from starting: its place in the configuration, and the reason."""

    path: Path
    message: str


class Decoded(NamedTuple):
    """A value as the plugin decodes it, and its path in the text."""

    value: Any
    path: Path


Decoding = Generator[Fault, None, Decoded | None]
"""Yields the faults, and returns the decoded value."""

Read = Callable[[Any, Path, Decoded | None], Decoding]
"""Takes the value, its path as written, and the value that an earlier spelling left."""


def _key(path: Path) -> str:
    """Name a value in a message: by its key, or as an item of a list."""
    return "each item" if isinstance(path[-1], int) else shown(path[-1], quotes=False)


def must(path: Path, value: Any, what: str) -> str:
    """Return the message for a wrong value: the kind of value that it must be (`what`), and the actual one."""
    digits = isinstance(value, str) and value.isdecimal() and "number" in what
    return f"{_key(path)} must be {what}, not {shown(value)}{'; remove the quotes' if digits else ''}"


def text(value: Any, path: Path, _: Decoded | None) -> Decoding:
    """Decode a `*string`. A number or a boolean is a fault."""
    if value is not None and not isinstance(value, str):
        yield Fault(path, must(path, value, "text"))
        return None
    return None if value is None else Decoded(value, path)


def truth(value: Any, path: Path, _: Decoded | None) -> Decoding:
    """Decode a `*bool`. Any other type is a fault."""
    if value is not None and not isinstance(value, bool):
        yield Fault(path, must(path, value, "true or false"))
        return None
    return None if value is None else Decoded(value, path)


def version(value: Any, path: Path, previous: Decoded | None) -> Decoding:
    """Decode the version. sigs.k8s.io/yaml turns a number or a boolean into text.

    A null leaves the version unchanged.
    """
    if isinstance(value, (dict, list)):
        yield Fault(path, must(path, value, "text"))
        return previous
    return previous if value is None else Decoded(value, path)


def required(value: Any, path: Path, previous: Decoded | None) -> Decoding:
    """Decode a `bool`. A null leaves the value unchanged."""
    boolean = yield from truth(value, path, None)
    return boolean or previous


def strategies(value: Any, path: Path, _: Decoded | None) -> Decoding:
    """Decode a string or a list of strings (api/config/v1/flags.go). A null item is an empty string."""
    if value is None:
        return None
    if isinstance(value, str):
        return Decoded((value,), path)
    if not isinstance(value, list) or not all(item is None or isinstance(item, str) for item in value):
        yield Fault(path, must(path, value, "text or a list of texts"))
        return None
    return Decoded(tuple(item or "" for item in value), path)


def channels(value: Any, path: Path, previous: Decoded | None) -> Decoding:
    """Decode a list of integers. A null item keeps the number that an earlier spelling of the key has there."""
    if value is None:
        return None
    if not isinstance(value, list):
        yield Fault(path, must(path, value, "a list of numbers"))
        return previous
    capacity = list(previous.value.capacity) if previous and value else []
    for index, item in enumerate(value):
        number = integer(item)
        if index >= len(capacity):
            capacity.append(0)
        if number is not None:
            capacity[index] = number
        elif item is not None:
            yield Fault((*path, index), must((*path, index), item, "a whole number"))
    return Decoded(Channels(tuple(capacity[: len(value)]), tuple(capacity)), path)


class Channels(NamedTuple):
    """A Go slice of numbers. A later spelling of the key may show numbers again, up to `capacity` (encoding/json)."""

    numbers: tuple[int, ...]
    capacity: tuple[int, ...]


def duration(value: Any, path: Path, previous: Decoded | None) -> Decoding:
    """Decode a duration: a number of nanoseconds, or text such as `60s` or `infinite` (api/config/v1/duration.go)."""
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Decoded(value, path)
    if isinstance(value, str) and len(value) > MAX_LENGTH:
        yield Fault(path, f"{_key(path)} is longer than any duration; shorten it")
        return previous
    try:
        if value != "infinite":
            nanoseconds(value if isinstance(value, str) else "")
    except ValueError:
        yield Fault(path, must(path, value, "a duration such as 60s"))
        return previous
    return Decoded(value, path)


def resources(value: Any, path: Path, _: Decoded | None) -> Decoding:
    """Decode a list of patterns and names.

    The plugin checks the list but does not use it (api/config/v1/resources.go).
    """
    if value is None:
        return None
    if not isinstance(value, list):
        yield Fault(path, must(path, value, "a list"))
        return None
    for index, item in enumerate(value):
        at = (*path, index)
        if item is not None and not isinstance(item, dict):
            yield Fault(at, must(at, item, "a map"))
            continue
        entry = item or {}
        if missing := [key for key in ("pattern", "name") if key not in entry]:
            yield Fault(at, f"the entry has no {' and no '.join(missing)}; add what is missing")
        if not isinstance(entry.get("pattern", ""), str | None):
            yield Fault((*at, "pattern"), must((*at, "pattern"), entry["pattern"], "text"))
        if "name" in entry:
            yield from resource_name(entry["name"], (*at, "name"))
    return Decoded(value, path)


PREFIX = "nvidia.com/"

MAX_NAME = 63
"""Bytes of a resource name, including the prefix (api/config/v1/consts.go)."""

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def resource_name(value: Any, path: Path) -> Decoding:
    """Decode the name of a resource, and add the plugin's prefix if it has none (api/config/v1/resources.go)."""
    if value is not None and not isinstance(value, str):
        yield Fault(path, must(path, value, "text"))
        return None
    name = qualified(value or "")
    if len(name.encode()) > MAX_NAME:
        yield Fault(
            path, f"{_key(path)} may have {MAX_NAME} characters at most, and {shown(name)} has more; shorten it"
        )
        return None
    if not _SUBDOMAIN.fullmatch(name.removeprefix(PREFIX)):
        yield Fault(
            path,
            must(path, value, f"a name of lower-case letters, digits, - and . within {PREFIX}"),
        )
        return None
    return Decoded(name, path)


def qualified(name: str) -> str:
    """Return a name with the plugin's prefix."""
    return name if name.startswith(PREFIX) else PREFIX + name


def integer(value: Any) -> int | None:
    """Return a 64-bit int, or None for any other value.

    A float without a fraction counts, because JSON writes both alike.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float):
        return 0 if value == 0 else None  # goyaml reads every other whole float as an int
    return value if -(2**63) <= value < 2**63 else None
