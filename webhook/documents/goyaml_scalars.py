"""Resolves scalars as go-yaml v2 does (YAML 1.1, resolve.go), and numbers as JSON does (encoding/json encode.go)."""

import math
import re
from datetime import date
from typing import Any

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}


def plain(text: str) -> Any:
    """Return the value of a plain scalar (resolve.go): a string, unless it has the form of another type."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    number = _float(text) if text[0] == "." else _number(text.replace("_", ""))
    return text if number is None else number


# Possessive, so that a million digits that are no number are scanned only once.
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]++)|0[bB](?P<bin>[01]++)|0[oO]?(?P<oct>[0-7]++)|(?P<dec>0|[1-9][0-9]*+))",
    re.ASCII,
)
_BASES = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
_SIGNED_BINARY = re.compile(r"0b([-+][01]+)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]++|[0-9]++(?:\.[0-9]*+)?)(?:[eE][-+]?[0-9]++)?", re.ASCII)


def _number(digits: str) -> int | float | None:
    """Read a 64-bit integer, signed or unsigned, in one of Go's notations, or a decimal fraction."""
    if (integer := _INTEGER.fullmatch(digits)) and integer.lastgroup:
        significant = integer[integer.lastgroup].lstrip("0") or "0"
        if len(significant) <= 64:
            number = int(integer["sign"] + significant, _BASES[integer.lastgroup])
            if -(2**63) <= number < (2**63 if integer["sign"] else 2**64):
                return number
    if (binary := _SIGNED_BINARY.fullmatch(digits)) and len(digits) <= 66:
        return int(binary[1], 2)
    return _float(digits)


def _float(digits: str) -> float | None:
    if not _FLOAT.fullmatch(digits):
        return None
    real = float(digits)
    return None if math.isinf(real) else real


def whole(real: float) -> int | float:
    """Return an int for a float that JSON writes as an integer (encoding/json floatEncoder). -0.0 stays a float."""
    if not real.is_integer() or abs(real) >= 1e21 or (real == 0 and math.copysign(1, real) < 0):
        return real
    return int(real)


_TIMESTAMP = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"(?:[Tt](?P<time>[0-9:]+)(?:[.,][0-9]+)?(?:Z|[-+][0-9]{2}:[0-9]{2})| +(?P<plain>[0-9:]+)(?:[.,][0-9]+)?)?",
    re.ASCII,
)


def is_timestamp(text: str) -> bool:
    """Return whether go-yaml reads a text as a timestamp (parseTimestamp)."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return False
    try:  # Go has a year 0, which is a leap year
        date(int(match["year"]) or 2000, int(match["month"]), int(match["day"]))
    except ValueError:
        return False
    time = match["time"] or match["plain"]
    if time is None:
        return True
    parts = time.split(":")
    return len(parts) == 3 and all(
        part.isdigit() and len(part) <= 2 and int(part) < limit for part, limit in zip(parts, (24, 60, 60), strict=True)
    )
