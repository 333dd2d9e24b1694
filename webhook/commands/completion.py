"""`slicewarden completion`: print what has a shell complete the command."""

from argparse import Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Iterator

from webhook import lints, manual, outputs, rules

SHELLS = ("bash", "zsh", "fish")


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Print a script that has a shell complete commands, options, file names and the ids of rules and lints."
    )
    parser.epilog = manual.epilog(
        (
            'eval "$(slicewarden completion bash)"',
            "slicewarden completion bash > ~/.local/share/bash-completion/completions/slicewarden",
            "slicewarden completion zsh > ~/.zfunc/_slicewarden",
            "slicewarden completion fish > ~/.config/fish/completions/slicewarden.fish",
        ),
        manual.PLAIN,
        more="The first completes in this shell alone; the others, in each that is started from then on. For zsh the "
        "folder has to be in fpath before compinit.",
        files={},
        environment={},
    )
    parser.add_argument("shell", choices=SHELLS, help="%(choices)s")


def run(chosen: Namespace) -> int:
    """Print the script."""
    import shtab  # of no use to any other command

    whole: ArgumentParser = chosen.whole()
    whole.prog = "slicewarden"
    for action in _actions(whole):
        if action.metavar in ("PATH", "FILE", "OLD", "NEW"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "RULE":
            action.choices = [rule.id for rule in rules.walk()]
        elif action.metavar == "LINT":
            action.choices = list(lints.pages())
    outputs.show(shtab.complete(whole, chosen.shell) + "\n")
    return 0


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    for action in parser._actions:  # argparse has no public way to them, and shtab reads them too
        if isinstance(action, _SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
        else:
            yield action
