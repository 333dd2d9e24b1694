"""Queues requests and answers them: small ones in turn, in the event loop, and large ones in a thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from http import HTTPStatus
from time import monotonic

from webhook.http.limits import ServerLimits
from webhook.http.messages import Application, HttpRequest, Later, Reply
from webhook.http.turns import FairQueue

MOMENT = 0.002
"""Seconds spent answering reviews before new data is read. A single review may take longer."""


class Exchange:
    """A request in the queue, its answer, and the function that closes its connection."""

    __slots__ = ("abort", "large", "reply", "request", "size")

    def __init__(
        self,
        request: HttpRequest,
        size: int,
        large: int,
        reply: "asyncio.Future[Reply | Later]",
        abort: Callable[[], None],
    ) -> None:
        self.request = request
        self.size = size
        self.large = large
        """The bytes that it uses of those that large bodies share."""
        self.reply = reply
        self.abort = abort


class RequestQueue:
    """The queue of the requests of one port. `lock` is taken while a large request is answered."""

    def __init__(
        self,
        app: Application,
        limits: ServerLimits,
        loop: asyncio.AbstractEventLoop,
        lock: AbstractContextManager[object],
    ) -> None:
        self.large = 0
        """Bytes of the large bodies that are being received, wait or are answered."""
        self._app = app
        self._loop = loop
        self._lock = lock
        self._small: FairQueue[Exchange] = FairQueue(limits.waiting)
        self._large: FairQueue[Exchange] = FairQueue(limits.large_waiting)
        self._free = True
        """Whether the next small request need not wait, since none waits and all new data is read."""
        self._aside: ThreadPoolExecutor | None = None
        self._judged: Exchange | None = None

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len(self._small) + len(self._large)

    def at_once(self, exchange: Exchange) -> Reply | Later | None:
        """Answer a probe immediately, and a small request if no other waits. Otherwise return None."""
        if self._app.is_probe(exchange.request):
            return self._answer(exchange.request)
        if not self._free or exchange.large:
            return None
        self._free = False
        self._loop.call_soon(self._turn)
        return self._answer(exchange.request)

    def add(self, exchange: Exchange) -> bool:
        """Add a request. Returns false if the queue is full."""
        if not exchange.large:
            return self._small.add(exchange, exchange.size)
        added = self._large.add(exchange, exchange.size)
        self._turn_aside()
        return added

    def leave(self, exchange: Exchange) -> None:
        """Remove a request whose connection is gone, and release the memory of a large one."""
        self._small.remove(exchange)
        self._large.remove(exchange)
        exchange.reply.cancel()
        if exchange is not self._judged:
            self.release(exchange)

    def give_way(self) -> bool:
        """Close the connection of the small request that has waited longest. Returns false if none waits."""
        if not self._small:
            return False
        self._small.pop_oldest().abort()
        return True

    def release(self, exchange: Exchange) -> None:
        """Release the memory of a large request."""
        self.large -= exchange.large
        exchange.large = 0

    def _turn(self) -> None:
        """Answer requests from the queue for a moment. Then new data is read before the next turn."""
        end = monotonic() + MOMENT
        while self._small:
            exchange = self._small.next()
            exchange.reply.set_result(self._answer(exchange.request))
            if monotonic() > end:
                break
        self._free = not self._small
        if not self._free:
            self._loop.call_soon(self._turn)

    def _answer(self, request: HttpRequest) -> Reply | Later:
        try:
            return self._app(request)
        except Exception:  # any exception: the caller must get an answer
            return Reply(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _turn_aside(self) -> None:
        """Let a thread answer the next large request, one at a time, while small ones are answered here.

        A large review takes as long as a thousand others. The interpreter switches between the two threads
        (`sys.setswitchinterval`), so the small ones keep at least half their speed.
        """
        if self._judged is not None or not self._large:
            return
        self._judged = exchange = self._large.next()
        self._aside = self._aside or ThreadPoolExecutor(1, "large")
        judging = self._loop.run_in_executor(self._aside, self._answer_locked, exchange.request)
        judging.add_done_callback(lambda done: self._answered_aside(exchange, done.result()))

    def _answer_locked(self, request: HttpRequest) -> Reply | Later:
        with self._lock:
            return self._answer(request)

    def _answered_aside(self, exchange: Exchange, reply: Reply | Later) -> None:
        self._judged = None
        self._turn_aside()
        self.release(exchange)
        if not exchange.reply.done():
            exchange.reply.set_result(reply)
