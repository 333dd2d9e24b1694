"""Decodes JSON from an API server, whatever its tenants wrote into it.

An API server passes on some JSON as its users wrote it: `fieldsV1` of managed fields, and the parameters of drivers in
claims (apimachinery pkg/apis/meta/v1 FieldsV1, pkg/runtime RawExtension). It refuses neither bytes that are no UTF-8
nor half surrogates, and lets it have 10,000 levels (sigs.k8s.io/json). No decoder here reads that, and one such object
would hide all others of its list.
"""

import re
from typing import Any

import orjson

DEEPEST = 100
"""The most levels of lists and maps that are kept where a text cannot be decoded as it is. Real objects have 30."""

_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_TOKEN = re.compile(r'\\.|["\[\]{}]', re.DOTALL)


def decoded(data: bytes) -> Any:
    """Return the value of a JSON text. What cannot be decoded becomes U+FFFD, or null below DEEPEST levels.

    Raises ValueError for a text that is no JSON.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        text = _ESCAPE.sub(lambda escape: r"\ufffd" if escape["half"] else escape[0], data.decode("utf-8", "replace"))
        return orjson.loads(_shallow(text))


def _shallow(text: str) -> str:
    """Write null for each list and map below DEEPEST levels."""
    kept, start, depth, quoted = list[str](), 0, 0, False
    for token in _TOKEN.finditer(text):
        match token[0]:
            case '"':
                quoted = not quoted
            case "[" | "{" if not quoted:
                depth += 1
                if depth == DEEPEST + 1:
                    kept.append(text[start : token.start()])
            case "]" | "}" if not quoted:
                depth -= 1
                if depth == DEEPEST:
                    kept.append("null")
                    start = token.end()
    return "".join((*kept, text[start:]))
