"""Keeps large data that is seldom read on disk, so that it takes no memory."""

import os
import tempfile
import weakref
import zlib
from contextlib import suppress

SMALL = 16 * 1024
"""Bytes up to which packed data stays in memory: 8 MiB for 500 pods, the most that a node runs with OpenShift."""

LARGE = 32 * 1024
"""Bytes above which unpacking and reading data takes milliseconds. Most pods have 10 KiB as JSON."""


class Packed:
    """Data in compressed form: in a file without a name if it is large and a disk can be written, else in memory.

    The file goes with the object. Random text hardly gets smaller: 250 pods of 1.4 MB would take all of the agent's
    memory.
    """

    def __init__(self, data: bytes) -> None:
        packed, self.large = zlib.compress(data, 1), len(data) > LARGE
        self._kept, self._size, self._descriptor = packed, len(packed), -1
        if self._size > SMALL:
            with suppress(OSError), tempfile.TemporaryFile() as file:
                file.write(packed)
                file.flush()
                self._descriptor = os.dup(file.fileno())
                weakref.finalize(self, os.close, self._descriptor)
                self._kept = b""

    def data(self) -> bytes:
        """Return the data. Raises OSError if the disk cannot be read."""
        return zlib.decompress(self._kept or os.pread(self._descriptor, self._size, 0))
