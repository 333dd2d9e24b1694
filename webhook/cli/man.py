"""Writes man pages (man(7)) from the help of the commands, one page for each command."""

import re
from collections.abc import Iterator, Mapping

import click

from webhook.cli.parser import Command, CommandGroup, below, walk


def pages(root: click.Context, version: str) -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each page. The first one is the page of `slicewarden` itself."""
    for context in walk(root):
        name = context.command_path.replace(" ", "-")
        yield f"{name}.1", "\n".join(_page(context, name, version)) + "\n"


def _page(context: click.Context, name: str, version: str) -> Iterator[str]:
    command = context.command
    yield f'.TH "{name.upper()}" 1 "" "slicewarden {version}" "Slicewarden"'
    yield ".SH NAME"
    yield f"{_plain(name)} \\- {_plain(command.get_short_help_str(200).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {_plain(context.command_path)}"
    yield _plain(" ".join(command.collect_usage_pieces(context)))
    page = (
        command.whole_page
        if isinstance(command, Command)
        else command.page
        if isinstance(command, CommandGroup)
        else None
    )
    yield ".SH DESCRIPTION"
    yield _plain(command.help or "")
    if page and page.more:
        yield ".PP"
        yield _plain(page.more)
    records = [(each, each.get_help_record(context)) for each in command.get_params(context)]
    for heading, kind in (("ARGUMENTS", click.Argument), ("OPTIONS", click.Option)):
        rows = {record[0]: record[1] for each, record in records if record and isinstance(each, kind)}
        yield from _terms(heading, rows)
    yield from _terms("COMMANDS", {each.info_name or "": _short(each) for each in below(context)})
    if page:
        yield ".SH EXAMPLES"
        yield ".nf"
        yield from (_plain(f"$ {line}") for line in page.examples)
        yield ".fi"
        yield from _terms("EXIT STATUS", page.statuses)
        yield from _terms("FILES", page.files)
        yield from _terms("ENVIRONMENT", page.environment)
    above = context.parent.command_path.replace(" ", "-") if context.parent else ""
    others = [above] if above else []
    others += [each.command_path.replace(" ", "-") for each in below(context)]
    if others:
        yield ".SH SEE ALSO"
        yield ",\n".join(f".BR {_plain(other)} (1)" for other in others)


def _short(context: click.Context) -> str:
    return context.command.get_short_help_str(200)


def _terms(heading: str, rows: Mapping[str, str]) -> Iterator[str]:
    if rows:
        yield f".SH {heading}"
    for term, meaning in rows.items():
        yield ".TP"
        yield f".B {_plain(term)}"
        yield _plain(meaning)


def _plain(text: str) -> str:
    """Escape a text for man(7): backslashes and hyphens, and a control character at the start of a line."""
    text = re.sub(r"\s*\n\s*", " ", text).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
