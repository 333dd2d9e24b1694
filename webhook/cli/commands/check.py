"""`slicewarden check`: judge manifests as the webhook would."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook import reports
from webhook.cli import fleets, inputs, options, outputs, parser
from webhook.cli.outputs import Wanted
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu import guard
from webhook.model import Problem
from webhook.policy.model import Policy
from webhook.reports import formats
from webhook.scan import batches, grants
from webhook.scan.results import Report, only
from webhook.text.terminal import Look
from webhook.text.words import several

if TYPE_CHECKING:
    from webhook.reports.fleet import Line
    from webhook.scan.sharing import PoolUse

_MORE = (
    "The objects of a run are facts for each other: a Namespace in it gives its labels. A saved AdmissionReview is "
    "judged as the request in it, with its operation, old object and user. An object from a cluster is judged as it "
    "was created, if it is on standard input or in a file of --facts. Namespaces that are never sent to the "
    "webhook are skipped. Kustomizations, charts, and what Flux and "
    "Argo CD deploy are rendered first, by kustomize or kubectl and helm, if they are on PATH."
)

_EXAMPLES = (
    "slicewarden check deploy/ --policy policies/ --facts cluster.json",
    "slicewarden check 'apps/**/*.yaml' --live --explain",
    "slicewarden check --format sarif --output findings.sarif --format table",
    "slicewarden check deploy/ --rule uncapped-memory --statistics",
    "slicewarden check deploy/ --patched patched/",
    "slicewarden check --policy 'policies/{cluster}' --cluster eu-1=clusters/eu-1 --cluster us-2=clusters/us-2",
    "helm template deploy/chart | slicewarden check -",
    "kustomize build overlays/prod | slicewarden check - --facts cluster.json",
    "argocd app manifests app | slicewarden check -",
    "flux build kustomization app --path ./app | slicewarden check -",
    "kubectl get -A namespaces,nodes,configmaps,daemonsets,pods,clusterpolicies -o json | slicewarden check -",
)

_STATUS = {
    **parser.JUDGED,
    "1": "an object was denied or, with --fail-on unjudged, was not judged and has a container or a GPU, "
    "or was not rendered as it says",
    "2": "invalid arguments, input or policy, or no object that is judged",
}


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(_EXAMPLES, _STATUS, more=_MORE, environment=parser.KUBECONFIG | parser.LOOK),
    help="Judge manifests as the webhook would: like the API server, it first patches an object and then validates it. "
    "Lists the objects with findings or patches: what is wrong, with file and line, what would be patched, and where "
    "the pods would run.",
)
@click.argument(
    "paths",
    nargs=-1,
    type=options.PATH,
    metavar="[PATH]...",
    help="files, folders, quoted patterns such as 'apps/**/*.yaml', or - for standard input; default: this folder",
)
@options.policy()
@options.facts(live="take the facts from the cluster; `slicewarden audit` judges what runs there")
@fleets.OPTION
@options.cluster
@options.namespace("namespace for objects that do not set one (default: default)")
@options.report(formats.Purposes(), (*options.FAIL_ON, options.UNJUDGED))
@click.option("--skip-others", is_flag=True, help="pass over named files without a Kubernetes object, as in a folder")
@options.rendering
@click.option(
    "--touched", is_flag=True, help="judge the kustomizations and charts that named files belong to, as a whole"
)
@click.option("--system", is_flag=True, help="also judge the namespaces that are never sent to the webhook")
@options.EVERYTHING
@options.rules()
@options.STATISTICS
@click.option("--explain", is_flag=True, help="add memory budgets, and patches as diffs")
@click.option("--allow-empty", is_flag=True, help="do not fail if there is no object, or none of a kind that is judged")
@options.WATCH
@options.once(
    "--patched",
    type=options.PATH,
    metavar="OUT",
    help="write the manifests as the webhook would patch them: to a file, to a folder, or with - to standard output, "
    "and the report to standard error; comments within patched documents are lost",
)
def command(
    paths: Sequence[str],
    policy: str | None,
    facts: Sequence[str],
    live: bool,
    fleet: Sequence[fleets.Member],
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    wanted: Sequence[Wanted],
    fail_on: str,
    skip_others: bool,
    fetch: bool,
    no_cache: bool,
    touched: bool,
    system: bool,
    everything: bool,
    statistics: bool,
    explain: bool,
    allow_empty: bool,
    watch: bool,
    patched: str | None,
) -> int:
    """Judge everything and write the reports. Returns the exit status for the worst result."""
    if fleet:
        excluded = {"--live": live, "--statistics": statistics, "--watch": watch, "--patched": patched}
        excluded |= {"--explain": explain, "--all": everything, "--touched": touched, "--skip-others": skip_others}
        fleets.exclude(wanted, PATH=paths, **excluded)
        inputs.note_sample(policy)
        own = partial(_of_member, loaded=cache(inputs.engine), policy=policy, namespace=namespace, fail_on=fail_on)
        own = partial(own, fetch=fetch, cached=not no_cache, system=system, allow_empty=allow_empty)
        return fleets.run(fleet, "FleetReport", wanted, own)
    paths = paths or ["."]
    if statistics:
        options.counted(wanted)
    if watch:
        if "-" in paths or patched:
            raise click.UsageError("--watch needs files, and excludes - and --patched")
        return options.again(lambda: [*inputs.found((*paths, *facts)), *inputs.policy_files(policy)])
    if patched and (fetch or touched):
        raise click.UsageError("--patched reads each file as it is; it excludes --fetch and --touched")
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    inputs.note_sample(policy)
    engine = inputs.engine(policy)
    now = datetime.now(UTC)
    if patched:
        from webhook.cli import patched as manifests  # which other runs do not need

        goals = manifests.targets(paths, patched)
        if "-" in paths:
            manifests.hold_standard_input()
    target = inputs.Target(kubeconfig, context, namespace) if live else None
    known, unknown = inputs.known(facts, target, [engine.policy])
    with inputs.rendering(known, fetch=fetch, cached=not no_cache, touched=touched) as options_of_roots:
        objects = batches.read(
            [path for path in paths if not (touched and _leads_away(path))],
            namespace,
            workloads=engine.policy.workloads,
            gpus=engine.policy.gpu_resources,
            rbac=engine.policy.asks_rbac,
            skip_others=skip_others,
            rendering=None if patched else options_of_roots,
        )
    before = Facts.of(known)
    all_facts = replace(Facts.of((*known, *objects.facts_next_to(known))), today=now.date())
    if not (facts or live):
        inputs.note_missing(all_facts)
    inputs.note_claimed(before, all_facts, dumped="-" in paths)
    if caution := guard.unguarded(engine.policy, all_facts):
        outputs.say([f"warning: {caution}"])
    formats_wanted = {report.format for report in wanted}
    diffs = explain or not formats_wanted.isdisjoint(("html", "markdown"))
    of_repository = options.are_facts_of_repository() and not live
    dumps = frozenset(map(realpath, () if of_repository else inputs.found(facts)))
    report = objects.judge(engine, all_facts, at=now, explained=explain, diffs=diffs, system=system, dumps=dumps)
    pools = _pools(engine.policy, all_facts) if "html" in formats_wanted else None
    problems = [*unknown, *map(_with_way, report.problems)]
    if not (allow_empty or problems or report.objects or "-" in paths):
        problems.append(Problem(paths[0], 0, _nothing(objects.charts)))
    elif report.unjudged and not (allow_empty or problems or report.judged or report.left_alone):
        problems.append(Problem(paths[0], 0, "no object of a kind that is judged; --allow-empty accepts that"))
    trusted = Facts.of(()) if of_repository else before
    warnings = (*report.warnings, *grants.brought(engine.policy, trusted, all_facts, report.judged))
    report = replace(report, problems=tuple(problems), warnings=warnings, pools=pools, everything=everything)
    if rules_chosen := options.chosen():
        kept = (only(judged, rules_chosen, patched=not rules_chosen.named) for judged in report.judged)
        report = replace(report, judged=tuple(kept))
    outputs.say(reports.unshown((each.format for each in wanted), report))
    if patched:
        manifests.write(objects, engine, all_facts, goals, system=system)
    written = _counted if statistics else reports.render
    outputs.write(wanted, lambda name, look: written(name, report, look), aside=patched == "-")
    return _status(fail_on, report)


def _of_member(
    member: fleets.Member,
    loaded: Callable[[str | None], Engine],
    policy: str | None,
    namespace: str | None,
    fail_on: str,
    *,
    fetch: bool,
    cached: bool,
    system: bool,
    allow_empty: bool,
) -> "tuple[Line, int]":
    """Judge a cluster by its policy, and by the objects and facts of its folder."""
    from webhook.reports.fleet import Line  # which other runs do not need

    engine = loaded(member.own(policy))
    now = datetime.now(UTC)
    with inputs.rendering((), fetch=fetch, cached=cached) as rendering:
        objects = batches.read(
            [member.folder],
            namespace,
            workloads=engine.policy.workloads,
            gpus=engine.policy.gpu_resources,
            rbac=engine.policy.asks_rbac,
            rendering=rendering,
        )
    facts = replace(Facts.of(objects.facts), today=now.date())
    report = objects.judge(engine, facts, at=now, system=system)
    if not (allow_empty or report.problems or report.objects):
        report = replace(report, problems=(Problem(member.folder, 0, _nothing(objects.charts)),))
    if chosen := options.chosen():
        report = replace(report, judged=tuple(only(each, chosen) for each in report.judged))
    return Line(member.name, _counts(report), report.problems), _status(fail_on, report)


def _status(fail_on: str, report: Report) -> int:
    return options.status(
        fail_on,
        denied=report.count(allowed=False) > 0,
        warned=report.warned > 0,
        unjudged=report.unjudged_pods > 0 or report.unfollowed > 0,
        unusable=bool(report.problems),
    )


def _counts(report: Report) -> dict[str, int]:
    return {
        "denied": report.count(allowed=False),
        "allowed": report.count(allowed=True),
        "warned": report.warned,
        "unjudged": report.unjudged_pods,
    }


def _nothing(charts: int) -> str:
    """Say that there is nothing to judge: no object at all, or only charts that were not rendered."""
    if charts:
        return f"nothing but {several(charts, 'chart')} that helm has not rendered; --allow-empty accepts that"
    return f"{batches.NO_OBJECT}; --allow-empty accepts that"


def _leads_away(path: str) -> bool:
    """Whether a path is a link to a folder outside of its repository, of whose files no commit has any."""
    link = Path(path)
    if not (link.is_symlink() and link.is_dir()):
        return False
    from webhook.repository.tree import root_of  # which few runs need

    return not link.resolve().is_relative_to(root_of(str(link.parent)))


def _with_way(problem: Problem) -> Problem:
    """Name the option that skips a file without an object."""
    if problem.message != batches.NO_OBJECT:
        return problem
    return problem._replace(message=f"{problem.message}; --skip-others passes over such files")


def _pools(policy: Policy, facts: Facts) -> "tuple[PoolUse, ...]":
    from webhook.scan import sharing  # which other reports do not need

    return sharing.overview(policy, facts)


def _counted(name: str, report: Report, look: Look) -> str:
    from webhook.reports import statistics  # which other runs do not need
    from webhook.reports.formats import table

    return statistics.render(name, statistics.of_report(report), table.summary(report, look), look)
