"""Serves the agent's metrics and health over plain HTTP. Anyone may reach the port, so requests are limited."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from time import monotonic
from typing import Protocol

from webhook.http import listening
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
    """What is served: metrics, and the seconds since the last look."""

    @property
    def age(self) -> float:
        """Seconds since the last look."""

    def text(self) -> bytes:
        """Return the metrics as Prometheus reads them."""


class Pages:
    """The application: /metrics and /healthz."""

    def __init__(self, metrics: Scraped) -> None:
        self._metrics = metrics

    def refusal(self, request: HttpRequest) -> Reply | None:
        """Refuse anything but a GET or HEAD without a body."""
        if request.method not in ("GET", "HEAD") or request.length:
            return Reply(HTTPStatus.METHOD_NOT_ALLOWED, headers=(("Allow", "GET, HEAD"),))
        return None

    def __call__(self, request: HttpRequest) -> Reply:
        """Answer a request."""
        if request.path == "/metrics":
            return Reply(HTTPStatus.OK, self._metrics.text(), (("Content-Type", CONTENT_TYPE),))
        if request.path != "/healthz":
            return Reply(HTTPStatus.NOT_FOUND, b"only /metrics and /healthz\n", _TEXT)
        if self._metrics.age > SILENT:
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, b"no look for a minute\n", _TEXT)
        return Reply(HTTPStatus.OK, b"ok\n", _TEXT)


class RefusedScrapes:
    """Logs refused and aborted requests: the first few at once, then one line every ten seconds."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._bucket = Bucket(burst=5, rate=0.1, now=monotonic())
        self._requests = 0

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Do nothing."""

    def refused(self, status: int) -> None:
        """Log or count a refused request. A line includes the number of requests since the previous line."""
        self._requests += 1
        if self._bucket.ready(monotonic()):
            self._bucket.take()
            self._log({"message": "scrape refused", "status": int(status), "requests": self._requests})
            self._requests = 0

    def shed(self) -> None:
        """Count a request that was turned away because too many were waiting."""
        self.refused(HTTPStatus.TOO_MANY_REQUESTS)


@contextmanager
def serving(metrics: Scraped, host: str, port: int, log: Log) -> Iterator[None]:
    """Serve in a thread until the block ends. Raises OSError if the address is not available."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(listening.log_exception)
    with listening.listener(host, port) as listener:
        task = loop.create_task(_served(listener, Pages(metrics), RefusedScrapes(log)))
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
    port = Port(pages, OPEN, watch)
    try:
        await asyncio.gather(listening.accept(listener, port, lambda: None), listening.every(listening.TICK, port.tick))
    finally:
        for connection in [*port.connections]:
            connection.abort()
        await asyncio.sleep(0)
