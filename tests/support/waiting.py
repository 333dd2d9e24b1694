"""Waits until a condition is true."""

import ssl
import time
import urllib.request
import warnings
from collections.abc import Callable

LONG = 300.0
"""Seconds after which a test gives up; nothing takes that long, however busy the machine is."""


def until(holds: Callable[[], bool], what: str = "it holds", seconds: float = LONG, pause: float = 0.01) -> None:
    """Wait until a condition is true. Raises AssertionError with its description if that takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not after {seconds:.0f} s: {what}"
        time.sleep(pause)


def reached(url: str, context: ssl.SSLContext) -> bool:
    """Return whether a server answers a GET with success.

    If a server that is just ending resets a connection before the handshake, Python's `ssl` leaves the socket to the
    garbage collector (SSLSocket._create). Its warning would fail a test.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            with urllib.request.urlopen(url, timeout=5, context=context):
                return True
        except OSError:
            return False
