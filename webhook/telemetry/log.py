"""Log lines on standard output, written so that nothing at the other end can stop or fail a review."""

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
"""Bytes that a pipe takes whole or not at all, so that the lines of several workers never mix."""

SHORT, FEW = 48, 16
"""Characters of a text and items of a list that are kept of an entry which is too long."""


class Lines:
    """Writes entries as lines of JSON to a file descriptor; a line that cannot be written at once is dropped.

    The next line that is written says under `dropped` how many were lost before it.
    """

    def __init__(self, descriptor: int) -> None:
        self.dropped = 0
        """Lines lost so far."""
        self._untold = 0
        self._torn = False
        self._descriptor = descriptor
        self._open: int | None = None

    def __call__(self, entry: Entry) -> None:
        """Write one entry with the time. Never waits and never raises."""
        stamped = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **entry}
        if self._untold:
            stamped["dropped"] = self._untold
        line = _line(stamped)
        if len(line) > MAX_LINE:
            line = _line({key: _short(value) for key, value in stamped.items()})
        if self._torn:
            line = b"\n" + line
        try:
            if self._open is None:
                self._open = _without_waiting(self._descriptor)
            written = os.write(self._open, line)
        except OSError:  # full, closed, or nobody reads
            written = 0
        if written == len(line):
            self._untold, self._torn = 0, False
            return
        self._torn = self._torn or written > 0
        self._untold += 1
        self.dropped += 1


log_line = Lines(1)
"""The log of this process: one JSON line an entry, all of it ASCII, so that no tenant's text can forge another."""


def _line(entry: Entry) -> bytes:
    try:
        line = orjson.dumps(entry, default=str, option=orjson.OPT_APPEND_NEWLINE)  # at a fifth of the time
    except orjson.JSONEncodeError:  # half a surrogate pair, or a number that no other reader takes
        line = b""
    if line and line.isascii():
        return line
    return json.dumps(entry, default=str, separators=(",", ":")).encode("ascii") + b"\n"


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value[:SHORT]
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:FEW]]
    return value


def _without_waiting(descriptor: int) -> int:
    """A descriptor of the same file on which a write never waits. Raises OSError.

    Whether writes wait belongs to what is open, which a terminal's other users share; so it is opened anew where
    it may be. A regular file stays as it is: opened anew it would be written from its beginning.
    """
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)):
        return descriptor
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # a socket, or a pipe of another user, as containers have
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_NONBLOCK)
        return descriptor
