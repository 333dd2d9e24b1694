"""A connection on which nothing is asked for longer than an API server keeps one."""

import http.client
import ssl
import threading
import time
from pathlib import Path
from typing import NamedTuple

from tests.faults.load import DEADLINE, REVIEWS

PATIENCE = 100.0
"""Seconds. An API server asks on a connection that was idle for up to 90 (client-go transport/cache.go)."""


class Silence(NamedTuple):
    """How many seconds it lasted, whether the connection is the same after it, and the answers around it."""

    seconds: float
    same: bool
    before: tuple[int, bytes]
    after: tuple[int, bytes]


def kept(port: int, authority: Path, over: threading.Event) -> Silence:
    """Ask on a new connection, say nothing until patience or the event ends it, and ask again. Raises OSError."""
    context = ssl.create_default_context(cafile=authority)
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=DEADLINE, context=context)
    connection.connect()
    opened = connection.sock
    try:
        before, began = _asked(connection), time.monotonic()
        over.wait(PATIENCE + 1)
        seconds = time.monotonic() - began
        after = _asked(connection)
        return Silence(seconds, connection.sock is opened, before, after)
    finally:
        connection.close()


def _asked(connection: http.client.HTTPSConnection) -> tuple[int, bytes]:
    path, body = REVIEWS[0]
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()
