"""Reads objects that another program wrote. A value of an unexpected type counts as absent."""

import base64
from collections.abc import Mapping
from typing import Any


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a map, else an empty map."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the maps in a list; empty if the value is no list."""
    return [item for item in sequence(value) if isinstance(item, dict)]


def sequence(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def string(value: Any) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def strings(value: Any) -> Mapping[str, str]:
    """Return the entries of a map whose values are strings.

    If all are, return the map itself, so that snapshots share it.
    """
    found = mapping(value)
    if all(isinstance(each, str) for each in found.values()):
        return found
    return {key: each for key, each in found.items() if isinstance(each, str)}


def from_base64(text: str) -> bytes:
    """Decode base64 as Go does, which passes over line breaks (encoding/base64, Decode). Raises ValueError."""
    return base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
