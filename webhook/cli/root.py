"""The top-level command `slicewarden`, and the exit status after an error."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

import click

from webhook.cli import outputs
from webhook.cli.commands import COMMANDS
from webhook.cli.options import INTERNAL, INTERRUPTED, UNREAD, UNUSABLE
from webhook.cli.parser import COMPLETE, CommandGroup, HelpEpilog
from webhook.model import Unusable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit status; `parser.JUDGED` and `parser.ENDED` list the meanings."""
    arguments = [*(sys.argv[1:] if argv is None else argv)]
    # kubectl calls its plugin NAME by the file kubectl-NAME, and its users type `kubectl slicewarden`.
    plugin = PurePath(sys.argv[0]).name.startswith("kubectl-")
    try:
        if asked := os.environ.get(COMPLETE):
            from click.shell_completion import shell_complete

            return shell_complete(root, {}, "slicewarden", COMPLETE, asked)
        with root.make_context("kubectl slicewarden" if plugin else "slicewarden", arguments) as context:
            return int(root.invoke(context) or 0)
    except click.exceptions.Exit as exit_:  # after --help and --version
        return exit_.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        _report(error)
        return error.exit_code
    except Unusable as error:
        for problem in error.problems:
            outputs.say([f"error: {problem}"])
        return UNUSABLE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, so nothing more is written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except Exception as error:  # the last place where an unexpected error can become an exit status
        import traceback  # imported here: nearly no run needs it

        outputs.say(
            f"  {row}" for each in traceback.format_exception(error.__cause__ or error) for row in each.splitlines()
        )
        outputs.say([f"internal error: {error}"])
        return INTERNAL


def _report(error: click.ClickException) -> None:
    """Print the error in a command line, then the command that shows its usage."""
    text = error.format_message().rstrip(".")
    if not text[1:2].isupper():  # FILE stays as it is
        text = f"{text[:1].lower()}{text[1:]}"
    outputs.say([f"error: {text}"])
    if isinstance(error, click.UsageError) and error.ctx:
        outputs.say([f"try '{error.ctx.command_path} --help'"])


_GROUPS = ("policy", "explain", "certs")
"""The commands that have subcommands."""


class _Root(CommandGroup):
    """Knows all commands by name, and imports only the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return cast("click.Command", import_module(f"webhook.cli.commands.{cmd_name}").command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            name = error.command_name
            if below := [f"{group} {name}" for group in _GROUPS if name in self._verbs(ctx, group)]:
                raise click.UsageError(f"No such command {name!r}. Did you mean {below[0]!r}?", ctx) from None
            raise click.NoSuchCommand(name, possibilities=COMMANDS, ctx=ctx) from None

    def _verbs(self, ctx: click.Context, group: str) -> list[str]:
        command = self.get_command(ctx, group)
        return command.list_commands(ctx) if isinstance(command, click.Group) else []

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        named = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return named + click.Command.shell_complete(self, ctx, incomplete)


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Do what the command `version` does, and end."""
    if wanted and not context.resilient_parsing:
        from webhook.cli.commands.version import show

        show()
        context.exit()


VERSION = click.Option(
    ["-V", "--version"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)

root = _Root(
    "slicewarden",
    params=[VERSION],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
    help="Admission control for shared GPUs on Kubernetes: judge manifests and clusters, work on the policy, run the "
    "webhook.",
    page=HelpEpilog(
        ("slicewarden check deploy/ --facts cluster.json", "slicewarden audit", "slicewarden help check"),
    ),
)
