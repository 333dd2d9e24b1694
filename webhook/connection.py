"""HTTP/1.1 for a WSGI application, within limits: a peer that is slow, silent or hostile costs others nothing.

llhttp, the parser of Node.js, reads what comes in and refuses what two readers could understand differently; here
is what no parser decides: how long, how much and how many. One request of a connection is answered at a time.
"""

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from email.utils import formatdate
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, cast

import httptools

from webhook import tls, wsgi
from webhook.turns import Turns
from webhook.wsgi import ARRIVED, Reply, called

if TYPE_CHECKING:
    import socket

    from _typeshed.wsgi import WSGIEnvironment

    from webhook.wsgi import App


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, bytes and numbers; those of connections and requests are for each worker.

    The API server keeps idle connections for 90 s, and does not send a POST again on one that closed under it
    (client-go transport/cache.go).
    """

    handshake: float = 5.0
    head: float = 5.0
    body: float = 10.0
    idle: float = 120.0
    parting: float = 2.0
    """How long a connection that is to end is still read from, so that its peer gets to read our answer."""
    line_bytes: int = 8 * 1024
    headers: int = 64
    header_bytes: int = 32 * 1024
    body_bytes: int = 7 * 1024 * 1024
    small_bytes: int = 64 * 1024
    """Bodies up to this size are always taken. Larger ones share `large_bytes`, and are answered beside the others."""
    large_bytes: int = 4 * 7 * 1024 * 1024
    large_waiting: int = 16
    """Large ones that may wait for their turn; at 0.25 s each, they take 4 s."""
    connections: int = 1024
    waiting: int = 256
    """Others that may wait for their turn; at 0.15 ms each, they take 40 ms."""


SHED = Reply(HTTPStatus.TOO_MANY_REQUESTS, b"", (("Retry-After", "1"),))
"""The API server tries again after a Retry-After, within its deadline (client-go rest/with_retry.go)."""


class Watch(Protocol):
    """Is told what goes through."""

    def answered(self, path: str, status: int, seconds: float) -> None:
        """A request was answered, so long after its first byte."""

    def refused(self, status: int) -> None:
        """A request was refused before anything was made of it."""

    def shed(self) -> None:
        """A request was turned away because too much was waiting."""


class Port:
    """What all connections to one port share: the application, its limits, and the requests that wait.

    `refuse` may answer a request before its body is read. With `names`, a caller's certificate must bear one:
    `stranger` is told those of a caller that bears none, at each of its requests. `count` is told how many
    connections there are whenever that changes. `alone` is held while a large request is answered.
    """

    def __init__(
        self,
        app: "App",
        limits: Limits,
        watch: Watch,
        refuse: "Callable[[WSGIEnvironment], Reply | None]" = lambda _: None,
        names: frozenset[str] = frozenset(),
        count: Callable[[int], None] = lambda _: None,
        stranger: Callable[[frozenset[str]], None] = lambda _: None,
        alone: AbstractContextManager[object] = nullcontext(),  # noqa: B008 - it has no state
    ) -> None:
        self.limits = limits
        self.watch = watch
        self.refuse = refuse
        self.names = names
        self.count = count
        self.stranger = stranger
        self.alone = alone
        self.draining = False
        self.large = 0
        self.date = ""
        self.connections: set[Connection] = set()
        self.strangers: dict[Connection, None] = {}
        """Connections that have not asked anything yet, the oldest first."""
        self._app = app
        self._small: Turns[Connection] = Turns(limits.waiting)
        self._large: Turns[Connection] = Turns(limits.large_waiting)
        self._aside: ThreadPoolExecutor | None = None
        self._judged: Connection | None = None
        self._loop = asyncio.get_running_loop()
        count(0)  # of a worker in whose place another may have died over some
        self.tick()

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return len(self._small) + len(self._large)

    def open(self, peer: "socket.socket", context: ssl.SSLContext | None) -> None:
        """Begin to serve a connection that was accepted. At the limit the oldest that never asked makes room."""
        if len(self.connections) >= self.limits.connections:
            if not self.strangers:
                peer.close()
                return
            next(iter(self.strangers)).abort()
        connection = Connection(self)
        self.connections.add(connection)
        self.count(len(self.connections))
        self.strangers[connection] = None
        connection.arriving = self._loop.create_task(self._welcome(connection, peer, context))
        # One that made room before its first turn is in nobody else's hands.
        connection.arriving.add_done_callback(lambda task: peer.close() if task.cancelled() else None)

    async def _welcome(self, connection: "Connection", peer: "socket.socket", context: ssl.SSLContext | None) -> None:
        limits: dict[str, Any] = {}
        if context is not None:
            limits = {
                "ssl": context,
                "ssl_handshake_timeout": self.limits.handshake,
                "ssl_shutdown_timeout": self.limits.parting,
            }
        try:
            await self._loop.connect_accepted_socket(lambda: connection, peer, **limits)
        except OSError:  # no handshake, or none in time
            self.forget(connection)
        finally:
            connection.arriving = None

    def forget(self, connection: "Connection") -> None:
        """Let go of a connection that has ended."""
        self.connections.discard(connection)
        self.count(len(self.connections))
        self.strangers.pop(connection, None)

    def take(self, connection: "Connection") -> bool:
        """Put a connection's request in line; False when the line is full."""
        line, turn = (self._large, self._turn_aside) if connection.large else (self._small, self._turn)
        if not line.add(connection, connection.size):
            return False
        if len(line) == 1:
            self._loop.call_soon(turn)
        return True

    def leave(self, connection: "Connection") -> None:
        """Forget the request of a connection that is gone. What a large one holds in memory is free again."""
        self._small.remove(connection)
        self._large.remove(connection)
        if connection is not self._judged:
            self.release(connection)

    def release(self, connection: "Connection") -> None:
        """Have the memory of a large body for others."""
        self.large -= connection.large
        connection.large = 0

    def _turn(self) -> None:
        """Answer the next request; what has arrived meanwhile is read before the turn after it."""
        if not self._small:  # who waited is gone
            return
        connection = self._small.next()
        if self._small:
            self._loop.call_soon(self._turn)
        self._answered(connection, called(self._app, connection.request))

    def _turn_aside(self) -> None:
        """Have the next large request answered by a thread, one at a time, while others have their turns here.

        One large review takes as long as a thousand others. The interpreter has the two threads take turns
        (`sys.setswitchinterval`), so that the others go on at half their pace at worst.
        """
        if self._judged is not None or not self._large:
            return
        self._judged = connection = self._large.next()
        self._aside = self._aside or ThreadPoolExecutor(1, "large")
        judging = self._loop.run_in_executor(self._aside, self._called_alone, connection.request)
        judging.add_done_callback(lambda done: self._answered_aside(connection, done.result()))

    def _called_alone(self, environ: "WSGIEnvironment") -> Reply:
        with self.alone:
            return called(self._app, environ)

    def _answered_aside(self, connection: "Connection", reply: Reply) -> None:
        self._judged = None
        self._turn_aside()
        self._answered(connection, reply)
        self.release(connection)

    def _answered(self, connection: "Connection", reply: Reply) -> None:
        if not connection.gone:
            path, arrived = connection.request["PATH_INFO"], connection.request[ARRIVED]
            connection.answer(reply)
            self.watch.answered(path, reply.status, monotonic() - arrived)

    def tick(self) -> None:
        """Look which connections have used up their time; to be called a few times a second."""
        self.date = formatdate(usegmt=True)
        now = monotonic()
        for connection in [each for each in self.connections if each.until < now]:
            connection.out_of_time()

    def drain(self) -> None:
        """Have every connection end: with its next answer, or soon if it asks nothing."""
        self.draining = True
        for connection in self.connections:
            connection.drain()


