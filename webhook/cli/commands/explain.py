"""`slicewarden explain`: show how memory caps are calculated, and who may be paused."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import click

from webhook import rules
from webhook.api.admission import NotAReview
from webhook.api.lenient import mapping, string
from webhook.cli import inputs, options, outputs, parser
from webhook.documents.files import Item
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu.pauses import Pause, pause
from webhook.gpu.review import pods_of
from webhook.memory import explain, page
from webhook.model import Malformed, Object, Problem, Unusable
from webhook.policy.model import Policy, Pool
from webhook.text import tables
from webhook.text.spelling import hint

command = parser.CommandGroup(
    "explain",
    help="Show how memory caps are calculated: the sums for every pool, and the variables of each framework; and which "
    "containers may be paused on a contended GPU.",
    no_args_is_help=True,
    subcommand_metavar="TOPIC [ARGS]...",
    page=parser.HelpEpilog(
        ("slicewarden explain caps --facts cluster.json --pool shared", "slicewarden explain frameworks"),
        parser.SHOWN,
    ),
)


@command.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
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
@click.option("--pool", metavar="NAME", help="show only this pool")
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

    objects = batches.read(paths, workloads=policy.workloads, rbac=policy.asks_rbac)
    facts, now = Facts.of((*items, *objects.facts)), datetime.now(UTC)
    facts = replace(facts, today=now.date())
    report = objects.judge(Engine(policy, rules.walk()), facts, at=now, diffs=True)
    landings = [(judged.title, landing) for judged in report.judged for landing in judged.landings]
    rows = [(title, *one) for title, landing in landings for one in landing.capped]
    return _shown(
        explain.covered(rows) if rows else "", explain.covered(()), (*report.problems, *objects.lacking(paths))
    )


def _shown(text: str, empty: str, problems: Sequence[Problem]) -> int:
    """Write a table, then the problems. If there are neither, write `empty`."""
    if text or not problems:
        outputs.show(text or empty)
    outputs.say(f"error: {problem}" for problem in problems)
    return options.UNUSABLE if problems else 0


STANDSTILLS = ("object", "container", "pool", "may stand still", "and why, or why not")


@command.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        ("slicewarden explain turns deploy/ --policy policies/ --facts cluster.json",), parser.SHOWN
    ),
    short_help="which containers may be paused on a contended GPU, and for how long",
    help="Write which containers with a GPU the agent may freeze until their turn, by the policy (node.contention), "
    "the annotation slicewarden.dev/pausable and the containers' probes, and for how long; or why it never does.",
)
@click.argument("paths", nargs=-1, type=options.PATH, metavar="FILE...", required=True, help="manifests")
@options.policy()
@options.facts()
def turns(paths: Sequence[str], policy: str | None, facts: Sequence[str]) -> int:
    """Write how long the containers of some files may be frozen."""
    from webhook.scan import batches

    inputs.note_sample(policy)
    loaded = inputs.load_policy(policy)
    objects = batches.read(paths, workloads=loaded.workloads, rbac=loaded.asks_rbac)
    known = Facts.of((*(item.value for item in inputs.load_facts(facts)), *objects.facts))
    if not facts:
        inputs.note_missing(known, live=False)
    rows = [row for found in objects.each(partial(_standstills, policy=loaded, facts=known)) for row in found]
    table = "".join(f"{line}\n" for line in tables.columns([STANDSTILLS, *rows])) if rows else ""
    return _shown(table, "no container with a GPU\n", (*objects.problems, *objects.lacking(paths)))


def _standstills(item: Item, policy: Policy, facts: Facts) -> list[tuple[str, ...]]:
    """Return a row for each container of an object that asks for a GPU, as the agent judges its pods.

    A pod that the webhook would refuse is shown for the first pool that offers its resources. A malformed object has
    one row, which says so.
    """
    value = item.value
    kind, metadata = str(value.get("kind")), mapping(value.get("metadata"))
    try:
        return _rows({**value, "metadata": metadata}, policy, facts)
    except (Malformed, NotAReview) as error:
        title = f"{kind} {'/'.join(filter(None, (string(metadata.get(key)) for key in ('namespace', 'name'))))}"
        return [(title.strip(), "-", "-", "never", f"it cannot be judged: {error}")]


def _rows(value: Object, policy: Policy, facts: Facts) -> list[tuple[str, ...]]:
    from webhook.scan import live

    rows: list[tuple[str, ...]] = []
    for review in pods_of(live.request(value, policy, facts), value, policy, facts):
        asked = {request.resource for request in review.requests}
        offering = (pool for pool in policy.pools if any(name in pool.resources for name in asked))
        pool = (review.placement and review.placement.pool) or next(offering, None)
        for container in review.subject.containers:
            if container.path not in review.gpu_containers:
                continue
            bears = pause(review, container, pool) if pool else "no pool has what its pod asks for"
            may = f"{bears.longest} s" if isinstance(bears, Pause) else "never"
            why = bears if isinstance(bears, str) else f"then it runs for {max(bears.rest, _rest(pool))} s at least"
            names = filter(None, (review.subject.namespace, value["metadata"].get("name")))
            title = f"{value['kind']} {'/'.join(names)}"
            rows.append((title, container.name, pool.name if pool else "-", may, why))
    return rows


def _rest(pool: Pool | None) -> int:
    return pool.contention.rest if pool else 0


@command.command(
    cls=parser.Command,
    page=parser.HelpEpilog(("slicewarden explain frameworks",), parser.SHOWN, files={}, environment={}),
    short_help="the variables of each framework, in Markdown",
    help="Write which variables limit each framework, since which version, and the source of each fact.",
)
def frameworks() -> None:
    """Write the page of all frameworks."""
    outputs.show(page.text())
