"""Cases that showed a fault once, which are tried again by every `make test`."""

from collections.abc import Iterator
from pathlib import Path

FOUND = Path(__file__).resolve().parent / "cases"


def cases() -> Iterator[tuple[str, bytes]]:
    """The name of a target, and what was put to it."""
    for file in sorted(FOUND.iterdir()):
        name, _, checksum = file.name.rpartition("-")
        if len(checksum) == 8:
            yield name, file.read_bytes()