@lru_cache(64)
def _line(status: HTTPStatus) -> str:
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n"


class Stage(Enum):
    """What a connection is at."""

    IDLE = "between requests"
    HEAD = "reading the request line and headers"
    BODY = "reading the body"
    WAITING = "waiting for the turn"
    PARTING = "ending; what still comes is dropped"


IDLE, HEAD, BODY, WAITING, PARTING = Stage

_MARKS = len(": \r\n")
_PARSING = (httptools.HttpParserError, httptools.HttpParserUpgrade)


class _Refused(Exception):
    """Ends the parsing of a request that is refused."""


class Connection(asyncio.Protocol):
    """One peer: its requests are read one after the other, and answered in that order."""

    arriving: "asyncio.Task[None] | None" = None
    """The handshake, while it lasts."""

    def __init__(self, port: Port) -> None:
        self.until = float("inf")
        """When the time of the present stage is used up."""
        self.gone = False
        self._port = port
        self._limits = port.limits
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._stage = IDLE
        self._last = False
        self._strange: frozenset[str] | None = None
        self.size = self.large = 0
        """Bytes of the body, and how many of them are taken from what large ones share."""
        self.request: WSGIEnvironment = {}

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        self._transport = cast("asyncio.Transport", transport)
        self.until = monotonic() + self._limits.idle
        if self._port.names:
            names = tls.names(transport.get_extra_info("peercert"))
            self._strange = None if names & self._port.names else names

    def connection_lost(self, _: Exception | None) -> None:
        """Forget it all."""
        self.gone = True
        del self._parser  # which holds this in turn
        self._port.leave(self)
        self._port.forget(self)

    def pause_writing(self) -> None:
        """Read nothing from a peer that does not read either."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Read on in the request that is under way."""
        if self._stage is PARTING:
            return
        if self._stage is WAITING:
            # Its answer will be the last one, and a client that sends ahead has to expect that (RFC 9112, 9.3.2).
            self._last = True
            return
        if self._stage is IDLE:
            self._begin()
        if self._stage is HEAD:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except _PARSING:
            if self._stage is WAITING:
                self._last = True
            elif self._stage is not PARTING:
                self._refuse(Reply(HTTPStatus.BAD_REQUEST))
            return
        if self._stage is HEAD and self._head_bytes > self._limits.line_bytes + self._limits.header_bytes:
            self._refuse(Reply(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    # The parser's calls

    def _begin(self) -> None:
        self._stage = HEAD
        self._arrived = monotonic()
        self.until = self._arrived + self._limits.head
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = self._header_bytes = 0
        self._chunks: list[bytes] = []
        self._bare = False

    def on_message_begin(self) -> None:
        """Note what was sent ahead."""
        if self._stage is WAITING:
            self._last = True
        elif self._stage is IDLE:  # answered while its data was still being read
            self._begin()

    def on_url(self, url: bytes) -> None:
        """Take in the target, or a part of it."""
        if self._stage is not HEAD:
            return
        self._url += url
        if len(self._parser.get_method()) + len(self._url) + len("  HTTP/1.1") > self._limits.line_bytes:
            self._refuse_and_stop(Reply(HTTPStatus.REQUEST_URI_TOO_LONG))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in one header."""
        if self._stage is not HEAD:
            return
        self._header_bytes += len(name) + len(value) + _MARKS
        self._headers.append((name, value))
        limits = self._limits
        if self._header_bytes > limits.header_bytes or len(self._headers) > limits.headers:
            self._refuse_and_stop(Reply(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def on_headers_complete(self) -> None:
        """Refuse the request, or be ready for its body."""
        if self._stage is not HEAD:
            return
        parser = self._parser
        version = parser.get_http_version()
        self._keep = version == "1.1" and parser.should_keep_alive()
        self._bare = parser.get_method() == b"HEAD"
        environ = self._environ(version)
        if environ is None or parser.should_upgrade():
            self._refuse_and_stop(Reply(HTTPStatus.BAD_REQUEST))
            return
        self.request = environ
        self.size = length = int(environ.get("CONTENT_LENGTH") or 0)
        self._reply = self._refusal(environ, length)
        if length and self._reply is not None:
            self._refuse_and_stop(self._reply)
        if length:
            self._stage = BODY
            self.until = monotonic() + self._limits.body
            if "HTTP_EXPECT" in environ:
                self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _refusal(self, environ: "WSGIEnvironment", length: int) -> Reply | None:
        limits = self._limits
        if self._strange is not None:
            self._port.stranger(self._strange)
            return Reply(HTTPStatus.FORBIDDEN)
        if (expected := environ.get("HTTP_EXPECT")) is not None and expected.lower() != "100-continue":
            return Reply(HTTPStatus.EXPECTATION_FAILED)
        if (reply := self._port.refuse(environ)) is not None:
            return reply
        if length > limits.body_bytes:
            return Reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if length > limits.small_bytes:
            if self._port.large + length > limits.large_bytes:
                self._port.watch.shed()
                return SHED
            self.large = length
            self._port.large += length
        return None

    def _environ(self, version: str) -> "WSGIEnvironment | None":
        """The request as WSGI has it; None for one that cannot be meant well."""
        target, _, query = self._url.partition(b"?")
        if not target.startswith(b"/"):
            url = httptools.parse_url(self._url)
            target, query = url.path or b"/", url.query or b""
        return wsgi.environment(self._parser.get_method(), target, query, version, self._headers, self._arrived)

    def on_body(self, body: bytes) -> None:
        """Take in a part of the body."""
        if self._stage is BODY:
            self._chunks.append(body)

    def on_message_complete(self) -> None:
        """Have the request wait for its turn."""
        if self._stage not in (HEAD, BODY):
            return
        self._stage = WAITING
        self.until = float("inf")
        if self._reply is not None:
            self._port.watch.refused(self._reply.status)
            self.answer(self._reply)
            return
        self.request["wsgi.input"] = wsgi.Body(self._chunks)
        self._chunks = []
        self._port.strangers.pop(self, None)
        if not self._port.take(self):
            self._port.watch.shed()
            self.answer(SHED)

    # Answers

    def answer(self, reply: Reply) -> None:
        """Answer the request that waited; wait for the next, unless this was to be the last."""
        if self.gone or self._transport is None or self._transport.is_closing():
            return
        self._port.release(self)
        self.request = {}
        keep = self._keep and not self._last and not self._port.draining
        self._send(reply, keep=keep)
        if keep:
            self._stage = IDLE
            self.until = monotonic() + self._limits.idle
        else:
            self._part()
            self._transport.close()

    def _refuse_and_stop(self, reply: Reply) -> None:
        """Refuse a request that has not been read to its end, from within the parser."""
        self._refuse(reply)
        raise _Refused

    def _refuse(self, reply: Reply) -> None:
        """Answer, and read no more of what comes: it may belong to the request that was refused."""
        if reply is not SHED:
            self._port.watch.refused(reply.status)
        self._send(reply, keep=False)
        self._part()

    def _part(self) -> None:
        self._stage = PARTING
        self._chunks = []
        self.until = monotonic() + self._limits.parting

    def _send(self, reply: Reply, *, keep: bool) -> None:
        status, body, headers = reply
        head = f"{_line(status)}Date: {self._port.date}\r\n"
        sized = False
        for name, value in headers:
            head += f"{name}: {value}\r\n"
            sized = sized or name.lower() == "content-length"
        if not sized:
            head += f"Content-Length: {len(body)}\r\n"
        if not keep:
            head += "Connection: close\r\n"
        # A client takes a body that follows its HEAD for the next answer.
        self._write(f"{head}\r\n".encode("latin-1") + (b"" if self._bare else body))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # Ends

    def drain(self) -> None:
        """Wait for one more request, which a peer may be sending this moment, but not for long."""
        if self._stage is IDLE:
            self.until = monotonic() + self._limits.parting

    def out_of_time(self) -> None:
        """End what has lasted too long."""
        if self._stage is PARTING or self._transport is None:
            self.abort()
            return
        if self._stage is not IDLE:
            self._port.watch.refused(HTTPStatus.REQUEST_TIMEOUT)
            self._send(Reply(HTTPStatus.REQUEST_TIMEOUT), keep=False)
        self._part()
        self._transport.close()

    def abort(self) -> None:
        """End it at once."""
        self._port.forget(self)
        if self.arriving is not None:
            self.arriving.cancel()
        if self._transport is not None:
            self._transport.abort()
