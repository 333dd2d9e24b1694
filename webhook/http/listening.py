"""Listens on sockets and accepts their connections, and calls functions at intervals."""

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from webhook.http.port import Port
from webhook.telemetry.log import log_line

TICK = 0.25
"""Seconds between two checks for slow peers."""

LEFT, LOOK_AGAIN = 0.01, 0.001
"""Seconds that a worker leaves connections to workers that have fewer, and seconds between checks meanwhile."""

RECEIVED = 64 * 1024
"""Bytes that the kernel receives of a connection ahead of its worker, half of what it counts (man 7 socket).

The kernel counts them as memory of the container, for all connections together.
"""

AT_ONCE = 16
"""Maximum connections accepted at once. A handshake takes as long as several reviews, and handshakes come first."""


def listener(host: str, port: int) -> socket.socket:
    """Return a socket to accept from, which several processes may share. Raises OSError, naming the place."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server(
            (host, port), family=family, backlog=1024, dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6()
        )
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), f"{host}:{port}") from error
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)
    opened.setblocking(False)
    return opened


async def accept(
    listener: socket.socket,
    port: Port,
    context: Callable[[], ssl.SSLContext | None],
    share: Callable[[int], int] = lambda waiting: waiting,
) -> None:
    """Accept connections forever. Each gets the current TLS context.

    A worker takes its share of the waiting connections at once. It leaves the rest to other workers for a moment.
    Clients keep their connections, so the worker that wakes first in a burst would otherwise do most of the work.
    """
    while True:
        await _readable(listener)
        end = monotonic() + LEFT
        while not (number := share(_waiting(listener))) and monotonic() < end:
            await asyncio.sleep(LOOK_AGAIN)
        try:
            for _ in range(min(max(number, 1), AT_ONCE)):
                take(listener, port, context())
        except BlockingIOError:  # another worker took it
            continue
        except OSError:  # the peer is gone already, or there are no descriptors left
            await asyncio.sleep(0.01)
            continue
        await asyncio.sleep(0)  # let the other workers take their share


def _waiting(listener: socket.socket) -> int:
    """Return how many connections wait (linux net/ipv4/tcp.c tcp_get_info), at least 1."""
    (unacked,) = struct.unpack_from("I", listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32), 24)
    return max(1, int(unacked))


def take(listener: socket.socket, port: Port, context: ssl.SSLContext | None) -> None:
    """Accept one connection. Raises BlockingIOError if none waits, and OSError."""
    peer, _ = listener.accept()
    peer.setblocking(False)
    port.open(peer, context)


async def _readable(listener: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listener, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listener)


async def every(seconds: float, act: Callable[[], None], during: asyncio.Event | None = None) -> None:
    """Call a function repeatedly, with this many seconds between calls, even if it fails.

    With `during`, call it only while that event is set, and sleep until then.
    """
    while True:
        if during is not None:
            await during.wait()
        await asyncio.sleep(seconds)
        try:
            act()
        except Exception as error:  # a failure must not end the loop
            log_line({"message": "internal error", "error": type(error).__name__, "where": act.__qualname__})


class Unwatched:
    """Counts nothing, for a port that only serves health and metrics."""

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Do nothing."""

    def refused(self, status: int) -> None:
        """Do nothing."""

    def shed(self) -> None:
        """Do nothing."""


def log_exception(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Log an exception that no task caught, as a JSON line. A peer that is gone is not logged."""
    error = context.get("exception")
    if not isinstance(error, OSError):  # caused by a peer
        log_line({"message": "internal error", "error": type(error).__name__, "where": str(context.get("message"))})
