"""A worker process: one event loop that accepts, answers in turn, looks after the certificate, and ends in order."""

import asyncio
import contextlib
import fcntl
import os
import resource
import socket
import ssl
import struct
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import uvloop

from webhook.engine.engine import Engine
from webhook.facts.sources import Source
from webhook.serving import app, tls
from webhook.serving.http import Port
from webhook.serving.limits import Limits
from webhook.telemetry.log import Log, log_line
from webhook.telemetry.metrics import Metrics
from webhook.telemetry.rate_limit import Bucket

TICK = 0.25
"""Seconds between looks at the clock for slow peers."""

LOOK = 1.0
"""Seconds between looks at the certificate's files."""

WITHOUT_FACTS = 10.0
"""Seconds for which a worker that has no facts yet leaves callers to others; then it tells them so."""

LAST_WORD = 30.0
"""Seconds that requests in flight have once no more are taken in."""

LEFT, LOOK_AGAIN = 0.01, 0.001
"""Seconds that connections are left to workers that have fewer before one is taken all the same; between two looks."""

AT_ONCE = 16
"""Connections that are taken in at once: a handshake takes as long as several reviews, and all of theirs come next."""


SWITCH = 0.0005
"""Seconds after which a large review lets others go on; Python's own 5 ms would be waited for several times."""

NAMES = 8
"""Names of a certificate that are logged, of the many that it may bear."""


class Share:
    """One worker's part of the connections, beside the others': a number each, in memory that all of them see."""

    def __init__(self, numbers: "memoryview[int]", place: int) -> None:
        self._numbers = numbers
        self.place = place

    def count(self, connections: int) -> None:
        """Say how many connections this worker has."""
        self._numbers[self.place] = connections

    def of(self, waiting: int) -> int:
        """How many of so many new connections are this worker's, for those with the fewest to have them."""
        own, taken = self._numbers[self.place], 0
        while sum(max(0, own + taken - number) for number in self._numbers) < waiting:
            taken += 1
        return taken


class Alone:
    """Held by one worker at a time, of all that have this file open; a worker that dies lets go of it."""

    def __init__(self, file: int) -> None:
        self._file = file

    def __enter__(self) -> None:
        """Wait for whoever holds it. Raises OSError."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        """Let go."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)


@dataclass(frozen=True)
class Duty:
    """What a worker is given: sockets that listen, whom to serve on them, and what to serve them with."""

    listener: socket.socket
    health: socket.socket | None
    certificates: tls.Certificates
    names: frozenset[str]
    limits: Limits
    delay: float
    engine: Engine
    follow: Callable[[Metrics], app.Followed]
    share: Share
    alone: Alone
    lifeline: int
    """A descriptor that becomes readable when the main process is gone, or wants the workers to end."""


