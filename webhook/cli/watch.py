"""Runs a command again whenever one of its files changes."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping

from webhook.cli import outputs
from webhook.model import Unusable
from webhook.text.words import several

INTERVAL = 0.5
"""Seconds between two looks at the files."""

CLEAR = "\033[2J\033[3J\033[H"
"""Clears the screen and its scrollback."""

Seen = Mapping[str, tuple[int, int] | None]


def watch(files: Callable[[], Iterable[str]], run: Callable[[], object], *, sleep: Callable[[float], object]) -> int:
    """Call `run` now and after each change of the files, until Ctrl-C; then the exit status is 0.

    `files` is called each time, so a new file is a change too. If a run ends with Unusable, its problems are printed,
    and the next change starts another run.
    """
    seen: Seen | None = None
    try:
        while True:
            if (now := _seen(files())) != seen:
                seen = now
                _again(run, len(now))
            sleep(INTERVAL)
    except KeyboardInterrupt:
        return 0


def _again(run: Callable[[], object], count: int) -> None:
    if sys.stdout.isatty():
        outputs.show(CLEAR, commands=True)
    try:
        run()
    except Unusable as error:
        outputs.say(f"error: {problem}" for problem in error.problems)
    outputs.say([f"note: {time.strftime('%H:%M:%S')}, {several(count, 'file')} watched; Ctrl-C ends"])


def _seen(files: Iterable[str]) -> Seen:
    return {name: _stamp(name) for name in files}


def _stamp(name: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(name)  # noqa: PTH116 - half the time of Path.stat, for every file twice a second
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
