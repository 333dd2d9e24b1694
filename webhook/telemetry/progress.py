"""Shows the progress of a long run on a terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from webhook.text.words import one_line

WIDTH = 24
"""The width of the bar in characters."""


Tell = Callable[[int, int, str], None]
"""Takes the number of steps done, the number of all steps, and the name of the current one."""


def quietly(_done: int, _steps: int, _what: str) -> None:
    """Show no progress."""


@contextmanager
def bar(patience: float = 0) -> Iterator[Tell]:
    """Draw a progress bar on standard error while the block runs, if standard error is a terminal.

    It appears after some seconds.
    """
    shown, start = sys.stderr.isatty(), time.monotonic()

    def tell(done: int, steps: int, what: str) -> None:
        if shown and time.monotonic() - start >= patience:
            full = WIDTH * done // max(steps, 1)
            print(
                f"\r\033[K[{'#' * full}{'.' * (WIDTH - full)}] {one_line(what)[:48]}",
                end="",
                file=sys.stderr,
                flush=True,
            )

    try:
        yield tell
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
