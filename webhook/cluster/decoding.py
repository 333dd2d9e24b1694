"""Decodes JSON from an API server, whatever its tenants wrote into it.

An API server passes on some JSON as its users wrote it: `fieldsV1` of managed fields, and the parameters of drivers in
claims (apimachinery pkg/apis/meta/v1 FieldsV1, pkg/runtime RawExtension). It refuses neither bytes that are no UTF-8
nor half surrogates, and lets it have 10,000 levels (sigs.k8s.io/json). No decoder here reads that, and one such object
would hide all others of its list.
"""

import codecs
import re
from contextlib import suppress
from typing import Any

import orjson

DEEPEST = 100
"""The most levels of lists and maps that are kept where a text cannot be decoded as it is. Real objects have 30."""

PIECE = 64 * 1024
"""Bytes that are read at once where some are no UTF-8."""

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_TOKEN = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)


def decoded(data: bytes) -> Any:
    """Return the value of a JSON text. What cannot be decoded becomes U+FFFD, or null below DEEPEST levels.

    Raises ValueError for a text that is no JSON.
    """
    with suppress(ValueError):  # the error has a copy of the text, which ends with it
        return orjson.loads(data)
    return orjson.loads(readable(data))


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
    kept, start = bytearray(), 0
    for escape in _ESCAPE.finditer(data):
        if escape.lastgroup:
            kept += data[start : escape.start()]
            kept += rb"\ufffd"
            start = escape.end()
    return kept + data[start:]


def _shallow(data: bytearray) -> bytearray:
    """Write null for each list and map below DEEPEST levels."""
    kept, start, depth, quoted = bytearray(), 0, 0, False
    for token in _TOKEN.finditer(data):
        match token[0]:
            case b'"':
                quoted = not quoted
            case b"[" | b"{" if not quoted:
                depth += 1
                if depth == DEEPEST + 1:
                    kept += data[start : token.start()]
            case b"]" | b"}" if not quoted:
                depth -= 1
                if depth == DEEPEST:
                    kept += b"null"
                    start = token.end()
    return kept + data[start:]
