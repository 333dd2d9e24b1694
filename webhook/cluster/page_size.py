"""Bounds the bytes of a page that is parsed at once, because tenants create the objects and choose their sizes.

An object has up to 3 MB as JSON. Parsed, a list of small maps takes up to 25 times its bytes: 25 such pods took more
than a gigabyte.
"""

from collections.abc import Callable

PER_OBJECT = 80 * 1024
"""Bytes for each object of a whole page. Most pods have 10 KiB, and nodes with many images 50 KiB."""

PIECE = 64 * 1024


class PageSize:
    """The number of objects to ask for in the next page of a list: `most`, or fewer while the objects are large.

    A page that is too long is asked for again with half as many objects. A page of one object has no limit. Each page
    that is short enough doubles the number again.
    """

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, most * PER_OBJECT
        self.now = most

    def read(self, more: Callable[[int], bytes]) -> bytes | None:
        """Read a page; None if it is too long and must be asked for again. `more` returns at most the next N bytes."""
        data = bytearray()
        while part := more(PIECE):
            data += part
            if len(data) > self._bytes and self.now > 1:
                self.now //= 2
                return None
        self.now = min(2 * self.now, self._most)
        return bytes(data)
