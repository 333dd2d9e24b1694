"""`slicewarden explain`: show how memory caps are calculated."""

from collections.abc import Sequence

import click

from webhook.cli import inputs, options, outputs, parser
from webhook.facts.snapshot import Facts
from webhook.memory import explain, page
from webhook.model import Problem, Unusable
from webhook.text.spelling import hint

command = parser.Group(
    "explain",
    help="Show how memory caps are calculated: the sums for every pool, and the variables of each framework.",
    no_args_is_help=True,
    subcommand_metavar="TOPIC [ARGS]...",
    page=parser.Page(
        ("slicewarden explain caps --facts cluster.json --pool shared", "slicewarden explain frameworks"),
        parser.SHOWN,
    ),
)


@command.command(
    cls=parser.Command,
    page=parser.Page(("slicewarden explain caps --facts cluster.json --pool shared",), parser.SHOWN),
    short_help="the memory budget of every GPU: reserve, context, cap",
    help="Write the memory budget of every GPU in each shared pool, in MiB: the driver's reserve, what a process takes "
    "outside its framework's allocator (context), and the cap that is left.",
)
@options.policy()
@options.facts()
@click.option("--pool", metavar="NAME", help="show this pool alone")
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
    short_help="the variables of each framework, in Markdown",
    help="Write which variables limit each framework, since which version, and the source of each fact.",
)
def frameworks() -> None:
    """Write the page of all frameworks."""
    outputs.show(page.text())
