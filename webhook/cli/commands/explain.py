"""`slicewarden explain`: say how memory caps come about."""

from collections.abc import Sequence

import click

from webhook.cli import inputs, options, outputs, parser
from webhook.facts.snapshot import Facts
from webhook.memory import explain, page
from webhook.model import Problem, Unusable
from webhook.text.spelling import hint

command = parser.Group(
    "explain",
    help="Say how memory caps come about: the sums for every pool, and what each framework can be told.",
    no_args_is_help=True,
    subcommand_metavar="TOPIC [ARGS]...",
    page=parser.Page(
        ("slicewarden explain caps --facts cluster.yaml --pool shared", "slicewarden explain frameworks"),
        parser.SHOWN,
    ),
)


@command.command(
    cls=parser.Command,
    page=parser.Page(("slicewarden explain caps --facts cluster.yaml --pool shared",), parser.SHOWN),
    short_help="the budget of every card: reserve, context, cap",
    help="Write the budget of every card in each shared pool, in MiB: what is kept back for the driver, what a process "
    "takes beside its framework's allocator, and the cap that is left.",
)
@options.policy()
@options.facts()
@click.option("--pool", metavar="NAME", help="of one pool alone")
def caps(policy: str | None, facts: Sequence[str], pool: str | None) -> None:
    """Write the budgets of the pools."""
    inputs.note_sample(policy)
    loaded = inputs.load_policy(policy)
    known = Facts.of(item.value for item in inputs.load_facts(facts))
    pools = [candidate for candidate in loaded.pools if pool in (None, candidate.name)]
    if not pools:
        names = [candidate.name for candidate in loaded.pools]
        raise Unusable((Problem(str(pool), 0, f"no such pool{hint(str(pool), names)}"),))
    outputs.show(explain.caps(loaded, known, pools))


@command.command(
    cls=parser.Command,
    page=parser.Page(("slicewarden explain frameworks",), parser.SHOWN, files={}, environment={}),
    short_help="what each framework knows of caps, in Markdown",
    help="Write which variables each framework knows, since when, and where that is known from.",
)
def frameworks() -> None:
    """Write the page of all frameworks."""
    outputs.show(page.text())
