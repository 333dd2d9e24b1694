"""Reads the fields of an object as the API server stores them; an absent field counts as null.

Each function takes the map that holds the field, the key and the map's path. All raise Malformed for a wrong type.
"""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from webhook.api.lenient import string
from webhook.model import Malformed, Object, Path

_WORDS = {dict: "a map", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
_MAPS = frozenset((dict,))

MAX_NAME = 253
"""Maximum characters of an object's name, a DNS subdomain (apimachinery pkg/util/validation)."""


def as_kind(kind: type, value: Any, path: Path) -> Any:
    """Return the value if it has this type; an empty one for null. Raises Malformed for another type."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise Malformed(path, f"must be {_WORDS[kind]}, not {_WORDS[type(value)]}")
    return value


def as_map(value: Any, path: Path) -> Object:
    """Return the value if it is a map; an empty one for null."""
    return value if type(value) is dict else cast("Object", as_kind(dict, value, path))


# These run for every field of every object, so the full path is built only for an error.


def section(holder: Object, key: str, at: Path) -> Object:
    """Return the map at a key; empty if null."""
    value = holder.get(key)
    if value is None:
        return {}
    return value if type(value) is dict else cast("Object", as_kind(dict, value, (*at, key)))


def items(holder: Object, key: str, at: Path) -> list[Any]:
    """Return the list at a key; empty if null."""
    value = holder.get(key)
    if value is None:
        return []
    return value if type(value) is list else cast("list[Any]", as_kind(list, value, (*at, key)))


def text(holder: Object, key: str, at: Path) -> str:
    """Return the string at a key; empty if null."""
    value = holder.get(key)
    if value is None:
        return ""
    return value if type(value) is str else cast("str", as_kind(str, value, (*at, key)))


def flag(holder: Object, key: str, at: Path) -> bool:
    """Return the boolean at a key; false if null."""
    value = holder.get(key)
    return value is not None and bool(as_kind(bool, value, (*at, key)))


def entries(holder: Object, key: str, at: Path) -> Iterable[tuple[int, Object]]:
    """Yield the maps of the list at a key, with their indices."""
    listed = items(holder, key, at)
    if _MAPS.issuperset(map(type, listed)):  # the usual case, checked without a Python loop
        return enumerate(listed)
    return ((index, as_map(entry, (*at, key, index))) for index, entry in enumerate(listed))


def maps(holder: Object, key: str, at: Path) -> list[Object]:
    """Return the maps of the list at a key."""
    listed = items(holder, key, at)
    if _MAPS.issuperset(map(type, listed)):
        return listed
    return [as_map(entry, (*at, key, index)) for index, entry in enumerate(listed)]


def texts(holder: Object, key: str, at: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings of the list at a key, with their indices."""
    for index, entry in enumerate(items(holder, key, at)):
        yield index, entry if type(entry) is str else as_kind(str, entry, (*at, key, index))


def group_kind(item: Object) -> tuple[str, str]:
    """Return the API group and the kind of an object. The group is empty for the core API."""
    version = string(item.get("apiVersion"))
    return version.rpartition("/")[0], string(item.get("kind"))


def folded(key: str) -> str:
    """Return the form of a key that Go compares to find a struct's field (foldName).

    Two non-ASCII letters become ASCII.
    """
    return key.replace("\u017f", "s").replace("\u212a", "k").translate(_LOWER)


_LOWER = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
