"""Writes values, counts and lists for messages, and makes texts harmless to print."""

import json
import re
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii

LONGEST = 80
"""Maximum characters of a tenant's value in a message."""

MOST = 1000
"""Maximum characters of a message."""


def shown(value: object, *, quotes: bool = True) -> str:
    """Write a tenant's value for a message: one line of printable ASCII, at most LONGEST characters."""
    if isinstance(value, str):
        text = encode_basestring_ascii(value[: LONGEST + 1])  # a tenant may write megabytes
        if not quotes:
            text = text[1:-1]
    elif isinstance(value, (dict, list)):  # which may be nested without limit
        return "a map" if isinstance(value, dict) else "a list"
    else:
        text = _JSON.encode(value)
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return quelled(text) if "##" in text else text


_JSON = json.JSONEncoder(
    default=str
)  # one encoder for all calls: making it costs ten times as much as encoding a short text


def several(count: int, word: str) -> str:
    """Write a number with its noun: `1 object`, `2 objects`."""
    return f"{count:,} {word}{'s' * (count != 1)}"


def listed(names: Sequence[str], most: int) -> str:
    """Write a list with at most some names, and the number of the others: `a, b and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def unquoted(value: object) -> str:
    """Return the advice to quote a value in YAML that was read as a boolean or a number; empty for other values."""
    if isinstance(value, bool):
        return "; put it in quotes: without them YAML takes yes, no, on, off, y and n for true or false"
    return "; put it in quotes" if isinstance(value, (int, float)) else ""


def quelled(text: str) -> str:
    """Return a text in which build servers find no commands. A JSON text keeps its meaning.

    GitHub's runner accepts `##[…]` anywhere in a line, and `::…::` at the start of one (actions/runner
    src/Runner.Common/ActionCommand.cs); Azure's accepts `##vso[…]`, and TeamCity `##teamcity[…]`.
    """
    if "##" in text:
        text = _ANYWHERE.sub(r"\\u0023", text)
    return _AT_THE_START.sub(r"\1\\u003a", text) if "::" in text else text


_ANYWHERE = re.compile(r"#(?=#\w*\[)")
_AT_THE_START = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)


def printable(text: str) -> str:
    """Return a text in which each character that cannot be printed is written as JSON does."""
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """Return an untrusted text as one line of printable characters, without commands of build servers."""
    return quelled(printable(text))


def line(text: str) -> str:
    """Return a message as one line of at most MOST characters (see `one_line`). No others are read."""
    text = text[: MOST + 1]
    if not text.isprintable() or "##" in text or "::" in text:  # few of the thousands that a review may have
        text = one_line(text)
    return text if len(text) <= MOST else text[: MOST - 3] + "..."


def sha256(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal digits."""
    import hashlib  # loads OpenSSL, 4 MiB, which most checks do without

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
