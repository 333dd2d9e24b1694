"""Waits until a condition is true."""

import time
from collections.abc import Callable

LONG = 300.0
"""Seconds after which a test gives up; nothing takes that long, however busy the machine is."""


def until(holds: Callable[[], bool], what: str = "it holds", seconds: float = LONG, pause: float = 0.01) -> None:
    """Wait until a condition is true. Raises AssertionError with its description if that takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not after {seconds:.0f} s: {what}"
        time.sleep(pause)
