"""Runs a worker process: one event loop that accepts, answers, reloads the certificate, and drains at its end."""

import asyncio
import contextlib
import fcntl
import os
import resource
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

import uvloop

from webhook.facts.sources import Source
from webhook.http.limits import OPEN, ServerLimits
from webhook.http.listening import TICK, Unwatched, accept, every, log_exception, take
from webhook.http.port import Port
from webhook.serving import app, tls
from webhook.telemetry.log import Log, log_line
from webhook.telemetry.metrics import Metrics
from webhook.telemetry.rate_limit import Bucket

RELOAD = 1.0
"""Seconds between two checks of the certificate's files."""

WITHOUT_FACTS = 10.0
"""Seconds that a worker without facts accepts no connection.

After that it accepts them, and answers that it has none.
"""

LEAVES, HAS, LACKS = 0, 1, 2
"""The states of a worker: it accepts no callers yet, it has facts, or it answers that it has none."""

LAST_WORD = 30.0
"""Seconds for requests in flight after the worker has stopped accepting."""


SWITCH = 0.0005
"""Seconds after which a large review lets others run. Python's own 5 ms would delay a small review several times."""

NAMES = 8
"""The maximum number of a certificate's names in a log line."""


class ConnectionShare:
    """The number of this worker's connections, in memory that all workers share.

    A worker with fewer connections than others takes more of the new ones.
    """

    def __init__(self, numbers: "memoryview[int]", place: int) -> None:
        self._numbers = numbers
        self.place = place

    def count(self, connections: int) -> None:
        """Set the number of this worker's connections."""
        self._numbers[self.place] = connections

    def of(self, waiting: int) -> int:
        """Return how many of the waiting connections this worker takes. Workers with fewer connections take more."""
        own, taken = self._numbers[self.place], 0
        while sum(max(0, own + taken - number) for number in self._numbers) < waiting:
            taken += 1
        return taken


class Loaded:
    """Keeps whether a replica has facts to answer with. Each worker's state is in memory that all workers share."""

    def __init__(self, states: "memoryview[int]", place: int) -> None:
        self._states = states
        self._place = place
        states[place] = LEAVES  # a worker that died in this place may have left another state

    def takes_callers(self, *, facts: bool) -> None:
        """Record that this worker accepts callers, and whether it has facts."""
        self._states[self._place] = HAS if facts else LACKS

    def somewhere(self) -> bool:
        """Return whether any worker has facts."""
        return HAS in self._states

    def __call__(self) -> bool:
        """Return whether at least one worker has facts, and no worker that accepts callers lacks them."""
        return HAS in self._states and LACKS not in self._states


class WorkerLock:
    """A lock that one worker can have at a time. All workers share its open file. A worker that dies releases it."""

    def __init__(self, file: int) -> None:
        self._file = file

    def __enter__(self) -> None:
        """Wait for the lock. Raises OSError."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)


@dataclass(frozen=True)
class Duty:
    """The parts that a worker starts with: listening sockets, allowed callers, and a function that starts the rest."""

    listener: socket.socket
    health: socket.socket | None
    certificates: tls.Certificates
    names: frozenset[str]
    limits: ServerLimits
    delay: float
    follow: Callable[[Metrics, int], app.WorkerParts]
    share: ConnectionShare
    loaded: Loaded
    lock: WorkerLock
    lifeline: int
    """A descriptor that becomes readable when the main process ends, or wants the workers to end."""


def run(duty: Duty) -> None:
    """Serve as long as the main process keeps its end of the pipe (`lifeline`) open; then drain."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sys.setswitchinterval(SWITCH)
    uvloop.run(_work(duty))


async def _work(duty: Duty) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_exception)
    stop = asyncio.Event()
    loop.add_reader(duty.lifeline, stop.set)

    certificates = duty.certificates
    certificates.reload_if_changed()  # a worker may be forked long after the files were read
    metrics = Metrics(duty.share.place)
    followed = duty.follow(metrics, duty.share.place)
    ending: app.Condition = lambda: (not stop.is_set(), "about to end" if stop.is_set() else "")  # noqa: E731
    conditions = (certificates.condition, ending, *followed.conditions)
    answers = app.ReviewApplication(
        followed.judges,
        followed.facts,
        log_line,
        metrics,
        conditions,
        followed.receiver,
        duty.loaded,
        followed.checks,
        followed.release,
    )
    reviews = Port(answers, duty.limits, metrics, duty.names, duty.share.count, RefusedCallers(log_line), duty.lock)
    taking = accept(duty.listener, reviews, lambda: certificates.context, duty.share.of)
    ports, tasks = [reviews], [loop.create_task(when_ready(followed.facts, duty.loaded, taking))]
    if duty.health is not None:
        health = Port(app.Health(duty.loaded, metrics, conditions, followed.report), OPEN, Unwatched())
        ports.append(health)
        tasks.append(loop.create_task(accept(duty.health, health, lambda: None)))
    tasks += [loop.create_task(every(TICK, port.tick)) for port in ports]
    tasks.append(loop.create_task(every(RELOAD, certificates.reload_if_changed)))
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
    """Accept the connections that wait. Later ones are refused at once, and their clients try another replica."""
    with contextlib.suppress(OSError):  # no connection waits, or another worker took it
        while True:
            take(listener, port, context)
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)  # the socket is shared with other processes, which stop listening too


async def when_ready(facts: Source, loaded: Loaded, taking: Awaitable[None], patience: float = WITHOUT_FACTS) -> None:
    """Accept connections when this worker has facts, or after `patience` seconds if no other worker has any."""

    def tell() -> None:
        loaded.takes_callers(facts=facts() is not None)

    end = monotonic() + patience
    while facts() is None and (loaded.somewhere() or monotonic() < end):
        await asyncio.sleep(0.02)
    tell()
    await asyncio.gather(taking, every(TICK, tell))


def _report(metrics: Metrics, reviews: Port, certificates: tls.Certificates) -> None:
    metrics.waiting(len(reviews.queue))
    metrics.lost_lines(log_line.dropped)
    metrics.certificate(certificates.not_after.timestamp())


class RefusedCallers:
    """Logs callers that are refused for their certificate's names: a few at once, then one line in ten seconds."""

    def __init__(self, log: Log, now: Callable[[], float] = monotonic) -> None:
        self._log = log
        self._now = now
        self._bucket = Bucket(burst=5, rate=0.1, now=now())
        self._requests = 0

    def __call__(self, names: frozenset[str]) -> None:
        """Log or count a refused request. A line includes the number of requests since the previous line."""
        self._requests += 1
        if not self._bucket.ready(self._now()):
            return
        self._bucket.take()
        told = [name[: app.MAX_LOGGED] for name in sorted(names)[:NAMES]]
        self._log({"message": "caller refused", "worker": os.getpid(), "names": told, "requests": self._requests})
        self._requests = 0
