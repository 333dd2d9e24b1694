"""`slicewarden help`: show the help of a command."""

from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from webhook.cli import docs, options, outputs, parser
from webhook.cli.commands import COMMANDS


def _below(root: click.Context, words: Sequence[str]) -> click.Context:
    """Return the context of the command that these words name. Raises NoSuchCommand, and UsageError for more words."""
    context = root
    for word in words:
        if not isinstance(context.command, click.Group):
            raise click.UsageError(f"{context.command_path} has no command {word!r}", context)
        name, command, _ = context.command.resolve_command(context, [word])
        assert command is not None  # noqa: S101 - else it raises
        context = click.Context(command, info_name=name, parent=context)
    return context


def _names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    context = _below(ctx.find_root(), ctx.params.get("words") or ())
    if not isinstance(context.command, click.Group):
        return []
    names = context.command.list_commands(context)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        ("slicewarden help check", "slicewarden help policy lint", "slicewarden help --man man/"),
        parser.SHOWN,
        files={},
        environment={},
    ),
    help="Show the help of a command, as its option --help does. Without a command: the list of all commands.",
)
@click.argument(
    "words", nargs=-1, metavar="[COMMAND]...", shell_complete=_names, help="a command, such as check or policy lint"
)
@options.once("--man", type=options.PATH, metavar="DIR", help="write the man pages of all commands into this folder")
@click.option("--markdown", is_flag=True, help="the help of all commands, in Markdown")
def command(words: Sequence[str], man: str | None, markdown: bool) -> None:
    """Show the help, or write all of it as man pages or in Markdown."""
    root = click.get_current_context().find_root()
    if markdown:
        if words or man:
            raise click.UsageError("--markdown shows the help of all commands: leave out COMMAND and --man")
        outputs.show(docs.commands(root, COMMANDS))
        return
    if man is None:
        outputs.show(_below(root, words).get_help() + "\n")
        return
    from webhook.cli import man as manual
    from webhook.telemetry import release  # which the help itself does not need

    if words:
        raise click.UsageError("--man writes all pages: leave out COMMAND or --man")
    outputs.folder(man)
    for name, text in manual.pages(root, release.needed()):
        outputs.save(str(Path(man, name)), text)