def run(duty: Duty) -> None:
    """Serve for as long as the main process holds the lifeline; then drain."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sys.setswitchinterval(SWITCH)
    uvloop.run(_work(duty))


async def _work(duty: Duty) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_exception)
    stop = asyncio.Event()
    loop.add_reader(duty.lifeline, stop.set)

    certificates = duty.certificates
    certificates.look()  # a worker may be forked long after they were read
    metrics = Metrics(duty.share.place)
    facts, told = duty.follow(metrics)
    conditions = (certificates.condition, lambda: (not stop.is_set(), "about to end" if stop.is_set() else ""))
    answers = app.Webhook(duty.engine, facts, log_line, metrics, conditions, told)
    reviews = Port(answers, duty.limits, metrics, duty.names, duty.share.count, Strangers(log_line), duty.alone)
    taking = accept(duty.listener, reviews, lambda: certificates.context, duty.share.of)
    ports, tasks = [reviews], [loop.create_task(_when_ready(facts, taking))]
    if duty.health is not None:
        health = Port(app.Health(facts, metrics, conditions), Limits(), Unwatched())
        ports.append(health)
        tasks.append(loop.create_task(accept(duty.health, health, lambda: None)))
    tasks += [loop.create_task(every(TICK, port.tick)) for port in ports]
    tasks.append(loop.create_task(every(LOOK, certificates.look)))
    tasks.append(loop.create_task(every(TICK, lambda: _report(metrics, reviews, certificates))))

    await stop.wait()
    loop.remove_reader(duty.lifeline)  # it stays readable
    await asyncio.sleep(duty.delay)
    tasks.pop(0).cancel()
    _stop_listening(duty.listener, reviews, certificates.context)
    reviews.drain()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORD):
            while reviews.connections:
                await asyncio.sleep(0.02)
    for each in tasks:
        each.cancel()


def _stop_listening(listener: socket.socket, port: Port, context: ssl.SSLContext) -> None:
    """Take in who is at the door already; who comes later is refused at once, and asks another replica."""
    with contextlib.suppress(OSError):  # there is nobody, or another worker was first
        while True:
            _take(listener, port, context)
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)  # for every process that has it


async def _when_ready(facts: Source, taking: Awaitable[None]) -> None:
    """Take in nobody while another worker could answer and this one could not, as after it was forked anew."""
    end = monotonic() + WITHOUT_FACTS
    while facts() is None and monotonic() < end:
        await asyncio.sleep(0.02)
    await taking


async def accept(
    listener: socket.socket,
    port: Port,
    context: Callable[[], ssl.SSLContext | None],
    share: Callable[[int], int] = lambda waiting: waiting,
) -> None:
    """Take in connections for ever; each is served with the context of its moment.

    Of those that wait a worker takes its share at once, for the next time may be long after. The others' it leaves
    to them for a moment: clients keep their connections, so that whoever wakes first in a burst would do most of the
    work from then on.
    """
    while True:
        await _readable(listener)
        end = monotonic() + LEFT
        while not (number := share(_waiting(listener))) and monotonic() < end:
            await asyncio.sleep(LOOK_AGAIN)
        try:
            for _ in range(min(max(number, 1), AT_ONCE)):
                _take(listener, port, context())
        except BlockingIOError:  # another worker took it
            continue
        except OSError:  # the peer is gone already, or there are no descriptors left
            await asyncio.sleep(0.01)
            continue
        await asyncio.sleep(0)  # the other workers take their share


def _waiting(listener: socket.socket) -> int:
    """How many connections wait to be taken in (linux net/ipv4/tcp.c tcp_get_info); 1 if they are gone meanwhile."""
    (unacked,) = struct.unpack_from("I", listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32), 24)
    return max(1, int(unacked))


def _take(listener: socket.socket, port: Port, context: ssl.SSLContext | None) -> None:
    """Take in one connection. Raises BlockingIOError where none waits, and OSError."""
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


async def every(seconds: float, act: Callable[[], None]) -> None:
    """Act again and again, so many seconds apart, whatever comes of it."""
    while True:
        await asyncio.sleep(seconds)
        try:
            act()
        except Exception as error:  # the next time may be better, and there has to be one
            log_line({"message": "internal error", "error": type(error).__name__, "where": act.__qualname__})


def _report(metrics: Metrics, reviews: Port, certificates: tls.Certificates) -> None:
    metrics.waiting(reviews.waiting)
    metrics.lost_lines(log_line.dropped)
    metrics.certificate(certificates.not_after.timestamp())


class Unwatched:
    """Counts nothing: requests to the health port are no reviews."""

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Do nothing."""

    def refused(self, status: int) -> None:
        """Do nothing."""

    def shed(self) -> None:
        """Do nothing."""


class Strangers:
    """Logs who is refused for the names of its certificate: a few at once, then one in ten seconds for all of them."""

    def __init__(self, log: Log, now: Callable[[], float] = monotonic) -> None:
        self._log = log
        self._now = now
        self._bucket = Bucket(burst=5, rate=0.1, now=now())
        self._requests = 0

    def __call__(self, names: frozenset[str]) -> None:
        """Take in a request that was refused; those since the last line are counted in the next."""
        self._requests += 1
        if not self._bucket.ready(self._now()):
            return
        self._bucket.take()
        told = [name[: app.MAX_LOGGED] for name in sorted(names)[:NAMES]]
        self._log({"message": "caller refused", "worker": os.getpid(), "names": told, "requests": self._requests})
        self._requests = 0


def _log_exception(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    error = context.get("exception")
    if not isinstance(error, OSError):  # a peer's doing
        log_line({"message": "internal error", "error": type(error).__name__, "where": str(context.get("message"))})
