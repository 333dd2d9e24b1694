"""Writes the outputs of commands: to standard output, to standard error, and to files."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import click

from webhook.model import Problem, Unusable
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import one_line, quelled

QUIET = "webhook.quiet"
"""The key in a context's `meta` that says whether notes and summaries are left out."""


COMMANDS = frozenset(("github",))
"""Formats that consist of a build server's commands. They escape untrusted text themselves."""


class Wanted(NamedTuple):
    """A requested report: its format, and the file to write. A file of None is standard output."""

    format: str
    file: str | None


def write(wanted: Iterable[Wanted], render: Callable[[str, Look], str], *, aside: bool = False) -> None:
    """Render each report and write it to its file or to standard output. Raises as `show` and `save` do.

    Files are written first, because the reader of standard output may leave early, and disarmed like it, because a
    build server may print them. With `aside`, reports for standard output go to standard error.
    """
    for report in sorted(wanted, key=lambda report: report.file is None):
        commands = report.format in COMMANDS
        if report.file is None:
            text = render(report.format, PLAIN._replace(quiet=_quiet()) if aside else look())
            show(text, commands=commands, aside=aside)
        else:
            text = render(report.format, PLAIN._replace(quiet=_quiet()))
            save(report.file, text if commands else quelled(text))


def look() -> Look:
    """Return the width of standard output, and whether to use colours.

    `--color` decides, then NO_COLOR (https://no-color.org), then FORCE_COLOR (https://force-color.org), then whether it
    is a terminal, as in Python itself (https://docs.python.org/3/using/cmdline.html#controlling-color).
    """
    terminal = sys.stdout.isatty()
    context = click.get_current_context(silent=True)
    colour = context.color if context else None
    if colour is None:
        forced = bool(os.environ.get("FORCE_COLOR"))
        colour = not os.environ.get("NO_COLOR") and (forced or (terminal and os.environ.get("TERM") != "dumb"))
    if not terminal:
        return Look(None, colour, _quiet())
    import shutil  # only for a terminal

    return Look(shutil.get_terminal_size().columns, colour, _quiet())


def _quiet() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(QUIET))


def show(text: str, *, commands: bool = False, aside: bool = False) -> None:
    """Write to standard output, or with `aside` to standard error.

    Commands for a build server in the text are disarmed.

    With `commands` they are kept, for manifests and for our own commands. Raises Unusable if writing fails, and
    BrokenPipeError if the reader has gone.
    """
    to = sys.stderr if aside else sys.stdout
    try:
        to.write(text if commands else quelled(text))
        to.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unusable((Problem("standard output", 0, error.strerror or str(error)),)) from error


def say(lines: Iterable[str]) -> None:
    """Write lines that belong to no report to standard error.

    With `--quiet`, lines that begin with `note: ` are left out.
    """
    quiet = _quiet()
    for line in lines:
        if not (quiet and line.startswith("note: ")):
            print(one_line(line), file=sys.stderr)


def folder(name: str) -> None:
    """Make a folder and its parents if they do not exist. Raises Unusable."""
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable((Problem(name, 0, error.strerror or str(error)),)) from error


def save(file: str, text: str) -> None:
    """Write a file, and replace an existing one. Raises Unusable."""
    try:
        Path(file).write_text(text, "utf-8")
    except OSError as error:
        raise Unusable((Problem(file, 0, error.strerror or str(error)),)) from error
