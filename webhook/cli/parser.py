"""Commands and groups whose help ends with examples, exit statuses, files and environment variables."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click

from webhook.text.spelling import hint
from webhook.text.words import shown

JUDGED = {
    "0": "nothing was denied",
    "1": "at least one object was denied",
    "2": "invalid arguments, input or policy",
    "4": "only warnings, with --fail-on warn",
}
"""The exit statuses of a command that judges objects."""

SHOWN = {"0": "success", "2": "invalid arguments or input"}
"""The exit statuses of a command that only shows something."""

ENDED = {
    "3": "internal error",
    "130": "interrupted by Ctrl-C",
    "141": "the reader of the output left early, as head does",
}
"""The exit statuses that any command may end with, in addition to its own."""

POLICIES = {
    "./policies": "the policy if none is given: the files in it, not those in folders below it",
}
SETTINGS = {
    "slicewarden.toml": "policy = PATH, facts = [PATH]: defaults for --policy and --facts; searched for from this "
    "folder up to the root of the Git repository; or [tool.slicewarden] in pyproject.toml",
}
VARIABLES = {
    "SLICEWARDEN_POLICY": "the default for the policy; it counts before slicewarden.toml",
    "SLICEWARDEN_FACTS": "the default for --facts, in the same way; several files are separated by colons",
}
KUBECONFIG = {"KUBECONFIG": "the cluster if --kubeconfig is not given"}
LOOK = {
    "NO_COLOR": "never use colour, unless --color is given",
    "FORCE_COLOR": "always use colour, unless NO_COLOR or --color is given",
    "COLUMNS": "the width of tables",
}


class HelpEpilog(NamedTuple):
    """The end of a command's help: paragraphs, example command lines, and terms with their meanings."""

    examples: tuple[str, ...]
    status: Mapping[str, str] = JUDGED
    more: str = ""
    files: Mapping[str, str] = POLICIES
    environment: Mapping[str, str] = LOOK

    def write(self, formatter: click.HelpFormatter) -> None:
        """Write the sections that are not empty."""
        if self.more:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(self.more)
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}$ {line}\n")  # never wrapped: it will be copied
        sections = {"Exit status": self.statuses, "Files": self.files, "Environment": self.environment}
        for heading, meanings in sections.items():
            if meanings:
                with formatter.section(heading):
                    formatter.write_dl([*meanings.items()])

    @property
    def statuses(self) -> Mapping[str, str]:
        """The exit statuses, sorted, including those that every command has."""
        every = {**ENDED, **self.status}
        return {number: every[number] for number in sorted(every, key=int)}


COMPLETE = "_SLICEWARDEN_COMPLETE"
"""The environment variable with which a shell asks for completions (click's documentation: Shell Completion)."""

DNS_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""The pattern of a DNS-1123 label, which a namespace's name is (apimachinery pkg/util/validation/validation.go)."""

TYPED = "webhook.typed"
"""The key in a context's `meta` with the names of all parameters, in the order in which they were typed."""


class Command(click.Command):
    """A command whose help has an epilog. It remembers in which order its parameters were typed."""

    def __init__(self, *names: Any, page: HelpEpilog, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.page = page

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, and store their order in the context under TYPED.

        Raises UsageError for a file whose name would be taken for an option.
        """
        if not ctx.resilient_parsing and any(_names_files(each) for each in self.params):
            _refuse_mistaken(args, ctx)
        _, _, order = self.make_parser(ctx).parse_args(args=[*args])
        ctx.meta[TYPED] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog below the options."""
        self.whole_page.write(formatter)

    @property
    def whole_page(self) -> HelpEpilog:
        """The epilog, with the files and the environment variables that give defaults to the command's options."""
        variables = {str(each.envvar) for each in self.params if each.envvar}
        environment = {name: meaning for name, meaning in VARIABLES.items() if name in variables}
        settings = SETTINGS if any(callable(each.default) for each in self.params) else {}
        return self.page._replace(
            files={**self.page.files, **settings}, environment={**environment, **self.page.environment}
        )


def _names_files(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Argument) and isinstance(parameter.type, click.Path)


def _refuse_mistaken(args: Sequence[str], ctx: click.Context) -> None:
    """Raise UsageError for a word that begins with `-` and names a file, as `*` in a shell and pre-commit write it.

    Options end at `--`. A `-` after it is still standard input.
    """
    end = next((index for index, word in enumerate(args) if word == "--" and not os.path.lexists(word)), len(args))
    for index, word in enumerate(args):
        if word.startswith("-") and (index < end or word == "-") and os.path.lexists(word):
            taken = "standard input" if word == "-" else "an option"
            name = f"./{word}"
            text = f"the file {shown(word)} would be taken for {taken}: write {shown(name)}, or remove the file"
            raise click.UsageError(text, ctx)


class CommandGroup(click.Group):
    """A group of commands, in the order in which they were added. If no command is given, the group prints its help."""

    def __init__(self, *names: Any, page: HelpEpilog, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.page = page

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order in which they were added."""
        return [*self.commands]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog below the commands."""
        self.page.write(formatter)


def below(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of each command of a group; nothing for a command that is no group."""
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if inner := command.get_command(context, name):
                yield click.Context(inner, info_name=name, parent=context)


def walk(context: click.Context) -> Iterator[click.Context]:
    """Yield a command's context, and those of all commands below it."""
    yield context
    for inner in below(context):
        yield from walk(inner)


class WordChoice(click.Choice[str]):
    """An option whose value is one of some words.

    The error for any other word suggests the nearest one, or lists all.
    """

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Suggest the word that was likely meant."""
        return f"unknown {value!r}{hint(str(value), self.choices)}"


class Number(click.IntRange):
    """A number in a range. The error for any other value names both ends of the range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Refuse a value that is no number or is outside the range."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"{value!r} is not a number from {self.min} to {self.max}", param, ctx)


class NamedPath(click.Path):
    """The name of a file or folder, which need not exist. Refuses an empty name, as from an unset shell variable."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(readable=False, allow_dash=True, **settings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty name."""
        if value == "":
            self.fail("is empty, and names nothing; is a variable not set?", param, ctx)
        return super().convert(value, param, ctx)


class Either(click.Option):
    """An option that excludes another one. If it is `needed`, one of the two is required."""

    def __init__(self, *names: Any, other: str, needed: bool = False, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.other, self.needed = other, needed

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Read the value. Raises UsageError if both options are given, or if a needed one is missing."""
        given = [name for name in (self.name, self.other) if name in opts]
        names = f"--{self.name} and --{self.other}"
        if self.name not in given and (self.other in given or ctx.resilient_parsing):
            opts = {
                **opts,
                self.name: () if self.multiple else False,
            }  # an option on the command line comes before any default
        if len(given) == 2 and not ctx.resilient_parsing:  # when a shell asks for completions
            raise click.UsageError(f"{names} exclude each other", ctx)
        value, args = super().handle_parse_result(ctx, opts, args)
        if self.needed and not value and self.other not in given and not ctx.resilient_parsing:
            raise click.UsageError(f"one of {names} is needed", ctx)
        return value, args
