"""HTTP/1.1 by aiohttp, within limits, so that a slow, silent or hostile peer costs others nothing.

aiohttp reads requests with llhttp, the parser of Node.js, and refuses ambiguous ones. This module adds what aiohttp
leaves to its users: limits of time, size and number, and the order of answers.
"""

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from email.utils import formatdate
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import unquote_to_bytes

from aiohttp import HttpVersion10, HttpVersion11, web

from webhook.serving import tls
from webhook.serving.limits import Limits
from webhook.serving.messages import Application, HttpRequest, Reply
from webhook.serving.turns import Turns

if TYPE_CHECKING:
    import socket


SHED = Reply(HTTPStatus.TOO_MANY_REQUESTS, b"", (("Retry-After", "1"),))
"""The answer when too much waits. The API server tries again after Retry-After (client-go rest/with_retry.go)."""


MOMENT = 0.002
"""Seconds for which reviews are answered before new data is read. A single review may take longer."""


class Watch(Protocol):
    """Counts what happens to requests."""

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count an answer, with the seconds since the first byte of the request."""

    def refused(self, status: int) -> None:
        """Count a request that was refused without a look at its body."""

    def shed(self) -> None:
        """Count a request that was turned away because too much waited."""


class Exchange:
    """A request in the queue, and its answer."""

    __slots__ = ("large", "reply", "request", "size")

    def __init__(self, request: HttpRequest, size: int, large: int, reply: "asyncio.Future[Reply]") -> None:
        self.request = request
        self.size = size
        self.large = large
        """Bytes that it takes of those that large bodies share."""
        self.reply = reply


class Port:
    """The state that all connections to one port share: the application, its limits, and the queue.

    With `names`, a caller's certificate must have one of them. `stranger` receives the names of a refused caller, at
    each of its requests. `count` receives the number of connections whenever it changes. `alone` is held while a large
    request is answered.
    """

    def __init__(
        self,
        app: Application,
        limits: Limits,
        watch: Watch,
        names: frozenset[str] = frozenset(),
        count: Callable[[int], None] = lambda _: None,
        stranger: Callable[[frozenset[str]], None] = lambda _: None,
        alone: AbstractContextManager[object] = nullcontext(),  # noqa: B008 - it has no state
    ) -> None:
        self.limits = limits
        self.watch = watch
        self.names = names
        self.draining = False
        self.large = 0
        self.date = ""
        self.connections: set[Connection] = set()
        self.strangers: dict[Connection, None] = {}
        """Connections that have not asked anything yet, the oldest first."""
        self.loop = asyncio.get_running_loop()
        self.server = web.Server(self._handle)
        self._app = app
        self._count = count
        self._stranger = stranger
        self._alone = alone
        self._small: Turns[Exchange] = Turns(limits.waiting)
        self._large: Turns[Exchange] = Turns(limits.large_waiting)
        self._free = True
        """Whether the next small request need not wait, for nobody does, and what has arrived was read."""
        self._aside: ThreadPoolExecutor | None = None
        self._judged: Exchange | None = None
        count(0)  # a worker that died in this place may have left another number
        self.tick()

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return len(self._small) + len(self._large)

    # Connections

    def open(self, peer: "socket.socket", context: ssl.SSLContext | None) -> None:
        """Serve an accepted connection. At the limit, the oldest connection without any request is closed instead."""
        if len(self.connections) >= self.limits.connections:
            if not self.strangers:
                peer.close()
                return
            next(iter(self.strangers)).abort()
        connection = Connection(self)
        self.connections.add(connection)
        self._count(len(self.connections))
        self.strangers[connection] = None
        connection.arriving = self.loop.create_task(self._handshake(connection, peer, context))
        # One that made room before its first turn is in nobody else's hands.
        connection.arriving.add_done_callback(lambda task: peer.close() if task.cancelled() else None)

    async def _handshake(self, connection: "Connection", peer: "socket.socket", context: ssl.SSLContext | None) -> None:
        limits: dict[str, Any] = {}
        if context is not None:
            limits = {
                "ssl": context,
                "ssl_handshake_timeout": self.limits.handshake,
                "ssl_shutdown_timeout": self.limits.parting,
            }
        try:
            await self.loop.connect_accepted_socket(lambda: connection, peer, **limits)
        except OSError:  # no handshake, or none in time
            self.forget(connection)
        finally:
            connection.arriving = None

    def forget(self, connection: "Connection") -> None:
        """Remove a connection that has ended."""
        self.connections.discard(connection)
        self._count(len(self.connections))
        self.strangers.pop(connection, None)

    def tick(self) -> None:
        """Close or refuse the connections whose time is over. To be called several times a second."""
        self.date = formatdate(usegmt=True)
        now = monotonic()
        for connection in [connection for connection in self.connections if connection.until < now]:
            connection.out_of_time()

    def drain(self) -> None:
        """End every connection: with its next answer, or soon if it sends no request."""
        self.draining = True
        for connection in self.connections:
            connection.drain()

    # Requests

    async def _handle(self, asked: web.BaseRequest) -> "Answer":
        """Refuse a request by its head, or read its body and have it wait for its turn."""
        connection = cast("Connection", asked.protocol)
        request, large = connection.begin(asked), 0
        reply = self._refusal(connection, asked, request)
        if reply is None and request.length > self.limits.small_bytes:
            large = request.length
            if self.large + large > self.limits.large_bytes:
                reply = SHED
            else:
                self.large += large
        if reply is not None:
            return self._refused(reply, last=request.length > 0 or reply.status == HTTPStatus.BAD_REQUEST)
        exchange = None
        try:
            try:
                body = await connection.body(asked)
            except TimeoutError:
                return self._refused(Reply(HTTPStatus.REQUEST_TIMEOUT), last=True)
            self.strangers.pop(connection, None)
            exchange = Exchange(request._replace(body=body), request.length, large, self.loop.create_future())
            connection.exchange, large = exchange, 0
            if self._free and not exchange.large:
                self._free = False
                self.loop.call_soon(self._turn)
                reply = self._answer(exchange.request)
            elif self._take(exchange):
                reply = await exchange.reply
            else:
                self._release(exchange)
                return self._refused(SHED)
            self.watch.answered(request.path, reply.status, monotonic() - request.arrived)
            return Answer(reply)
        finally:
            self.large -= large
            connection.exchange = None

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
            self._stranger(connection.strange)
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

    def _take(self, exchange: Exchange) -> bool:
        """Put a request in the queue. False if the queue is full."""
        if not exchange.large:
            return self._small.add(exchange, exchange.size)
        taken = self._large.add(exchange, exchange.size)
        self._turn_aside()
        return taken

    def leave(self, exchange: Exchange) -> None:
        """Remove a request whose connection is gone, and release the memory of a large one."""
        self._small.remove(exchange)
        self._large.remove(exchange)
        exchange.reply.cancel()
        if exchange is not self._judged:
            self._release(exchange)

    def _release(self, exchange: Exchange) -> None:
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
            self.loop.call_soon(self._turn)

    def _answer(self, request: HttpRequest) -> Reply:
        try:
            return self._app(request)
        except Exception:  # any exception: the caller must get an answer
            return Reply(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _turn_aside(self) -> None:
        """Have a thread answer the next large request, one at a time, while small ones are answered here.

        A large review takes as long as a thousand others. The interpreter switches between the two threads
        (`sys.setswitchinterval`), so the small ones keep at least half their speed.
        """
        if self._judged is not None or not self._large:
            return
        self._judged = exchange = self._large.next()
        self._aside = self._aside or ThreadPoolExecutor(1, "large")
        judging = self.loop.run_in_executor(self._aside, self._answer_alone, exchange.request)
        judging.add_done_callback(lambda done: self._answered_aside(exchange, done.result()))

    def _answer_alone(self, request: HttpRequest) -> Reply:
        with self._alone:
            return self._answer(request)

    def _answered_aside(self, exchange: Exchange, reply: Reply) -> None:
        self._judged = None
        self._turn_aside()
        self._release(exchange)
        if not exchange.reply.done():
            exchange.reply.set_result(reply)


@lru_cache(64)
def _line(status: HTTPStatus) -> str:
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n"


def _written(reply: Reply, date: str, *, bare: bool, last: bool) -> bytes:
    """Return an answer as bytes. `bare` leaves out the body, for HEAD; `last` says that the connection ends."""
    status, body, headers = reply
    head = f"{_line(status)}Date: {date}\r\n"
    sized = False
    for name, value in headers:
        head += f"{name}: {value}\r\n"
        sized = sized or name.lower() == "content-length"
    if not sized:
        head += f"Content-Length: {len(body)}\r\n"
    if last:
        head += "Connection: close\r\n"
    # A client would read a body after HEAD as the next answer.
    return f"{head}\r\n".encode("latin-1") + (b"" if bare else body)


class Answer(web.StreamResponse):
    """A reply that writes itself, in a fifth of the time that aiohttp's own responses take."""

    def __init__(self, reply: Reply, *, last: bool = False) -> None:
        super().__init__()
        self._reply = reply
        self._last = last

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open."""
        return not self._last

    async def prepare(self, request: web.BaseRequest) -> None:
        """Write all of it. Raises ConnectionError when the peer is gone."""
        connection = cast("Connection", request.protocol)
        self._last = self._last or not connection.keeps(request)
        await connection.write(self._reply, request, last=self._last)

    async def write_eof(self, data: bytes = b"") -> None:
        """Add nothing."""


class Stage(Enum):
    """The state of a connection."""

    IDLE = "between requests"
    HEAD = "reading the request line and headers"
    BODY = "reading the body"
    WAITING = "waiting for the turn"
    WRITING = "waiting until the peer reads the answer"


class Connection(web.RequestHandler):
    """One peer. Its requests are read and answered one after the other."""

    arriving: "asyncio.Task[None] | None" = None
    """The handshake, while it lasts."""

    def __init__(self, port: Port) -> None:
        limits = port.limits
        super().__init__(
            port.server,
            loop=port.loop,
            keepalive_timeout=limits.idle,
            tcp_keepalive=False,
            access_log=None,  # type: ignore[arg-type]  # which the server documents
            max_line_size=limits.line_bytes,
            max_headers=limits.headers,
            max_field_size=limits.line_bytes,
            lingering_time=limits.parting,
            auto_decompress=False,
        )
        self.until = float("inf")
        """When the time of the present stage is used up; that between requests is measured by aiohttp."""
        self.strange: frozenset[str] | None = None
        """The names of a caller whose certificate bears no allowed one."""
        self.exchange: Exchange | None = None
        self._port = port
        self._limits = limits
        self._stage = Stage.IDLE
        self._arrived = 0.0
        self._head_bytes = 0
        self._end = b""
        self._ahead = False
        self._wire: asyncio.Transport | None = None

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wire = cast("asyncio.Transport", transport)
        if self._port.names:
            names = tls.names(transport.get_extra_info("peercert"))
            self.strange = None if names & self._port.names else names

    def connection_lost(self, error: BaseException | None) -> None:
        """Forget the connection and its request."""
        super().connection_lost(error)
        if self.exchange is not None:
            self._port.leave(self.exchange)
        self._port.forget(self)

    def data_received(self, data: bytes) -> None:
        """Read more of the current request."""
        if self._stage in (Stage.WAITING, Stage.WRITING):
            # The answer will be the last one. A client that pipelines must expect that (RFC 9112, 9.3.2).
            self._ahead = self._ahead or bool(data)
            return
        if self._stage is Stage.IDLE and (begun := data.lstrip(b"\r\n")):
            self._head()
            self._read_head(begun)
        elif self._stage is Stage.HEAD:
            self._read_head(data)
        super().data_received(data)

    def _head(self) -> None:
        self._stage = Stage.HEAD
        self._arrived = monotonic()
        self.until = self._arrived + self._limits.head
        self._head_bytes, self._end = 0, b""

    def _read_head(self, data: bytes) -> None:
        """Detect the end of the head, or a head that is too long: aiohttp limits only its single lines."""
        self._head_bytes += len(data)
        self._end += data
        if b"\r\n\r\n" in self._end:
            self._stage = Stage.BODY
            self.until = float("inf")
        elif self._head_bytes > self._limits.head_bytes:
            self._cut_off(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        self._end = self._end[-3:]

    # One request

    def begin(self, asked: web.BaseRequest) -> HttpRequest:
        """Return the request of a complete head."""
        if self._stage is Stage.IDLE:  # its head came together with the previous request
            self._head()
        self._stage = Stage.WAITING if asked.content.is_eof() else Stage.BODY
        self.until = float("inf")
        url = asked.rel_url
        path = url.raw_path
        if "%" in path or not path.isascii():
            path = unquote_to_bytes(path.encode("utf-8", "surrogateescape")).decode("latin-1")
        return HttpRequest(asked.method, path, url.raw_query_string, asked.headers, self._arrived)

    async def body(self, asked: web.BaseRequest) -> list[bytes]:
        """Read the body. Raises TimeoutError, and ConnectionError when the peer is gone."""
        content = asked.content
        if content.is_eof():
            return [content.read_nowait()]
        parts = []
        async with asyncio.timeout(self._limits.body):
            if "Expect" in asked.headers and self.transport is not None:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            while not content.at_eof():
                parts.append(await content.readany())
        self._stage = Stage.WAITING
        return parts

    def keeps(self, asked: web.BaseRequest) -> bool:
        """Tell whether another request may follow this one."""
        return asked.keep_alive and asked.version == HttpVersion11 and not (self._ahead or self._port.draining)

    async def write(self, reply: Reply, asked: web.BaseRequest, *, last: bool) -> None:
        """Write an answer, and wait while the peer does not read. Raises ConnectionError when the peer is gone."""
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError
        self.transport.write(_written(reply, self._port.date, bare=asked.method == "HEAD", last=last))
        if self.writing_paused:
            self._stage = Stage.WRITING
            self.until = monotonic() + self._limits.idle
            await asked.writer.drain()
        if last:  # further data is dropped
            self._stage = Stage.BODY
            self.until = monotonic() + self._limits.parting + 1
        else:
            self._stage = Stage.IDLE
            self.until = float("inf")

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - as aiohttp calls it
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - as aiohttp calls it
    ) -> web.StreamResponse:
        """Refuse an unreadable request, without a body. Raises ConnectionError if the peer is gone."""
        if isinstance(exc, ConnectionError):
            raise exc
        self._port.watch.refused(status)
        return Answer(Reply(HTTPStatus(status)), last=True)

    def log_exception(self, *words: Any, **more: Any) -> None:
        """Pass an unexpected exception of aiohttp to the loop's handler."""
        self._port.loop.call_exception_handler({"message": str(words[0]), "exception": more.get("exc_info")})

    # Ends

    def drain(self) -> None:
        """Wait a short time for one more request, which may be on its way."""
        if self._stage is Stage.IDLE:
            self.until = monotonic() + self._limits.parting

    def out_of_time(self) -> None:
        """End the stage that took too long."""
        if self._stage is Stage.HEAD:
            self._cut_off(HTTPStatus.REQUEST_TIMEOUT)
        elif self._stage is Stage.IDLE:
            self._part()
        else:
            self.abort()

    def _cut_off(self, status: HTTPStatus) -> None:
        """Refuse a request whose head is not complete."""
        self._port.watch.refused(status)
        if self.transport is not None:
            self.transport.write(_written(Reply(status), self._port.date, bare=False, last=True))
        self._part()

    def _part(self) -> None:
        self.until = monotonic() + self._limits.parting
        self._stage = Stage.WRITING
        self.force_close()

    def abort(self) -> None:
        """End the connection at once."""
        self._port.forget(self)
        if self.arriving is not None:
            self.arriving.cancel()
        if self._wire is not None:
            self._wire.abort()
