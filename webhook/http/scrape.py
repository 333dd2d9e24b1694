"""Serves metrics and health over plain HTTP. Anyone may reach the port, so requests are limited."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Protocol

from webhook.http import listening
from webhook.http.kept import Kept
from webhook.http.limits import OPEN
from webhook.http.messages import HttpRequest, Reply
from webhook.http.port import Port
from webhook.telemetry.log import Log
from webhook.telemetry.rate_limit import Bucket

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SILENT = 60.0
"""Seconds without a look after which the agent counts as hung. NVML may block for a while when a card is reset."""

_TEXT = (("Content-Type", "text/plain"),)


class Scraped(Protocol):
    """The source of the served values: metrics, and the age of the last look in seconds.

    A look is one round of observation, by the agent or the controller.
    """

    @property
    def age(self) -> float:
        """Seconds since the last look."""

    def text(self) -> bytes:
        """Return the metrics as Prometheus reads them."""


class Answered(Protocol):
    """The part of the agent that reports who used how much of the node's cards."""

    def text(self, hours: int) -> bytes:
        """Return the usage of the last hours as JSON."""


USAGE_BURST, USAGE_RATE = 4.0, 0.2
"""How many answers about usage are made at once, and in a second: each may take a tenth of a second."""

MOST_HOURS = 35 * 24
"""The most hours that an answer about usage may go back."""

ALWAYS, USAGE_FRESH = (24, MOST_HOURS), 5.0
"""The hours for which usage is always answered, and seconds for which such an answer is kept."""


class Pages:
    """The application that serves /metrics and /healthz, and /usage if it has a `usage`."""

    def __init__(self, metrics: Scraped, usage: Answered | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._metrics, self._usage = metrics, usage
        self._text = Kept(metrics.text, clock=clock)
        self._bucket = Bucket(USAGE_BURST, USAGE_RATE, clock())
        self._clock = clock
        self._always = {
            hours: Kept(partial(usage.text, hours), USAGE_FRESH, clock) for hours in ALWAYS if usage is not None
        }

    def refusal(self, request: HttpRequest) -> Reply | None:
        """Refuse anything but a GET or HEAD without a body."""
        if request.method not in ("GET", "HEAD") or request.length:
            return Reply(HTTPStatus.METHOD_NOT_ALLOWED, headers=(("Allow", "GET, HEAD"),))
        return None

    def is_probe(self, request: HttpRequest) -> bool:
        """Return whether a request is a kubelet's liveness probe."""
        return request.path == "/healthz"

    def __call__(self, request: HttpRequest) -> Reply:
        """Answer a request."""
        if request.path == "/metrics":
            return Reply(HTTPStatus.OK, self._text(), (("Content-Type", CONTENT_TYPE),))
        if request.path == "/usage" and self._usage is not None:
            return self._answered(self._usage, request.query)
        if request.path != "/healthz":
            return Reply(HTTPStatus.NOT_FOUND, b"only /metrics and /healthz\n", _TEXT)
        if self._metrics.age > SILENT:
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, b"no look for a minute\n", _TEXT)
        return Reply(HTTPStatus.OK, b"ok\n", _TEXT)

    def _answered(self, usage: Answered, query: str) -> Reply:
        """Answer who used what in the last `hours`, a whole number in the query; without one, in the last day.

        One peer can use up the answers for other hours, but not those that are always given.
        """
        name, _, number = (query or "hours=24").partition("=")
        hours = int(number) if number.isascii() and number.isdigit() and len(number) <= 4 else 0
        if name != "hours" or not 1 <= hours <= MOST_HOURS:
            return Reply(HTTPStatus.BAD_REQUEST, b"hours: a whole number from 1 to 840\n", _TEXT)
        if (kept := self._always.get(hours)) is not None:
            return Reply(HTTPStatus.OK, kept(), (("Content-Type", "application/json"),))
        if not self._bucket.ready(self._clock()):
            text = b"try again in 5 seconds, or ask for 24 or 840 hours\n"
            return Reply(HTTPStatus.TOO_MANY_REQUESTS, text, (*_TEXT, ("Retry-After", "5")))
        self._bucket.take()
        return Reply(HTTPStatus.OK, usage.text(hours), (("Content-Type", "application/json"),))


class RefusedScrapes:
    """Logs refused and aborted requests: the first few at once, then one line every ten seconds."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._bucket = Bucket(burst=5, rate=0.1, now=monotonic())
        self._requests = 0

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Do nothing."""

    def refused(self, status: int) -> None:
        """Log a refused request, or only count it. A logged line has the number of requests since the previous line."""
        self._requests += 1
        if self._bucket.ready(monotonic()):
            self._bucket.take()
            self._log({"message": "scrape refused", "status": int(status), "requests": self._requests})
            self._requests = 0

    def shed(self) -> None:
        """Count a request that was turned away because too many were waiting."""
        self.refused(HTTPStatus.TOO_MANY_REQUESTS)


@contextmanager
def serving(metrics: Scraped, host: str, port: int, log: Log, usage: Answered | None = None) -> Iterator[None]:
    """Serve in a thread until the `with` block ends. Raises OSError if the address is not available."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(listening.log_exception)
    with listening.listener(host, port) as listener:
        task = loop.create_task(_served(listener, Pages(metrics, usage), RefusedScrapes(log)))
        thread = threading.Thread(target=_run, args=(loop, task), daemon=True, name="scrape")
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join()


def _run(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


async def _served(listener: socket.socket, pages: Pages, watch: RefusedScrapes) -> None:
    """Serve until it is cancelled. Limits of time are watched only while a connection is open: an idle port sleeps."""
    some = asyncio.Event()

    def counted(connections: int) -> None:
        if not connections:
            some.clear()
        elif not some.is_set():
            some.set()
            port.tick()  # it has the date of an answer

    port = Port(pages, OPEN, watch, count=counted)
    try:
        ticking = listening.every(listening.TICK, port.tick, some)
        await asyncio.gather(listening.accept(listener, port, lambda: None), ticking)
    finally:
        for connection in [*port.connections]:
            connection.abort()
        await asyncio.sleep(0)
