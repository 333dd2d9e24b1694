"""Reads durations as Go does (go.dev time.ParseDuration)."""

import re

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"(?=\.?[0-9])([0-9]*+)(?:\.([0-9]*+))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")

MAX_LENGTH = 256
"""Maximum characters of a duration."""
REFUSAL = "not a duration such as 10s"


def nanoseconds(text: str) -> int:
    """Read a duration such as `10s` or `-1m30s`. Raises ValueError if Go refuses the text, or if it is too long."""
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    sign = -1 if text[:1] == "-" else 1
    if unsigned == "0":
        return 0
    total = position = 0
    while part := _PART.match(unsigned[:MAX_LENGTH], position):
        whole, fraction, unit = part.groups("")
        if len(whole.lstrip("0")) > 19:
            break
        scale, fraction = _UNITS[unit], fraction[:18]
        total += int(whole or "0") * scale + int(fraction or "0") * scale // 10 ** len(fraction)
        if total > 2**63:
            break
        position = part.end()
    if not 0 < position == len(unsigned) or not -(2**63) <= sign * total < 2**63:
        raise ValueError(REFUSAL)
    return sign * total


def seconds(text: str) -> float:
    """Read a duration of zero or more, in seconds.

    Raises ValueError for any other text, such as a negative duration.
    """
    read = nanoseconds(text)
    if read < 0:
        raise ValueError(REFUSAL)
    return read / 1e9
