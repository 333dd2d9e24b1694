"""One HTTP/1.1 connection. aiohttp reads its requests, which are answered one after another."""

import asyncio
import fcntl
import random
import socket
import struct
import termios
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from time import monotonic
from typing import Any, Protocol, cast
from urllib.parse import unquote_to_bytes

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.http import RawRequestMessage

from webhook.http.limits import ServerLimits
from webhook.http.messages import HttpRequest, Reply, length_in
from webhook.http.queue import Exchange, RequestQueue

BUFFERED = 64 * 1024
"""Maximum bytes of a body that is read in one piece. aiohttp buffers twice as many before it stops reading."""


BLANK = 64
"""Blank bytes that a peer may send before a request. A client may send one empty line (RFC 9112, 2.2)."""


class Crowded(Exception):
    """A large body was refused, because there is no memory left for it."""


class Watch(Protocol):
    """Counts the outcomes of requests."""

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count an answer, and how many seconds it took since the first byte of the request."""

    def refused(self, status: int) -> None:
        """Count a request that was refused before its body was read."""

    def shed(self) -> None:
        """Count a request that was turned away because too many were waiting."""


class ServingPort(Protocol):
    """The interface of a port for its connections."""

    limits: ServerLimits
    watch: Watch
    names: frozenset[str]
    queue: RequestQueue
    loop: asyncio.AbstractEventLoop
    server: web.Server
    draining: bool
    unverified: dict["Connection", None]
    """Connections that may be closed when there are too many."""
    writing: dict["Connection", bytes]
    """Connections that write an answer of several pieces."""
    date: str
    """The current time, as in the `Date` header."""

    def buffers(self, connection: "Connection", length: int) -> bool:
        """Count the length of a body.

        Return whether there is memory for the buffers that TLS keeps after such a body.
        """

    def forget(self, connection: "Connection") -> None:
        """Remove a connection that has ended."""

    def receives(self, connection: "Connection") -> None:
        """Record that a peer has begun to send a request."""

    def received(self, connection: "Connection", count: int) -> bool:
        """Count newly received bytes of an incomplete request. Return whether the connection is still open."""

    def rests(self, connection: "Connection") -> None:
        """Record that a connection is idle."""

    def whole(self, connection: "Connection") -> None:
        """Record that nothing more of a request is expected."""

    def waits_for(self, connection: "Connection") -> None:
        """Record that a connection waits for its peer to read the answer, so that it may be closed."""

    def writes(self, connection: "Connection", body: bytes) -> None:
        """Record that a connection begins to write an answer of several pieces."""


def _names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the common name and DNS names of a caller's certificate, given as by `ssl.SSLSocket.getpeercert`."""
    found: Mapping[str, Any] = certificate or {}
    subject = {value for part in found.get("subject", ()) for key, value in part if key == "commonName"}
    return frozenset(subject | {value for key, value in found.get("subjectAltName", ()) if key == "DNS"})


PIECE = 64 * 1024
"""Bytes of an answer that are written at once; the next ones wait until the peer reads."""

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: what the peer has not read is dropped with the connection, and no memory of the kernel is left behind."""


@lru_cache(64)
def _line(status: HTTPStatus) -> str:
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n"


def _head(reply: Reply, date: str, *, last: bool) -> bytes:
    """Return the head of an answer as bytes. `last` says that the connection ends."""
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
    return f"{head}\r\n".encode("latin-1")


def _body_length(message: object) -> int:
    """Return the length of the body that follows a head, as aiohttp has read the head.

    0 for an error, and for a body in chunks, because such a request is refused.
    """
    return length_in(message.headers) if isinstance(message, RawRequestMessage) else 0


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
        """Write the whole answer. Raises ConnectionError when the peer is gone."""
        connection = cast("Connection", request.protocol)
        self._last = self._last or not connection.keeps(request)
        self._last = await connection.write(self._reply, request, last=self._last)

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: `prepare` has written the whole answer."""


class ConnectionState(Enum):
    """The state of a connection."""

    IDLE = "between requests"
    HEAD = "reading the request line and headers"
    BODY = "reading the body"
    WAITING = "waiting for the turn"
    WRITING = "waiting until the peer reads the answer"
    ENDING = "dropping data that arrives after the last answer"


