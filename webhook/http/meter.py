"""Counts what a peer sends below TLS, before OpenSSL reads it: bytes of the handshake, and records."""

import asyncio
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from uvloop import loop as uvloop

from webhook.http.limits import ServerLimits

if TYPE_CHECKING:
    from webhook.http.connection import Connection

READ = 16 * 1024
"""Bytes that are read of a connection at once. TLS keeps buffers of about twice this size."""

BUFFER: Final = memoryview(bytearray(READ))
"""Where every connection of this process is read into. Each read is passed on before the next one begins."""

CHANGE_CIPHER, HANDSHAKE = 20, 22
"""Types of records (RFC 8446, 5.1)."""


class Frames:
    """Cuts a stream into frames: a header of a fixed size, whose last bytes are the length of the rest."""

    def __init__(self, header: int, length: int) -> None:
        self._size = header
        self._at = header - length
        self._header = b""
        self._missing = 0

    def cut(self, data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
        """Yield each header that ends in the next bytes of the stream, once without content, and then with each part.

        The bytes after a header are not looked at before the next frame is asked for.
        """
        while data:
            if self._missing:
                part, data = data[: self._missing], data[self._missing :]
                self._missing -= len(part)
                yield self._header, part
                continue
            begun = self._header if len(self._header) < self._size else b""
            more = self._size - len(begun)
            self._header, data = begun + data[:more], data[more:]
            if len(self._header) == self._size:
                self._missing = int.from_bytes(self._header[self._at :])
                yield self._header, data[:0]


class RecordCount:
    """Counts TLS records, and reads the announced lengths of handshake messages while they are not encrypted."""

    def __init__(self, oldest: ssl.TLSVersion) -> None:
        self.number = 0
        self._records = Frames(5, 2)
        self._messages: Frames | None = Frames(4, 3)
        self._newest_only = oldest >= ssl.TLSVersion.TLSv1_3
        """Whether all records of type handshake are plain. TLS 1.2 encrypts those after a change of ciphers.

        They are not read then, so where TLS 1.2 is allowed, a second ClientHello after such a change may announce more.
        """

    def exceed(self, data: memoryview, most: int, largest: int) -> bool:
        """Return whether there are more than `most` records, or one announces a message above `largest`.

        Nothing is read beyond that point, so many records in one read cost no more than the limit allows.
        """
        for header, part in self._records.cut(data):
            if not part:
                self.number += 1
                if self.number > most:
                    return True
                if header[0] == CHANGE_CIPHER and not self._newest_only:
                    self._messages = None
            elif header[0] == HANDSHAKE and self._announces(part, largest):
                return True
        return False

    def _announces(self, part: memoryview, largest: int) -> bool:
        messages = self._messages.cut(part) if self._messages is not None else ()
        return any(int.from_bytes(header[1:]) > largest for header, _ in messages)


class Meter(asyncio.BufferedProtocol):
    """Stands between a socket and TLS, and aborts a connection before OpenSSL works or takes memory beyond limits."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connection: "Connection", context: ssl.SSLContext, limits: ServerLimits
    ) -> None:
        self.shaken: asyncio.Future[None] = loop.create_future()
        """Done when the handshake has ended."""
        self._tls: Any = cast("Any", uvloop).SSLProtocol(
            loop,
            connection,
            context,
            self.shaken,
            server_side=True,
            ssl_handshake_timeout=limits.handshake,
            ssl_shutdown_timeout=limits.parting,
        )
        self._connection = connection
        self._limits = limits
        self._records = RecordCount(context.minimum_version)
        self._unshaken = limits.handshake_bytes
        """Bytes that the peer may still send before the handshake has ended."""
        self._over = self._lost = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        self._tls.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to: before the handshake has ended, no more than it may still take."""
        del sizehint
        return BUFFER if self.shaken.done() else BUFFER[: max(self._unshaken, 1)]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass what was read on to TLS, unless it exceeds a limit."""
        limits, read = self._limits, BUFFER[:nbytes]
        most = limits.records + self._connection.came // limits.record_bytes
        if self._over or self._records.exceed(read, most, limits.handshake_bytes):
            self._abort()
            return
        self._tls.get_buffer(nbytes)[:nbytes] = read
        self._tls.buffer_updated(nbytes)
        if not self.shaken.done():
            self._unshaken -= nbytes
            if self._unshaken <= 0:
                self._abort()

    def _abort(self) -> None:
        if not self._over:
            self._over = True
            self._connection.abort()

    def eof_received(self) -> Any:
        """Pass on that the peer sends nothing more."""
        return self._tls.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that the connection has ended."""
        if not self._lost:
            self._lost, self._transport = True, None
            self._tls.connection_lost(exc)

    def close(self) -> None:
        """End a connection without a handshake, and free the memory of TLS at once.

        The loop does not call `connection_lost` for a connection that ends while it is being set up.
        """
        self._over = True
        if self._transport is not None:
            self._transport.abort()
        self.connection_lost(None)

    def pause_writing(self) -> None:
        """Pass on that the peer does not read."""
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the peer reads again."""
        self._tls.resume_writing()
