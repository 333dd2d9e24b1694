"""Writes log lines to standard output, such that no reader of them can delay or fail a review."""

import asyncio
import fcntl
import json
import os
import select
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import RLock, get_ident
from time import monotonic, sleep
from typing import Any, NamedTuple

import orjson

Entry = Mapping[str, Any]
Log = Callable[[Entry], None]

MAX_LINE = select.PIPE_BUF
"""Bytes that a pipe writes atomically, so that the lines of several workers never mix."""

SHORT, FEW = 48, 16
"""Characters of a text, and items of a list, that remain of an entry which is too long."""

MAX_WAITING = 64 * 1024
"""Bytes of lines that wait for a slow reader, as many as a pipe has room for. Later lines are dropped."""

AGAIN = 0.05
"""Seconds until another try when the reader is slow."""

PARTING = 1.0
"""Seconds that a slow reader has at the end."""


class _Waiting(NamedTuple):
    line: bytes
    reported: int
    """The number of lost lines that this one tells of."""


class Lines:
    """Writes entries as JSON lines to a file descriptor. A line that cannot be written is dropped.

    The next line gives under `dropped` the number of lines lost before it. Lines are written at once, or `by_turns`.
    Any thread may write.
    """

    def __init__(self, descriptor: int) -> None:
        self.dropped = 0
        """The number of lines lost so far."""
        self._unreported = 0
        self._torn = False
        self._descriptor = descriptor
        self._open: int | None = None
        self._waiting: deque[_Waiting] = deque()
        self._size = 0
        """The bytes that wait."""
        self._lock = RLock()  # a garbage collection may log from within a call
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._due = False
        """Whether what waits will be written without another call."""

    def __call__(self, entry: Entry) -> None:
        """Write an entry with the time, or leave it to the loop. Never waits for a reader and never raises."""
        with self._lock:
            stamped = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **entry}
            reported, self._unreported = self._unreported, 0
            if reported:
                stamped["dropped"] = reported
            line = _line(stamped)
            if len(line) > MAX_LINE:
                line = _line({key: _short(value) for key, value in stamped.items()})
            if self._size + len(line) > MAX_WAITING:
                self._lose(1, reported)
                return
            self._waiting.append(_Waiting(line, reported))
            self._size += len(line)
            if self._due:
                return
            self._due = True
            if self._loop is None:
                try:
                    self._write()
                    self._give_up()
                finally:  # a signal's handler may raise
                    self._due = False
            elif get_ident() == self._thread:
                self._loop.call_soon(self._turn)
            else:
                self._loop.call_soon_threadsafe(self._turn)

    @contextmanager
    def by_turns(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Write once per turn of a loop, in whose thread the block runs. At its end all that waits is written.

        A line costs as much as its system call, and many reviews are answered in one turn of a busy loop. Lines wait
        for a slow reader, and are only dropped if too many do.
        """
        with self._lock:
            self._loop, self._thread = loop, get_ident()
        try:
            yield
        finally:
            with self._lock:
                self._loop, self._due = None, True
                self._part()
                self._due = False

    def _turn(self) -> None:
        with self._lock:
            self._write()
            self._due = self._loop is not None and bool(self._waiting)
            if self._loop is not None and self._due:
                self._loop.call_later(AGAIN, self._turn)

    def _part(self) -> None:
        """Write what waits, and leave a slow reader a moment for it."""
        end = monotonic() + PARTING
        self._write()
        while self._waiting and monotonic() < end:
            sleep(AGAIN / 5)
            self._write()
        self._give_up()

    def _write(self) -> None:
        """Write lines that wait, in parts that a pipe takes whole, while it takes any."""
        while self._waiting:
            text = self._next()
            try:
                if self._open is None:
                    self._open = _without_waiting(self._descriptor)
                written = os.write(self._open, text)
            except BlockingIOError:
                return
            except OSError:  # full, closed, or without a reader
                self._give_up()
                return
            self._remove(text[:written])
            if written < len(text):
                return

    def _next(self) -> bytes:
        """Return as many lines as fit into one write, and one at least."""
        lines: list[bytes] = []
        size = 0
        for line, _ in self._waiting:
            size += len(line)
            if lines and size > MAX_LINE:
                break
            lines.append(line)
        return b"\n" * self._torn + b"".join(lines)

    def _remove(self, written: bytes) -> None:
        """Remove the lines that were written, with or without their ends. A torn one is written again."""
        if not written:
            return
        left = len(written) - self._torn
        while self._waiting and left >= len(self._waiting[0].line) - 1:
            size = len(self._waiting.popleft().line)
            self._size -= size
            left -= size
        self._torn = left != 0

    def _give_up(self) -> None:
        """Drop what waits."""
        lost, self._waiting, self._size = self._waiting, deque(), 0
        self._lose(len(lost), sum(each.reported for each in lost))

    def _lose(self, lines: int, reported: int) -> None:
        self.dropped += lines
        self._unreported += lines + reported


log_line = Lines(1)
"""The log of this process: one line of ASCII JSON per entry, so that no tenant's text can forge a line."""


def _line(entry: Entry) -> bytes:
    try:
        line = orjson.dumps(entry, default=str, option=orjson.OPT_APPEND_NEWLINE)  # five times as fast as json
    except orjson.JSONEncodeError:  # a lone surrogate, or an integer of more than 64 bits
        line = b""
    if line and line.isascii():
        return line
    return json.dumps(entry, default=str, separators=(",", ":")).encode("ascii") + b"\n"


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value[:SHORT]
    if isinstance(value, list | tuple):
        return [_short(item) for item in value[:FEW]]
    return value


def _without_waiting(descriptor: int) -> int:
    """Return a non-blocking descriptor of the same file. Raises OSError.

    O_NONBLOCK belongs to the open file description, which other users of a terminal share. So the file is opened again
    if possible. A regular file is left as it is: opened again, it would be overwritten from its start.
    """
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)):
        return descriptor
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # a socket, or another user's pipe, which is common in containers
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_NONBLOCK)
        return descriptor
