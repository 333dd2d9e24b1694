"""Makes connections accept only final responses of the API server, and only within a deadline.

A pod's response may come through the API server, which also passes on the 1xx responses of a pod. Python takes all of
these but 100 for the answer. The next request on the connection would then read the answer that was still to come,
which is another pod's.
"""

import http.client
import io
import math
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import urllib3

_END = ContextVar("_END", default=math.inf)


@contextmanager
def until(end: float) -> Iterator[None]:
    """Let each response in the `with` block time out at `end`, a value of time.monotonic(), even while bytes arrive."""
    token = _END.set(end)
    try:
        yield
    finally:
        _END.reset(token)


class _TimedFile(io.RawIOBase):
    """Reads a socket's file until the deadline."""

    def __init__(self, file: io.RawIOBase, connection: socket.socket) -> None:
        self._file, self._connection, self._silence = file, connection, connection.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if (end := _END.get()) < math.inf:
            if (left := end - time.monotonic()) <= 0:
                raise TimeoutError
            self._connection.settimeout(left if self._silence is None else min(left, self._silence))
        return self._file.readinto(buffer)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
        super().close()


class FinalResponse(http.client.HTTPResponse):
    """A response that refuses the status 1xx, because no request here sends `Expect` or `Upgrade`."""

    def __init__(self, sock: socket.socket, *settings: Any, **more: Any) -> None:
        """Read from a socket, as http.client does."""
        super().__init__(sock, *settings, **more)
        self.fp = io.BufferedReader(_TimedFile(self.fp.detach(), sock))

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        if status < http.HTTPStatus.OK:
            raise http.client.BadStatusLine(f"HTTP {status}, which is no answer")
        return version, status, reason


def apply(manager: urllib3.PoolManager) -> None:
    """Make all connections that a manager opens from now on, also through a proxy, use `FinalResponse`."""
    manager.pool_classes_by_scheme = {scheme: _final(pool) for scheme, pool in manager.pool_classes_by_scheme.items()}


@cache
def _final(pool: type[urllib3.HTTPConnectionPool]) -> type[urllib3.HTTPConnectionPool]:
    made: type[Any] = pool.ConnectionCls
    if issubclass(made.response_class, FinalResponse):
        return pool
    return type(
        pool.__name__, (pool,), {"ConnectionCls": type(made.__name__, (made,), {"response_class": FinalResponse})}
    )
