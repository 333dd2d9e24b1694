"""`slicewarden explain`: show how memory caps are calculated."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import click

from webhook import rules
from webhook.cli import inputs, options, outputs, parser
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.memory import explain, page
from webhook.model import Object, Problem, Unusable
from webhook.policy.model import Policy
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
    page=parser.Page(
        (
            "slicewarden explain caps --facts cluster.json --pool shared",
            "slicewarden explain caps deploy/ --facts cluster.json",
        ),
        parser.SHOWN,
    ),
    short_help="the memory budget of every GPU, or what caps each framework of a pod",
    help="Write the memory budget of every GPU in each shared pool, in MiB: the driver's reserve, what a process takes "
    "outside its framework's allocator (context), and the cap that is left. For files, write instead what caps each "
    "framework in each container, or why nothing does and which line turns a cap on.",
)
@click.argument("paths", nargs=-1, type=options.PATH, metavar="[FILE]...", help="manifests; default: the pools")
@options.policy()
@options.facts()
@click.option("--pool", metavar="NAME", help="show this pool alone")
def caps(paths: Sequence[str], policy: str | None, facts: Sequence[str], pool: str | None) -> int:
    """Write the budgets of the pools, or how the pods of some files are capped."""
    if paths and pool:
        raise click.UsageError("--pool cannot be used with FILE: each pod has its own pool")
    inputs.note_sample(policy)
    loaded = inputs.load_policy(policy)
    items = [item.value for item in inputs.load_facts(facts)]
    if paths:
        return _pods(paths, loaded, items)
    known = Facts.of(items)
    pools = [candidate for candidate in loaded.pools if pool in (None, candidate.name)]
    if not pools:
        names = [candidate.name for candidate in loaded.pools]
        raise Unusable((Problem(str(pool), 0, f"no such pool{hint(str(pool), names)}"),))
    outputs.show(explain.caps(loaded, known, pools))
    return 0


def _pods(paths: Sequence[str], policy: Policy, items: Sequence[Object]) -> int:
    """Write how the pods of some files are capped. Objects without a shared GPU are left out."""
    from webhook.scan import batches  # the pools do without

    objects = batches.read(paths, workloads=policy.workloads)
    facts, now = Facts.of((*items, *objects.facts)), datetime.now(UTC)
    facts = replace(facts, today=now.date())
    report = objects.judge(Engine(policy, rules.walk()), facts, at=now, diffs=True)
    landings = [(judged.title, landing) for judged in report.judged for landing in judged.landings]
    outputs.show(explain.covered((title, *one) for title, landing in landings for one in landing.capped))
    outputs.say(map(str, report.problems))
    return options.UNUSABLE if report.problems else 0


@command.command(
    cls=parser.Command,
    page=parser.Page(("slicewarden explain frameworks",), parser.SHOWN, files={}, environment={}),
    short_help="the variables of each framework, in Markdown",
    help="Write which variables limit each framework, since which version, and the source of each fact.",
)
def frameworks() -> None:
    """Write the page of all frameworks."""
    outputs.show(page.text())
