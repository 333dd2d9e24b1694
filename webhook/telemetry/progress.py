"""How far a long run has come, on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WIDTH = 24
"""Characters of the bar."""


Tell = Callable[[int, int, str], None]
"""Is told how many of how many steps are done, and what is being done."""


def quietly(_done: int, _steps: int, _what: str) -> None:
    """Tell nobody."""


@contextmanager
def bar() -> Iterator[Tell]:
    """Draw a bar on standard error while the block runs, and nothing where that is no terminal."""
    shown = sys.stderr.isatty()

    def tell(done: int, steps: int, what: str) -> None:
        if shown:
            full = WIDTH * done // max(steps, 1)
            print(f"\r\033[K[{'#' * full}{'.' * (WIDTH - full)}] {what[:48]}", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
