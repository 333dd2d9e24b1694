"""Implements the option `--cluster`: the clusters of a fleet, each judged by its own policy, objects and facts."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from webhook.cli import options, outputs
from webhook.cli.outputs import Wanted
from webhook.model import Unusable

if TYPE_CHECKING:
    from webhook.reports.fleet import Line

FORMATS = ("table", "json", "markdown")

PLACE = "{cluster}"
"""The part of a policy's path that becomes the name of each cluster."""


class Member(NamedTuple):
    """One cluster of a fleet: its name, and the folder with its objects and facts."""

    name: str
    folder: str

    def own(self, path: str | None) -> str | None:
        """Return the path of this cluster's own policy."""
        return path and path.replace(PLACE, self.name)


def _member(text: str) -> Member:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise click.BadParameter(f"{text!r} is not NAME=FOLDER")
    return Member(name, folder)


def _all(_: click.Context, __: click.Parameter, members: tuple[Member, ...]) -> tuple[Member, ...]:
    names = [each.name for each in members]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise click.BadParameter(f"cluster {twice!r} is given twice")
    return members


OPTION = click.option(
    "--cluster",
    "fleet",
    type=_member,
    multiple=True,
    callback=_all,
    metavar="NAME=FOLDER",
    help="judge this cluster by the objects and facts in a folder, and write one line for it; {cluster} in the path "
    "of a policy is its name; repeatable",
)
"""The option `--cluster`."""


def exclude(reports: Iterable[Wanted], **given: object) -> None:
    """Refuse the options and formats that cannot be combined with `--cluster`, such as `--facts`. Raises UsageError."""
    facts = click.get_current_context().get_parameter_source("facts") is ParameterSource.COMMANDLINE
    for name, value in {"--facts": facts, **given}.items():
        if value:
            raise click.UsageError(f"--cluster excludes {name}")
    for each in reports:
        if each.format not in FORMATS:
            raise click.UsageError(f"--cluster has no {each.format} format; use {', '.join(FORMATS)}")


def run(
    members: Sequence[Member], kind: str, wanted: Sequence[Wanted], judge: "Callable[[Member], tuple[Line, int]]"
) -> int:
    """Judge each cluster and write a line about it. Returns the worst exit status.

    `judge` returns the line and the status of one cluster. For a cluster whose input cannot be used, only the problems
    are written. `kind` is that of the JSON document.
    """
    from webhook.reports import fleet  # which other runs do not need

    lines, statuses = list[fleet.Line](), list[int]()
    for member in members:
        try:
            line, status = judge(member)
        except Unusable as error:
            line, status = fleet.Line(member.name, {}, error.problems), options.UNUSABLE
        lines.append(line)
        statuses.append(status)
    outputs.write(wanted, lambda name, look: fleet.render(name, kind, lines, look))
    return next((each for each in _WORST if each in statuses), 0)


_WORST = (options.UNUSABLE, options.DENIED, options.WARNED)
"""Exit statuses, the worst first."""
