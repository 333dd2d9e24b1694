"""Parses command lines as `slicewarden` does, without running the commands."""

from collections.abc import Iterator
from typing import Any

import click

from webhook.cli import parser
from webhook.cli.root import root


def read(*words: str) -> dict[str, Any]:
    """Return the values of a command's parameters. Raises click's errors, and Exit for options that only print."""
    return _context(root, "slicewarden", [*words], None).params


def _context(command: click.Command, name: str, words: list[str], parent: click.Context | None) -> click.Context:
    if not isinstance(command, click.Group) or not words or words[0].startswith("-"):
        return command.make_context(name, words, parent=parent)
    context = command.context_class(command, info_name=name, parent=parent, **command.context_settings)
    inner, below, rest = command.resolve_command(context, words)
    assert inner is not None
    assert below is not None
    return _context(below, inner, rest, context)


def pages() -> Iterator[click.Context]:
    """Return the contexts of all commands and groups, from which their help is written."""
    yield from parser.walk(click.Context(root, info_name="slicewarden", **root.context_settings))
