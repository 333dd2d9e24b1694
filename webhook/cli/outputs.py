"""Where the commands write."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from webhook.model import Problem, Unusable
from webhook.text.terminal import PLAIN, Look


class Wanted(NamedTuple):
    """A report that was asked for: its format, and the file it goes to, None for standard output."""

    format: str
    file: str | None


def write(wanted: Iterable[Wanted], render: Callable[[str, Look], str]) -> None:
    """Render each report and write it where it goes. Raises as `show` and `save` do.

    Files are written first: the reader of standard output may leave early.
    """
    for report in sorted(wanted, key=lambda report: report.file is None):
        if report.file is None:
            show(render(report.format, look()))
        else:
            save(report.file, render(report.format, PLAIN))


def look() -> Look:
    """How standard output looks: https://no-color.org says when a terminal shows no colours."""
    if not sys.stdout.isatty():
        return PLAIN
    import shutil  # for a terminal alone

    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Look(shutil.get_terminal_size().columns, colour)


def show(text: str) -> None:
    """Write to standard output. Raises Unusable where it takes no more, and BrokenPipeError where its reader left."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unusable((Problem("standard output", 0, error.strerror or str(error)),)) from error


def say(lines: Iterable[str]) -> None:
    """Write lines that belong to no report to standard error."""
    for line in lines:
        print(line, file=sys.stderr)


def save(file: str, text: str) -> None:
    """Write a file, over what is there. Raises Unusable."""
    try:
        Path(file).write_text(text, "utf-8")
    except OSError as error:
        raise Unusable((Problem(file, 0, error.strerror or str(error)),)) from error
