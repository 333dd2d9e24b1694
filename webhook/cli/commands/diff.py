"""`slicewarden diff`: compare two policies."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING

import click

from webhook.cli import fleets, inputs, options, outputs, parser
from webhook.cli.inputs import Target
from webhook.cli.outputs import Wanted
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.reports import diff_report
from webhook.scan import batches, diff, sharing
from webhook.scan.diff import Change, ChangeEffect, Compare, Compared
from webhook.scan.results import Judged, only
from webhook.telemetry import progress
from webhook.text.terminal import Look

if TYPE_CHECKING:
    from webhook.reports.fleet import Line

FORMATS = {**diff_report.FORMATS, "html": "a page for a browser"}
FAIL_ON = ("deny", "warn", "any", "never")

_MORE = (
    "With --live and without PATH the objects in the cluster are judged as if they were created again: workloads by "
    "their templates, and pods that have no workload. Pods that have ended and objects that the webhook is never asked "
    "about are left out."
)


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden diff policies/sample.yaml new.yaml deploy/ --facts cluster.json",
            "slicewarden diff origin/main:policies policies deploy/ --facts cluster.json --format markdown",
            "slicewarden diff origin/main:policies policies --live",
            "slicewarden diff origin/main:policies policies deploy/ --live",
            "slicewarden diff 'origin/main:policies/{cluster}' 'policies/{cluster}' --cluster eu-1=clusters/eu-1",
        ),
        {
            "0": "no change that --fail-on names",
            "1": "an object is newly denied; with --fail-on any, any change",
            "2": "invalid arguments, input or policy",
            "4": "an object is newly warned about, with --fail-on warn",
        },
        more=_MORE,
        files={},
        environment=parser.KUBECONFIG | parser.LOOK,
    ),
    help="Judge the same objects by two policies, with the same facts, and list what changes: objects that are newly "
    "denied, allowed or warned about, patched differently, or placed in another pool.",
)
@click.argument("old", type=options.PATH, help="the current policy: a file or folder, or REV:PATH in Git")
@click.argument("new", type=options.PATH, help="the changed policy, given in the same way")
@click.argument(
    "paths",
    nargs=-1,
    type=options.PATH,
    metavar="[PATH]...",
    help="objects to judge: files and folders, or - for standard input; default: this folder, or the cluster with "
    "--live",
)
@options.facts(live="take the facts from the cluster, and the objects too if no PATH is given")
@fleets.OPTION
@options.cluster
@options.namespace("namespace for objects that do not set one; with --live, the only namespace that is read")
@options.report(FORMATS, FAIL_ON)
@options.rules()
@click.option("--all", "everything", is_flag=True, help="list all objects, also those that do not change")
@options.STATISTICS
def command(
    old: str,
    new: str,
    paths: Sequence[str],
    facts: Sequence[str],
    live: bool,
    fleet: Sequence[fleets.Member],
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    wanted: Sequence[Wanted],
    fail_on: str,
    everything: bool,
    statistics: bool,
) -> int:
    """Judge everything by both policies and write the differences. Returns the exit status for the worst one."""
    if statistics:
        options.counted(wanted)
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    if fleet:
        fleets.exclude(wanted, PATH=paths, **{"--live": live, "--statistics": statistics, "--all": everything})
        own = partial(_of_member, loaded=cache(inputs.engine), old=old, new=new, namespace=namespace, fail_on=fail_on)
        return fleets.run(fleet, "FleetDiffReport", wanted, own)
    before, after = map(inputs.engine, (old, new))
    target = Target(kubeconfig, context, namespace)
    compare = partial(diff.compare, old=before, new=after, narrow=_narrow(), everything=everything)
    if live and not paths:
        result = _of_cluster(target, before, after, compare)
    else:
        result = _of_files(paths or ["."], facts, target if live else None, namespace, before, after, compare)
    outputs.write(wanted, partial(_render, result, statistics=statistics))
    return _status(fail_on, result)


def _of_member(
    member: fleets.Member,
    loaded: Callable[[str | None], Engine],
    old: str,
    new: str,
    namespace: str | None,
    fail_on: str,
) -> "tuple[Line, int]":
    """Compare the two policies of a cluster on the objects of its folder, which also has the facts."""
    from webhook.reports.fleet import Line  # which other runs do not need

    before, after = (loaded(member.own(path)) for path in (old, new))
    compare = partial(diff.compare, old=before, new=after, narrow=_narrow())
    change = _of_files([member.folder], (), None, namespace, before, after, compare, noted=False)
    counts = {diff_report.HEADINGS[effect]: len(change.having(effect)) for effect in ChangeEffect}
    line = Line(member.name, {**counts, "as before": change.unchanged}, change.problems)
    return line, _status(fail_on, change)


def _of_files(
    paths: Sequence[str],
    facts: Sequence[str],
    target: Target | None,
    namespace: str | None,
    old: Engine,
    new: Engine,
    compare: Compare,
    *,
    noted: bool = True,
) -> Change:
    known, unknown = inputs.known(facts, target, (old.policy, new.policy))
    with inputs.rendering(known) as rendering:
        objects = batches.read(
            paths,
            namespace,
            workloads={**old.policy.workloads, **new.policy.workloads},
            rbac=old.policy.asks_rbac or new.policy.asks_rbac,
            rendering=rendering,
        )
    all_facts = _facts((*known, *objects.facts_next_to(known)))
    if noted and not (facts or target):
        inputs.note_missing(all_facts)
    compared = objects.each(partial(compare, facts=all_facts))
    passed = (Compared(passed_over=kind) for kind in objects.kinds)
    change = Change.of(old, new, chain(compared, passed), (*unknown, *objects.problems, *objects.lacking(paths)))
    change = replace(change, warnings=tuple(objects.warnings), unread=tuple(objects.notes))
    return _with_pools(change, all_facts)


def _of_cluster(target: Target, old: Engine, new: Engine, compare: Compare) -> Change:
    from webhook.cluster import listing  # 30 MiB, which only a live cluster needs
    from webhook.scan import cluster

    api = listing.connect(target.kubeconfig, target.context)
    with progress.bar() as tell:
        change, facts = cluster.compared(api, old, new, compare, target.namespace, tell=tell)
    return _with_pools(change, facts)


def _narrow() -> Callable[[Judged], Judged] | None:
    """Return a filter for the findings of the rules that the command line chooses; None to compare all."""
    chosen = options.chosen()
    return partial(_narrowed, chosen) if chosen else None


def _narrowed(chosen: options.Rules, judged: Judged) -> Judged:
    kept = only(judged, chosen, patched=not chosen.named)
    return replace(kept, landings=()) if chosen.named else kept


def _with_pools(change: Change, facts: Facts) -> Change:
    return replace(change, pools=sharing.overview(change.new, facts))


def _render(change: Change, name: str, look: Look, *, statistics: bool) -> str:
    if statistics:
        from webhook.reports import statistics as counts  # which other runs do not need

        return counts.render(name, counts.of_change(change), diff_report.summary(change, look), look)
    if name != "html":
        return diff_report.render(name, change, look)
    from webhook.reports.formats import html  # Jinja, which only a page needs

    return html.diff(change, look)


def _facts(objects: Iterable[Object]) -> Facts:
    return replace(Facts.of(objects), today=datetime.now(UTC).date())


def _status(fail_on: str, change: Change) -> int:
    unusable = bool(change.problems)
    if fail_on == "any" and change.changed and not unusable:
        return options.DENIED
    return options.status(
        fail_on,
        denied=bool(change.having(ChangeEffect.DENIED)),
        warned=bool(change.having(ChangeEffect.WARNED)),
        unusable=unusable,
    )
