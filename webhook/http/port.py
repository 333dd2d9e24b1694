"""Serves HTTP/1.1 by aiohttp, with limits, so that a slow, silent or hostile peer does not affect others.

aiohttp reads requests with llhttp, the parser of Node.js, and refuses ambiguous ones. This module adds limits of time,
size and number, and the order of answers, which aiohttp does not have.
"""

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from email.utils import formatdate
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, cast

from aiohttp import HttpVersion10, HttpVersion11, web

from webhook.http.connection import Answer, Connection, Crowded, Watch
from webhook.http.limits import ServerLimits
from webhook.http.messages import Application, HttpRequest, Later, Reply
from webhook.http.queue import Exchange, RequestQueue
from webhook.http.turns import ORDINARY

if TYPE_CHECKING:
    import socket


SHED = Reply(HTTPStatus.TOO_MANY_REQUESTS, b"", (("Retry-After", "1"),))
"""The answer if too many requests wait. The API server tries again after Retry-After (client-go rest/with_retry.go).
"""


LATER, ASIDE = 64, 4
"""Maximum requests of a port that wait for data that their answers need, and threads in which they wait."""


class Port:
    """The state that all connections to one port share: the application, its limits, and the queue.

    With `names`, a caller's certificate must have one of them. `refused_caller` receives the names of a refused caller,
    at each of its requests. `count` receives the number of connections whenever it changes. `lock` is taken while a
    large request is answered.
    """

    def __init__(
        self,
        app: Application,
        limits: ServerLimits,
        watch: Watch,
        names: frozenset[str] = frozenset(),
        count: Callable[[int], None] = lambda _: None,
        refused_caller: Callable[[frozenset[str]], None] = lambda _: None,
        lock: AbstractContextManager[object] = nullcontext(),  # noqa: B008 - it has no state
    ) -> None:
        self.limits = limits
        self.watch = watch
        self.names = names
        self.draining = False
        self.date = ""
        self.connections: set[Connection] = set()
        self.unverified: dict[Connection, None] = {}
        """Connections that wait for their peer: to send a whole request, or to read its answer. The oldest first."""
        self.idle: dict[Connection, None] = {}
        """Connections whose requests were all answered: the longest idle first."""
        self.bodies: dict[Connection, None] = {}
        """Connections that receive a large body: the oldest first."""
        self.writing: dict[Connection, bytes] = {}
        """Connections that write an answer of several pieces, the oldest first, with its body."""
        self.loop = asyncio.get_running_loop()
        self.receiving = 0
        """Bytes of requests that are not whole yet, without the large bodies."""
        self.buffered = 0
        """Bytes of the largest body of each connection, if it is larger than an ordinary one."""
        self.queue = RequestQueue(app, limits, self.loop, lock)
        self.server = web.Server(self._handle)
        self._app = app
        self._count = count
        self._refused_caller = refused_caller
        self._later = 0
        self._aside: ThreadPoolExecutor | None = None
        count(0)  # a worker that died in this place may have left another number
        self.tick()

    # Connections

    def open(self, peer: "socket.socket", context: ssl.SSLContext | None) -> None:
        """Serve an accepted connection.

        At the limit, an older connection is closed to make room: first the one that has waited longest for its peer,
        then the one that has been idle longest. So idle and slow peers cannot block others. With `waiting_yield`, the
        connection whose request has waited longest is closed before these. Without it, a connection whose request was
        received whole is never closed; if all connections have such requests, the new one is closed.
        """
        if len(self.connections) >= self.limits.connections and not self._make_room():
            peer.close()
            return
        connection = Connection(self)
        self.connections.add(connection)
        self._count(len(self.connections))
        self.unverified[connection] = None
        connection.arriving = self.loop.create_task(self._handshake(connection, peer, context))
        # A task that is cancelled before it starts never takes the socket, so the socket is closed here.
        connection.arriving.add_done_callback(lambda task: peer.close() if task.cancelled() else None)

    def _make_room(self) -> bool:
        """Close one connection. False if none may be closed."""
        if self.limits.waiting_yield and self.queue.give_way():
            return True
        oldest = next(iter(self.unverified or self.idle), None)
        if oldest is None:
            return False
        oldest.abort()
        return True

    async def _handshake(self, connection: "Connection", peer: "socket.socket", context: ssl.SSLContext | None) -> None:
        try:
            if context is None:
                await self.loop.connect_accepted_socket(lambda: connection, peer)
            else:
                await self._shake(connection, peer, context)
        except OSError:  # the handshake failed or took too long
            self.forget(connection)
        finally:
            connection.arriving = None

    async def _shake(self, connection: "Connection", peer: "socket.socket", context: ssl.SSLContext) -> None:
        """Wait for a handshake. Raises OSError if it fails."""
        from webhook.http.meter import Meter  # loads uvloop, which ports without TLS do not need

        meter = Meter(self.loop, connection, context, self.limits)
        try:
            await self.loop.connect_accepted_socket(lambda: meter, peer)  # noqa: F821 - not deleted yet
            await meter.shaken
        except BaseException:
            meter.close()
            raise
        finally:
            del meter  # it refers to the exception: the cycle would stay until a garbage collection

    def forget(self, connection: "Connection") -> None:
        """Remove a connection that has ended."""
        self.connections.discard(connection)
        self._count(len(self.connections))
        self.idle.pop(connection, None)
        self.writing.pop(connection, None)
        self.whole(connection)
        self.release(connection)
        self.buffered -= connection.buffered
        connection.buffered = 0

    def buffers(self, connection: "Connection", length: int) -> bool:
        """Count the length of a body. Return whether there is memory for the buffers that TLS keeps after such a body.

        A connection for which there is none ends with its answer, so that many idle peers cannot take memory with one
        body each. Ordinary bodies do not count.
        """
        if length <= ORDINARY:
            return True
        if connection in self.connections and length > connection.buffered:
            self.buffered += length - connection.buffered
            connection.buffered = length
        return self.buffered <= self.limits.buffered_bytes

    def receives(self, connection: "Connection") -> None:
        """Record that a peer has begun to send a request."""
        self.idle.pop(connection, None)
        self.unverified.pop(connection, None)
        if connection in self.connections:
            self.unverified[connection] = None

    def received(self, connection: "Connection", count: int) -> bool:
        """Count bytes of an incomplete request. Return whether this connection is still open.

        Beyond the limit, the connections are closed that have been sending their request for longest. Large bodies have
        a limit of their own.
        """
        if connection in self.bodies:
            self._grow(connection, count)
        elif connection in self.connections:
            connection.received += count
            self.receiving += count
        while self.receiving > self.limits.receiving_bytes:
            next(each for each in self.unverified if each.received).abort()
        return connection in self.connections

    def whole(self, connection: "Connection") -> None:
        """Record that nothing more of a request is expected."""
        self.unverified.pop(connection, None)
        self.receiving -= connection.received
        connection.received = 0

    def release(self, connection: "Connection") -> None:
        """Release the share of `large_bytes` that a connection uses while it receives a large body."""
        self.bodies.pop(connection, None)
        self.queue.large -= connection.large
        connection.large = 0

    def begin_large(self, connection: "Connection", came: int) -> bool:
        """Count the bytes that `came` of a large body against the limit `large_bytes`. Return whether there is room.

        Bytes count as they arrive, so an announced length takes no room from others.
        """
        if connection not in self.connections:
            return True  # the caller sees that it is gone
        self.bodies[connection] = None
        moved = min(came, connection.received)
        connection.received -= moved
        self.receiving -= moved
        self._grow(connection, came)
        return connection in self.bodies

    def _grow(self, connection: "Connection", count: int) -> None:
        """Count bytes of a large body.

        Beyond the limit, the bodies that began last are refused with 429, so that others can be completed.
        """
        connection.large += count
        self.queue.large += count
        while self.queue.large > self.limits.large_bytes and self.bodies:
            last = next(reversed(self.bodies))
            self.release(last)
            last.crowd_out()

    def end_large(self, connection: "Connection", length: int) -> int:
        """Return how many bytes of `large_bytes` a complete large body uses.

        0 if the body was dropped to free memory.
        """
        if connection not in self.bodies:
            return 0
        self.release(connection)
        self.queue.large += length
        return length

    def rests(self, connection: "Connection") -> None:
        """Record that a connection is idle. It may be closed to make room, until its next request begins."""
        self.whole(connection)
        if connection in self.connections:
            self.idle[connection] = None

    def waits_for(self, connection: "Connection") -> None:
        """Record that a connection waits for its peer to read the answer, unless it has ended meanwhile."""
        if connection in self.connections:
            self.unverified[connection] = None

    def writes(self, connection: "Connection", body: bytes) -> None:
        """Record that a connection begins to write an answer of several pieces.

        Beyond the limit of memory, the connections that began first are closed. Who reads quickly has ended before.
        """
        self.writing[connection] = body
        while len(self.writing) > 1 and self._unread(body) > self.limits.answer_bytes:
            next(iter(self.writing)).abort()

    def _unread(self, newest: bytes) -> int:
        """Return how many bytes the answers that are being written take, without the newest one."""
        different = {id(body): len(body) for body in self.writing.values() if body is not newest}
        return sum(different.values())

    def tick(self) -> None:
        """Close or refuse the connections whose time is over. Called several times a second."""
        self.date = formatdate(usegmt=True)
        now = monotonic()
        for connection in [connection for connection in self.connections if connection.until < now]:
            connection.out_of_time()

    def drain(self) -> None:
        """End every connection: after its next answer, or after a short wait if it sends no request."""
        self.draining = True
        for connection in self.connections:
            connection.drain()

    # Requests

    async def _handle(self, asked: web.BaseRequest) -> "Answer":
        """Refuse a request by its head, or read its body and queue it."""
        connection = cast("Connection", asked.protocol)
        request = connection.begin(asked)
        length, reply = request.length, self._refusal(connection, asked, request)
        is_large = length > self.limits.small_bytes
        if reply is None and is_large and not self.begin_large(connection, asked.content.total_bytes):
            reply = SHED
        if reply is not None:
            return self._refused(reply, last=length > 0 or reply.status == HTTPStatus.BAD_REQUEST)
        try:
            try:
                body = await connection.body(asked, length)
            except TimeoutError:
                return self._refused(Reply(HTTPStatus.REQUEST_TIMEOUT), last=True)
            except Crowded:
                self.whole(connection)
                return self._refused(SHED, last=True)
            except ConnectionError:
                body = []
            if connection not in self.connections:  # the peer is gone, or was closed to make room for another
                return Answer(SHED, last=True)
            self.whole(connection)
            large = self.end_large(connection, length) if is_large else 0
            if is_large and not large:
                return self._refused(SHED, last=True)
            whole = request._replace(body=body)
            exchange = Exchange(whole, length, large, self.loop.create_future(), connection.abort)
            connection.exchange = exchange
            answered = await self._turn(exchange)
            reply = await self._after(answered, exchange, connection) if isinstance(answered, Later) else answered
            if reply is SHED:
                return self._refused(SHED)
            self.watch.answered(request.path, reply.status, monotonic() - request.arrived)
            return Answer(reply)
        finally:
            self.release(connection)
            connection.exchange = None

    async def _turn(self, exchange: Exchange) -> Reply | Later:
        """Wait until it is a request's turn, and answer it; SHED if too many wait."""
        reply = self.queue.at_once(exchange)
        if reply is not None:
            return reply
        if not self.queue.add(exchange):
            self.queue.release(exchange)
            return SHED
        return await exchange.reply

    async def _after(self, later: Later, exchange: Exchange, connection: "Connection") -> Reply:
        """Wait in a thread for the data that an answer needs, then answer the request; SHED if too many wait."""
        request, large = exchange.request._replace(final=True), 0
        if request.length > self.limits.small_bytes:
            large = request.length
        if self._later >= LATER or self.queue.large + large > self.limits.large_bytes:
            return SHED
        self._aside = self._aside or ThreadPoolExecutor(ASIDE, "later")
        self._later += 1
        try:
            await self.loop.run_in_executor(self._aside, later.wait)
        finally:
            self._later -= 1
        self.queue.large += large
        future = self.loop.create_future()
        connection.exchange = again = Exchange(request, request.length, large, future, connection.abort)
        answered = await self._turn(again)
        return Reply(HTTPStatus.INTERNAL_SERVER_ERROR) if isinstance(answered, Later) else answered

    def _refusal(self, connection: "Connection", asked: web.BaseRequest, request: HttpRequest) -> Reply | None:
        headers = request.headers
        if (
            asked.version not in (HttpVersion10, HttpVersion11)
            or request.method == "CONNECT"
            or "Upgrade" in headers
            or "Transfer-Encoding" in headers  # the API server says how long its body is
            or "," in headers.get("Host", "")
        ):
            return Reply(HTTPStatus.BAD_REQUEST)
        if connection.strange is not None:
            self._refused_caller(connection.strange)
            return Reply(HTTPStatus.FORBIDDEN)
        if (expected := headers.get("Expect")) is not None and expected.lower() != "100-continue":
            return Reply(HTTPStatus.EXPECTATION_FAILED)
        if (reply := self._app.refusal(request)) is not None:
            return reply
        return Reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE) if request.length > self.limits.body_bytes else None

    def _refused(self, reply: Reply, *, last: bool = False) -> "Answer":
        if reply is SHED:
            self.watch.shed()
        else:
            self.watch.refused(reply.status)
        return Answer(reply, last=last)
