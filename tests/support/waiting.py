"""Waiting for what has to come to hold."""

import time
from collections.abc import Callable

LONG = 30.0
"""Seconds after which a test gives up; nothing takes them."""


def until(holds: Callable[[], bool], what: str = "it holds", seconds: float = LONG, pause: float = 0.01) -> None:
    """Wait for something to hold; AssertionError, with the words for it, when it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not after {seconds:.0f} s: {what}"
        time.sleep(pause)
