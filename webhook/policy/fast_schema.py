"""Checks quickly whether a value fits a JSON Schema. Only the library used for errors can say what does not fit.

jsonschema takes longer to import than a whole check does; jsonschema-rs, which validates as fast as this, adds a tenth
to a check of one file, and 15 MB to the image. This module knows the keywords of JSON Schema draft 2020-12 that the
policy's schema uses; a schema with any other keyword never fits.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "null": lambda value: value is None,
}
_SILENT = frozenset(("$schema", "$id", "$defs", "title", "description", "examples", "default", "then", "else"))
"""Keywords that require nothing; `then` and `else` are read with `if`."""


def fits(value: Any, schema: Any) -> bool:
    """Return whether a value certainly fits a schema.

    False may also mean that this module does not know one of its keywords.
    """
    return _fits(value, schema, schema)


def _fits(value: Any, schema: Any, root: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    most = schema.get("maxItems" if isinstance(value, list) else "maxProperties")
    if isinstance(value, (list, dict)) and most is not None and len(value) > most:
        return False  # before any of its entries is read
    return all(_holds(keyword, wanted, value, schema, root) for keyword, wanted in schema.items())


def _holds(keyword: str, wanted: Any, value: Any, schema: Any, root: Any) -> bool:
    if keyword in _SILENT:
        return True
    match keyword:
        case "$ref":
            name = wanted.removeprefix("#/$defs/")
            return name in root["$defs"] and _fits(value, root["$defs"][name], root)
        case "type":
            return any(_TYPES[name](value) for name in ([wanted] if isinstance(wanted, str) else wanted))
        case "const":
            return _same(value, wanted)
        case "enum":
            return any(_same(value, known) for known in wanted)
        case "allOf":
            return all(_fits(value, part, root) for part in wanted)
        case "anyOf":
            return any(_fits(value, part, root) for part in wanted)
        case "if":
            return _fits(value, schema.get("then" if _fits(value, wanted, root) else "else", True), root)
    if isinstance(value, dict):
        return _map_holds(keyword, wanted, value, schema, root)
    if isinstance(value, list):
        return _list_holds(keyword, wanted, value, root)
    if isinstance(value, str):
        return _text_holds(keyword, wanted, value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _number_holds(keyword, wanted, value)
    return keyword in _KNOWN


def _map_holds(keyword: str, wanted: Any, value: Mapping[str, Any], schema: Any, root: Any) -> bool:
    match keyword:
        case "properties":
            return all(_fits(value[key], below, root) for key, below in wanted.items() if key in value)
        case "additionalProperties":
            known = schema.get("properties", {})
            return "patternProperties" not in schema and all(
                _fits(below, wanted, root) for key, below in value.items() if key not in known
            )
        case "propertyNames":
            return all(_fits(key, wanted, root) for key in value)
        case "required":
            return all(key in value for key in wanted)
        case "minProperties":
            return bool(len(value) >= wanted)
        case "maxProperties":
            return bool(len(value) <= wanted)
    return keyword in _KNOWN


def _list_holds(keyword: str, wanted: Any, value: list[Any], root: Any) -> bool:
    match keyword:
        case "items":
            return all(_fits(item, wanted, root) for item in value)
        case "minItems":
            return bool(len(value) >= wanted)
        case "maxItems":
            return bool(len(value) <= wanted)
        case "uniqueItems":
            return len({json.dumps(item, sort_keys=True) for item in value}) == len(value)
    return keyword in _KNOWN


def _text_holds(keyword: str, wanted: Any, value: str) -> bool:
    match keyword:
        case "pattern":
            return re.search(wanted, value) is not None
        case "minLength":
            return bool(len(value) >= wanted)
        case "maxLength":
            return bool(len(value) <= wanted)
    return keyword in _KNOWN


def _number_holds(keyword: str, wanted: Any, value: float) -> bool:
    match keyword:
        case "minimum":
            return bool(value >= wanted)
        case "maximum":
            return bool(value <= wanted)
    return keyword in _KNOWN


_KNOWN = frozenset(
    (
        *("properties", "additionalProperties", "propertyNames", "required", "minProperties", "maxProperties"),
        *("items", "minItems", "maxItems", "uniqueItems"),
        *("pattern", "minLength", "maxLength"),
        *("minimum", "maximum"),
    )
)
"""Keywords that require nothing of values of other types."""


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; a boolean never equals a number."""
    return type(one) is type(other) and bool(one == other)
