"""Reads the fields of an object as the API would have stored them, null for what is not there.

Each function takes what holds the field, its key and the holder's path. All raise Malformed where the shape is another.
"""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from webhook.api.lenient import string
from webhook.model import Malformed, Object, Path

_WORDS = {dict: "a map", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
_MAPS = frozenset((dict,))


def as_kind(kind: type, value: Any, path: Path) -> Any:
    """Return a value of this type, an empty one for null. Raises Malformed for another type."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise Malformed(path, f"must be {_WORDS[kind]}, not {_WORDS[type(value)]}")
    return value


def as_map(value: Any, path: Path) -> Object:
    """Return a map, an empty one for null."""
    return value if type(value) is dict else cast("Object", as_kind(dict, value, path))


# The path is only put together where it is needed: these are called for every place of every object.


def section(holder: Object, key: str, at: Path) -> Object:
    """The map at a key, empty for null."""
    value = holder.get(key)
    if value is None:
        return {}
    return value if type(value) is dict else cast("Object", as_kind(dict, value, (*at, key)))


def items(holder: Object, key: str, at: Path) -> list[Any]:
    """The list at a key, empty for null."""
    value = holder.get(key)
    if value is None:
        return []
    return value if type(value) is list else cast("list[Any]", as_kind(list, value, (*at, key)))


def text(holder: Object, key: str, at: Path) -> str:
    """The text at a key, empty for null."""
    value = holder.get(key)
    if value is None:
        return ""
    return value if type(value) is str else cast("str", as_kind(str, value, (*at, key)))


def flag(holder: Object, key: str, at: Path) -> bool:
    """The truth at a key, false for null."""
    value = holder.get(key)
    return value is not None and bool(as_kind(bool, value, (*at, key)))


def entries(holder: Object, key: str, at: Path) -> Iterable[tuple[int, Object]]:
    """Each map of the list at a key, with its index."""
    found = items(holder, key, at)
    if _MAPS.issuperset(map(type, found)):  # nearly always, and without a step in Python for every one
        return enumerate(found)
    return ((index, as_map(each, (*at, key, index))) for index, each in enumerate(found))


def texts(holder: Object, key: str, at: Path) -> Iterator[tuple[int, str]]:
    """Each text of the list at a key, with its index."""
    for index, each in enumerate(items(holder, key, at)):
        yield index, each if type(each) is str else as_kind(str, each, (*at, key, index))


def group_kind(item: Object) -> tuple[str, str]:
    """The API group (empty for core) and kind of an object."""
    version = string(item.get("apiVersion"))
    return version.rpartition("/")[0], string(item.get("kind"))
