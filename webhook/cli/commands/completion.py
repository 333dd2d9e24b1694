"""`slicewarden completion`: print a shell completion script."""

import click
from click.shell_completion import get_completion_class

from webhook.cli import outputs, parser

SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            'eval "$(slicewarden completion bash)"',
            "slicewarden completion bash > ~/.local/share/bash-completion/completions/slicewarden",
            "slicewarden completion zsh > ~/.zfunc/_slicewarden",
            "slicewarden completion fish > ~/.config/fish/completions/slicewarden.fish",
        ),
        parser.SHOWN,
        more="The first example works only in the current shell; the others in every new shell. For zsh, put the "
        "folder into fpath before compinit.",
        files={},
        environment={},
    ),
    help="Print a script with which a shell completes commands, options, file names and the ids of rules and lints.",
)
@click.argument("shell", type=parser.WordChoice(SHELLS), help="the shell that reads the script")
def command(shell: str) -> None:
    """Print the completion script."""
    root = click.get_current_context().find_root().command
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has all three
    outputs.show(made(root, {}, "slicewarden", parser.COMPLETE).source())
