"""The command `slicewarden`."""

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

import click

from webhook.cli.commands import COMMANDS
from webhook.cli.options import INTERNAL, INTERRUPTED, UNUSABLE
from webhook.cli.parser import COMPLETE, Group, Page
from webhook.model import Unusable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit status; `parser.JUDGED` says what each means."""
    gc.set_threshold(50_000, 10, 10)  # startup objects live for the whole run; collecting them took 10 % of a start
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
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Unusable as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, so nothing more is written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNUSABLE
    except Exception as error:  # the last place to turn a fault into an exit status
        import traceback  # which nearly no run needs

        traceback.print_exception(error.__cause__ or error)
        print(f"slicewarden: internal error: {error}", file=sys.stderr)
        return INTERNAL


class _Root(Group):
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
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        named = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return named + click.Command.shell_complete(self, ctx, incomplete)


root = _Root(
    "slicewarden",
    params=[],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
    help="Admission control for shared GPUs on Kubernetes: judge manifests and clusters, look after the policy, run "
    "the webhook.",
    page=Page(
        ("slicewarden check deploy/ --facts cluster.yaml", "slicewarden audit", "slicewarden check --help"),
        more="Each command has a page of its own.",
    ),
)
click.version_option(None, "--version", "-V", package_name="slicewarden", message="slicewarden %(version)s")(root)