class Connection(web.RequestHandler):
    """A connection to one peer, whose requests are read and answered one after the other."""

    arriving: "asyncio.Task[None] | None" = None
    """The handshake, while it lasts."""

    def __init__(self, port: ServingPort) -> None:
        limits = port.limits
        super().__init__(
            port.server,
            loop=port.loop,
            keepalive_timeout=limits.idle,
            tcp_keepalive=False,
            access_log=None,  # type: ignore[arg-type]  # None is allowed by the server's documentation
            max_line_size=limits.line_bytes,
            max_headers=limits.headers,
            max_field_size=limits.line_bytes,
            lingering_time=limits.parting,
            auto_decompress=False,
        )
        self.until = float("inf")
        """When the time of the current stage ends. aiohttp measures the time between requests."""
        self.strange: frozenset[str] | None = None
        """The names in the caller's certificate, if none of them is allowed."""
        self.exchange: Exchange | None = None
        self._port = port
        self._limits = limits
        self._stage = ConnectionState.IDLE
        self._arrived = 0.0
        self.received = self.large = 0
        """Bytes that the request takes of `receiving_bytes` and of `large_bytes`, until it is whole."""
        self.buffered = 0
        """Bytes that the connection takes of `buffered_bytes`."""
        self.came = 0
        """Bytes of requests that the peer has sent, and for each answer as many as its records may bring."""
        self._latest = 0.0
        """Until when an ended connection waits for a peer that still reads its answer."""
        self._old = monotonic() + limits.age * random.uniform(0.75, 1.25)  # noqa: S311 - connections end apart
        """When the connection becomes old: then it ends with its next answer. A large body makes it old at once."""
        self._head_bytes = self._blank = 0
        self._end = b""
        self._missing = 0
        """Bytes of the current request's body that have not arrived."""
        self._ahead = False
        """Whether the peer has sent more than its current request."""
        self._body: StreamReader | None = None
        """The body while it is read."""
        self._parts: list[bytes] = []
        self._crowded = False
        """Whether there was no room for the body that is read."""
        self._rest: StreamReader | None = None
        """The body of the last request, which aiohttp reads and drops."""
        self._wire: asyncio.Transport | None = None

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wire = cast("asyncio.Transport", transport)
        if self._limits.unread_bytes and (own := self._wire.get_extra_info("socket")) is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.unread_bytes)
        if self._port.names:
            names = _names(transport.get_extra_info("peercert"))
            self.strange = None if names & self._port.names else names

    def connection_lost(self, error: BaseException | None) -> None:
        """Forget the connection and its request."""
        super().connection_lost(error)
        if self._rest is not None:
            self._rest.feed_eof()  # otherwise aiohttp would wait for the rest of the body
            self._rest = None  # it refers to this object: the cycle would stay until a garbage collection
        if self.exchange is not None:
            self._port.queue.leave(self.exchange)
        self._port.forget(self)

    def data_received(self, data: bytes) -> None:
        """Read more of the current request, and drop whatever follows it.

        aiohttp would keep the requests that follow, however many a peer sends. An API server sends none before it has
        the answer. So the answer will be the last one; a client that pipelines must expect that (RFC 9112, 9.3.2).
        """
        if not data:  # aiohttp goes on with the part of a body that it keeps
            super().data_received(data)
            return
        if self._stage in (ConnectionState.WAITING, ConnectionState.WRITING):
            self._ahead = True
            return
        if self._stage is ConnectionState.IDLE:
            begun = data.lstrip(b"\r\n")
            self._blank += len(data) - len(begun)
            if self._blank > BLANK:
                self._cut_off(HTTPStatus.BAD_REQUEST)
            if self._blank > BLANK or not begun:
                return
            data = begun
            self._head()
        if self._stage is ConnectionState.HEAD:
            data = self._read_head(data)
        if len(data) > self._missing:
            self._ahead = True
            data = data[: self._missing]
        if data:
            self._missing -= len(data)
            if self._pass(data) and not self._missing:
                self._port.whole(self)  # before others in the same turn of the loop take its memory

    def _pass(self, data: bytes) -> bool:
        """Let aiohttp read bytes of the current request.

        Return False if the connection was closed instead, because this request had been sent for the longest time.
        """
        if self._stage is not ConnectionState.ENDING and not self._port.received(self, len(data)):
            return False
        self.came += len(data)
        super().data_received(data)
        return True

    def _head(self) -> None:
        self._stage = ConnectionState.HEAD
        self._port.receives(self)
        self._arrived = monotonic()
        self.until = self._arrived + self._limits.head
        self._head_bytes, self._blank, self._end = 0, 0, b""

    def _read_head(self, data: bytes) -> bytes:
        """Read more of the head, and return the data that follows it.

        The head may end, or be too long: aiohttp limits only single lines.
        """
        self._end += data
        end = self._end.find(b"\r\n\r\n")
        beyond = len(self._end) - end - 4 if end >= 0 else 0
        self._head_bytes += len(data) - beyond
        self._end = self._end[-3:]
        if self._head_bytes > self._limits.head_bytes:
            self._cut_off(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return b""
        if not self._pass(data[:-beyond] if beyond else data):
            return b""
        if self._messages:  # the request, or an error
            self._stage, self.until = ConnectionState.BODY, float("inf")
            self._missing = _body_length(self._messages[0][0]) if end >= 0 else 0
        elif end >= 0:  # the preface of HTTP/2
            self._cut_off(HTTPStatus.BAD_REQUEST)
            return b""
        return data[-beyond:] if beyond else b""

    # One request

    def begin(self, asked: web.BaseRequest) -> HttpRequest:
        """Make the request from a complete head, and return it."""
        self._stage = ConnectionState.WAITING if asked.content.is_eof() else ConnectionState.BODY
        self.until = float("inf")
        url = asked.rel_url
        path = url.raw_path
        if "%" in path or not path.isascii():
            path = unquote_to_bytes(path.encode("utf-8", "surrogateescape")).decode("latin-1")
        return HttpRequest(asked.method, path, url.raw_query_string, asked.headers, self._arrived)

    async def body(self, asked: web.BaseRequest, length: int) -> list[bytes]:
        """Read the body. Raises TimeoutError, Crowded, and ConnectionError when the peer is gone."""
        if length > BUFFERED or not self._port.buffers(self, length):
            self._old = 0.0  # TLS keeps the buffers of a body while the connection is idle
        content = asked.content
        if content.is_eof():
            return [content.read_nowait()]
        self._body, self.until = content, monotonic() + self._limits.body
        try:
            if "Expect" in asked.headers and self.transport is not None:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if length <= min(BUFFERED, self._limits.small_bytes) and content.exception() is None:
                await content.wait_eof()
            while not (content.at_eof() or self._crowded):
                self._parts.append(await content.readany())
        except TimeoutError:
            if not self._crowded:
                raise
        except ConnectionError as error:
            error.__traceback__ = None  # a cycle with the body, which would stay until a garbage collection
            raise ConnectionResetError from None
        finally:
            self._body, self.until = None, float("inf")
            parts, self._parts = self._parts, []
            crowded, self._crowded = self._crowded, False
        if crowded:
            raise Crowded
        self._stage = ConnectionState.WAITING
        return parts

    def keeps(self, asked: web.BaseRequest) -> bool:
        """Return whether another request may follow this one."""
        if self._ahead or self._port.draining or self._arrived > self._old:
            return False
        return asked.keep_alive and asked.version == HttpVersion11

    async def write(self, reply: Reply, asked: web.BaseRequest, *, last: bool) -> bool:
        """Write an answer, and wait while the peer does not read.

        Return whether it is the last one: also one that does not say so, if the peer has sent more meanwhile.
        Raises ConnectionError when the peer is gone.
        """
        self.came += self._limits.answer_records * self._limits.record_bytes
        body = b"" if asked.method == "HEAD" else reply.body  # a client would read it as the next answer
        piece = _head(reply, self._port.date, last=last) + body[:PIECE]
        if len(body) > PIECE:
            self._port.writes(self, body)
        for start in range(PIECE, max(len(body), 1) + PIECE, PIECE):
            if self.transport is None or self.transport.is_closing():
                raise ConnectionResetError
            self.transport.write(piece)
            piece = body[start : start + PIECE]
            if self.writing_paused:
                self._stage = ConnectionState.WRITING
                self.until = monotonic() + self._limits.idle
                self._port.waits_for(self)
                await asked.writer.drain()
                self._port.unverified.pop(self, None)
        self._port.writing.pop(self, None)
        last = last or self._ahead
        if last:  # further data is dropped
            self._latest = monotonic() + self._limits.idle
            self._port.waits_for(self)
            self._stage, self._rest = ConnectionState.ENDING, asked.content
            self._missing = min(self._missing, self._limits.body_bytes)
            self.until = monotonic() + self._limits.parting + 1
        else:
            self._stage = ConnectionState.IDLE
            self.until = float("inf")
            self._port.rests(self)
        return last

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
        """Let an idle connection end after a short time, in which one more request may still arrive and be answered."""
        if self._stage is ConnectionState.IDLE:
            self.until = monotonic() + self._limits.parting

    def out_of_time(self) -> None:
        """End the stage of a request that took too long."""
        if self._stage is ConnectionState.HEAD:
            self._cut_off(HTTPStatus.REQUEST_TIMEOUT)
        elif self._stage is ConnectionState.IDLE:
            self._part()
        elif self._body is not None:
            self.until = float("inf")
            self._body.set_exception(TimeoutError())
        elif self._stage is ConnectionState.ENDING and monotonic() < self._latest and self._unread():
            self.until = monotonic() + 1
        else:
            self.abort()

    def crowd_out(self) -> None:
        """Drop the received part of a large body to free memory.

        The request is refused when more of it arrives, or when its time is over.
        """
        self._parts.clear()
        if self._body is not None and self._body.exception() is None:
            self._crowded = True
            with suppress(RuntimeError):  # nothing is buffered while the reader waits
                self._body.read_nowait()

    def _cut_off(self, status: HTTPStatus) -> None:
        """Refuse a request whose head is not complete."""
        self._port.watch.refused(status)
        if self.transport is not None:
            self.transport.write(_head(Reply(status), self._port.date, last=True))
        self._part()

    def _part(self) -> None:
        self.until = monotonic() + self._limits.parting
        self._stage = ConnectionState.WRITING
        self.force_close()

    def abort(self) -> None:
        """End the connection at once, and drop what the peer has not read."""
        self._port.forget(self)
        if self.arriving is not None:
            self.arriving.cancel()
        if self._wire is not None:
            if self._unread():
                self._wire.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._wire.abort()

    def _unread(self) -> bool:
        """Return whether the kernel keeps bytes that the peer has not taken (tcp(7), SIOCOUTQ)."""
        own = None if self._wire is None else self._wire.get_extra_info("socket")
        try:
            return own is not None and fcntl.ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4)) != bytes(4)
        except OSError:  # the connection has ended
            return False
