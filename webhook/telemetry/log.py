"""Writes log lines to standard output without ever blocking: no reader of the log can delay or fail a review."""

import fcntl
import json
import os
import select
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

Entry = Mapping[str, Any]
Log = Callable[[Entry], None]

MAX_LINE = select.PIPE_BUF
"""Bytes that a pipe writes atomically, so that the lines of several workers never mix."""

SHORT, FEW = 48, 16
"""Characters of a text, and items of a list, that are kept if an entry is too long."""


class Lines:
    """Writes entries as JSON lines to a file descriptor. A line that cannot be written at once is dropped.

    The next line has the number of lost lines in its field `dropped`.
    """

    def __init__(self, descriptor: int) -> None:
        self.dropped = 0
        """The number of lines lost so far."""
        self._unreported = 0
        self._torn = False
        self._descriptor = descriptor
        self._open: int | None = None

    def __call__(self, entry: Entry) -> None:
        """Write an entry with the time. Never waits and never raises."""
        stamped = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **entry}
        if self._unreported:
            stamped["dropped"] = self._unreported
        line = _line(stamped)
        if len(line) > MAX_LINE:
            line = _line({key: _short(value) for key, value in stamped.items()})
        if self._torn:
            line = b"\n" + line
        try:
            if self._open is None:
                self._open = _without_waiting(self._descriptor)
            written = os.write(self._open, line)
        except OSError:  # full, closed, or without a reader
            written = 0
        if written == len(line):
            self._unreported, self._torn = 0, False
            return
        self._torn = self._torn or written > 0
        self._unreported += 1
        self.dropped += 1


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
