"""The text behind `--help`: prose that fits the terminal, examples as they are typed."""

import re
from argparse import ArgumentParser, HelpFormatter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

EXIT = {
    "0": "nothing was denied",
    "1": "something was denied",
    "2": "input, a policy or usage that cannot be used",
    "3": "a fault of ours",
    "4": "only warnings, with --fail-on warn",
}
"""The exit statuses of whatever judges objects."""

PLAIN = {"0": "it worked", "2": "input or usage that cannot be used", "3": "a fault of ours"}
"""Those of what only shows something."""

POLICIES = {"./policies": "the policy where none is given; its own files, not those of folders below it"}
KUBECONFIG = {"KUBECONFIG": "which cluster is meant, where --kubeconfig is not given"}
LOOK = {"NO_COLOR": "no colours, if it is not empty", "COLUMNS": "the width of tables, in place of the terminal's"}


class Parser(ArgumentParser):
    """A parser whose pages, and those of its commands, have the form of this module."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": Page, **given})


class Page(HelpFormatter):
    """Wraps prose, hangs what `epilog` explains behind its word, and leaves the lines of examples whole."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(f"{indent}{line}" for line in _filled(text, width - len(indent)))


_WORD = re.compile(r"(  \S+  +)(\S.*)")


def _filled(text: str, width: int) -> Iterator[str]:
    from textwrap import wrap  # for those who ask for help

    prose: list[str] = []
    for line in (*text.strip("\n").split("\n"), ""):
        if line and not line.startswith(" "):
            prose.append(line)
            continue
        yield from wrap(" ".join(prose), width)
        prose = []
        if (word := _WORD.fullmatch(line)) and not line.startswith("  $"):
            yield from wrap(word[2], width, initial_indent=word[1], subsequent_indent=" " * len(word[1]))
        elif line:
            yield line
        else:
            yield ""


def epilog(
    examples: Iterable[str],
    status: Mapping[str, str] = EXIT,
    *,
    more: str = "",
    files: Mapping[str, str] = POLICIES,
    environment: Mapping[str, str] = LOOK,
) -> str:
    """Compose what stands below the options. `examples` are command lines, `more` is prose above them."""
    sections = [
        more.strip("\n"),
        "\n".join(("examples:", *(f"  $ {each}" for each in examples))),
        _explained("exit status:", dict(sorted(status.items()))),
        _explained("files:", files),
        _explained("environment:", environment),
    ]
    return "\n\n".join(filter(None, sections))


def _explained(heading: str, words: Mapping[str, str]) -> str:
    width = max(map(len, words), default=0)
    return "\n".join((heading, *(f"  {word:<{width}}  {text}" for word, text in words.items()))) if words else ""
