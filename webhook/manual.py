"""How commands are read, and the text behind `--help`: prose that fits the terminal, examples as they are typed."""

import re
import sys
from argparse import REMAINDER, Action, ArgumentError, ArgumentParser, HelpFormatter, Namespace, _SubParsersAction
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from webhook.spelling import HANDFUL, hint, nearest

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
    """A parser whose pages, and those of its commands, have the form of this module.

    A command takes its arguments anywhere among its options. What it does not know it refuses itself, with its own
    usage and what was likely meant.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": Page, **given})
        self._begun = False

    def parse_known_args(  # type: ignore[override]  # of the library's overloads, which the last covers
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Read a command line; nothing unknown is left over. Ends the program where it cannot be used."""
        if self._begun:  # the library reads the options first and then the rest, through this very method
            return super().parse_known_args(args, namespace)
        given = list(sys.argv[1:] if args is None else args)
        if self._commands():
            self._refuse(self._strange(given))
            if not given:
                self.print_help(sys.stderr)
                self.exit(2)
        self._begun = True
        try:
            read = self.parse_known_intermixed_args if self._mixes(given) else super().parse_known_args
            chosen, unknown = read(given, namespace)
        finally:
            self._begun = False
        self._refuse(unknown)
        return chosen, unknown

    def _mixes(self, given: Sequence[str]) -> bool:
        """Tell whether the library can read arguments among options: all but subcommands, choices and `--`."""
        either = [action for group in self._mutually_exclusive_groups for action in group._group_actions]
        arguments = [action for action in self._actions if not action.option_strings]
        return "--" not in given and not any(a in either or a.nargs in ("A...", REMAINDER) for a in arguments)

    def _commands(self) -> bool:
        return any(isinstance(action, _SubParsersAction) for action in self._actions)

    def _strange(self, given: Sequence[str]) -> list[str]:
        """What stands before a subcommand and is no option: else only the missing subcommand would be told of."""
        before = takewhile(lambda word: word.startswith("-"), given)
        return [word for word in before if not any(known.startswith(word) for known in self._option_string_actions)]

    def _refuse(self, unknown: Sequence[str]) -> None:
        if unknown:
            options = {each.lstrip("-"): each for each in self._option_string_actions}
            words = [each.partition("=")[0].lstrip("-") for each in unknown if each.startswith("-")][:HANDFUL]
            meant = [options[near] for word in words if (near := nearest(word, options))]
            did_you = f", did you mean {' and '.join(meant)}?" if meant else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{did_you}")

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise ArgumentError(action, f"unknown {value!r}{hint(str(value), map(str, action.choices))}")


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
