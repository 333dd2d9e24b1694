"""Decodes JSON from an API server, whatever its tenants wrote into it.

An API server passes on some JSON as its users wrote it: `fieldsV1` of managed fields, and the parameters of drivers in
claims (apimachinery pkg/apis/meta/v1 FieldsV1, pkg/runtime RawExtension). It refuses neither bytes that are no UTF-8
nor half surrogates, and lets it have 10,000 levels (sigs.k8s.io/json). No decoder here reads that, and one such object
would hide all others of its list.
"""

import codecs
import re
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypedDict

import msgspec
import orjson

from webhook.facts.kind import WHOLE, Fields

DEEPEST = 100
"""The most levels of lists and maps that are kept where a text cannot be decoded as it is. Real objects have 30."""

PIECE = 64 * 1024
"""Bytes that are read at once where some are no UTF-8."""

_HEX = rb"[0-9a-fA-F]{2}"
_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB]" + _HEX + rb"(?P<pair>\\u[dD][c-fC-F]" + _HEX + rb")?|[c-fC-F]" + _HEX + rb")"
)
_TOKEN = re.compile(rb'\{\}|\[\]|"[^"\\]*"|["\[\]{}]')
"""A bracket, or where a text with a backslash begins. Other texts and empty lists are stepped over.

A repeat of texts would be faster. Python 3.11.0 to 3.11.4 match possessive ones wrongly (CPython issue 106052), and a
greedy one keeps all that it matches.
"""


def decoded(data: bytes, fields: Fields = WHOLE) -> Any:
    """Return the value of a JSON text: of an object with other fields than the given ones, only those.

    A tenant may write megabytes of small maps into other fields, which would take 25 times their bytes. An object in
    which one of the fields has another shape is returned whole. What cannot be decoded becomes U+FFFD, or null below
    DEEPEST levels.

    Raises ValueError for a text that is no JSON.
    """
    with suppress(ValueError, RecursionError, msgspec.DecodeError):  # the error has a copy of the text
        return _value(data, fields)
    try:
        return _value(readable(data), fields)
    except (RecursionError, msgspec.DecodeError) as error:
        raise ValueError(str(error)) from None


def _value(data: bytes | bytearray, fields: Fields) -> Any:
    if fields:
        with suppress(msgspec.ValidationError):
            return _decoder(fields).decode(data)
    return orjson.loads(data)  # refuses more than 1,024 levels in each release of Python


@lru_cache(maxsize=64)  # each resource has its own
def _decoder(fields: Fields) -> "msgspec.json.Decoder[Any]":
    """Return the decoder of an object's fields. It steps over all others, and makes nothing of them."""
    return msgspec.json.Decoder(_shape([field.split(".") for field in fields]))


def _shape(paths: list[list[str]]) -> Any:
    """Return the type of a map that has these paths, or null."""
    within: dict[str, list[list[str]]] = {}
    for first, *rest in paths:
        within.setdefault(first, []).append(rest)
    types = {name.removesuffix("[]"): _field(name, inner) for name, inner in within.items()}
    return TypedDict("Map", types, total=False) | None  # type: ignore[operator]  # made at run time


def _field(name: str, paths: list[list[str]]) -> Any:
    if not all(paths):
        return Any
    return list[_shape(paths)] | None if name.endswith("[]") else _shape(paths)  # type: ignore[misc]


def readable(data: bytes) -> bytearray:
    """Return a JSON text without what cannot be decoded. It takes memory as the text is long, whatever is in it."""
    text = _utf8(data)
    text = _without_halves(text)
    return _shallow(text)


def _utf8(data: bytes) -> bytearray:
    """Write U+FFFD for all that is no UTF-8. A text of Python with one rare character has four bytes for each."""
    pieces, kept = (data[start : start + PIECE] for start in range(0, len(data), PIECE)), bytearray()
    for text in codecs.iterdecode(pieces, "utf-8", errors="replace"):
        kept += text.encode()
    return kept


def _without_halves(data: bytearray) -> bytearray:
    """Write U+FFFD for each half of a surrogate pair."""
    kept, start, place = bytearray(), 0, 0
    while found := _SURROGATE.search(data, place):
        escaped = _is_escaped(data, found.start())
        place = found.start() + 2 if escaped else found.end()
        if not escaped and not found["pair"]:
            kept += data[start : found.start()]
            kept += rb"\ufffd"
            start = place
    return kept + data[start:]


def _shallow(data: bytearray) -> bytearray:
    """Write null for each list and map below DEEPEST levels. Raises ValueError for a text without its end."""
    kept, start, depth = bytearray(), 0, 0
    tokens = _TOKEN.finditer(data)
    while found := next(tokens, None):
        match found[0]:
            case b"[" | b"{":
                depth += 1
                if depth == DEEPEST + 1:
                    kept += data[start : found.start()]
            case b"]" | b"}":
                depth -= 1
                if depth == DEEPEST:
                    kept += b"null"
                    start = found.end()
            case b'"':
                tokens = _TOKEN.finditer(data, _end_of_text(data, found.end()))
    return kept + data[start:]


def _end_of_text(data: bytearray, start: int) -> int:
    """Return the end of a text that begins after the quotation mark before `start`."""
    while (end := data.find(b'"', start)) >= 0:
        if not _is_escaped(data, end):
            return end + 1
        start = end + 1
    raise ValueError("a text without its end")


def _is_escaped(data: bytearray, place: int) -> bool:
    """Whether the character at a place within a text follows an odd number of backslashes."""
    before = place
    while before and data[before - 1] == ord("\\"):
        before -= 1
    return (place - before) % 2 == 1
