"""Durations as Go writes them, which is how the API server says its timeout (go.dev time.ParseDuration)."""

import re

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(h|ms|m|s|us|µs|μs|ns)")


def seconds(text: str) -> float:
    """Read a duration such as `10s` or `1m30s`. Raises ValueError for anything else, and for a negative one."""
    if text == "0":
        return 0.0
    total, end = 0.0, 0
    for part in _PART.finditer(text[:64]):
        if part.start() != end:
            break
        total, end = total + float(part[1]) * _UNITS[part[2]], part.end()
    if not text or end != len(text):
        raise ValueError("not a duration such as 10s")
    return total
