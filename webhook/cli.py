"""The command `slicewarden`."""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING

from webhook import manual
from webhook.commands import COMMANDS
from webhook.model import Unusable
from webhook.options import INTERNAL, INTERRUPTED, UNUSABLE

if TYPE_CHECKING:
    from webhook import keeper


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; `manual.EXIT` says what the exit statuses mean."""
    gc.set_threshold(
        50_000, 10, 10
    )  # what a start makes stays, and being looked through for garbage took a tenth of it
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["certs"]:  # a command of its own, which knows nothing of policies
        from certs.__main__ import main as certs

        return certs(arguments[1:], _keeper, manual.Parser)
    chosen = parser(arguments[0] if arguments else "").parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except Unusable as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has gone; so has the reason to write more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNUSABLE
    except Exception as error:  # the last place to turn a fault into an exit status
        import traceback  # which nearly no run needs

        traceback.print_exception(error.__cause__ or error)
        print(f"slicewarden: internal error: {error}", file=sys.stderr)
        return INTERNAL


def _keeper(chosen: argparse.Namespace) -> "keeper.Keeper":
    from webhook import cluster, keeper

    names = keeper.Names(chosen.namespace, chosen.ca_secret_name, chosen.secret_name, chosen.configuration)
    api = cluster.connect(chosen.kubeconfig and str(chosen.kubeconfig), chosen.context)
    return keeper.Keeper(api, names, lambda line: print(line, file=sys.stderr))


def parser(*names: str) -> argparse.ArgumentParser:
    """Make a parser that knows all commands by name, and the options of some: nothing else need be imported.

    kubectl calls its plugin NAME by the file kubectl-NAME, and `kubectl slicewarden` is how its pages call it.
    """
    plugin = PurePath(sys.argv[0]).name.startswith("kubectl-")
    made = manual.Parser(
        prog="kubectl slicewarden" if plugin else "slicewarden",
        description="Admission control for shared GPUs on Kubernetes: judge manifests and clusters, look after the "
        "policy, run the webhook.",
        epilog=manual.epilog(
            ("slicewarden check deploy/ --facts cluster.yaml", "slicewarden audit", "slicewarden check --help"),
            more="Each command has a page of its own.",
        ),
    )
    made.add_argument("--version", "-V", action=_Version)
    made.set_defaults(whole=_whole)
    commands = made.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for each, summary in COMMANDS.items():
        command = commands.add_parser(each, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if each in names:
            module = import_module(f"webhook.commands.{each}")
            module.options(command)
            command.set_defaults(run=module.run)
    return made


def _whole() -> argparse.ArgumentParser:
    """All that can be typed, for what completes it."""
    from certs.__main__ import parser as certs

    made = parser(*(COMMANDS.keys() - {"certs"}))
    commands = next(action for action in made._actions if isinstance(action, argparse._SubParsersAction))
    commands.choices["certs"] = certs(_keeper, manual.Parser)
    return made


class _Version(argparse.Action):
    """Looks the version up when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"slicewarden {version('slicewarden')}")
        parser.exit()
