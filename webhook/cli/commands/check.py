"""`slicewarden check`: judge manifests as the webhook would."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import click

from webhook import reports, rules
from webhook.cli import inputs, options, outputs, parser
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu import guard
from webhook.scan import batches

_MORE = (
    "The objects of a run are facts for each other: with a Namespace its labels are known. A saved AdmissionReview is "
    "judged as the request it is, with its operation, its old object and who sent it. Render charts first, and "
    "whatever a tool applies for you."
)

_EXAMPLES = (
    "slicewarden check deploy/ --policy policies/ --facts cluster.yaml",
    "slicewarden check 'apps/**/*.yaml' --live --explain",
    "slicewarden check --format sarif --output findings.sarif --format table",
    "helm template deploy/chart | slicewarden check -",
    "kustomize build overlays/prod | slicewarden check - --facts cluster.yaml",
    "argocd app manifests app | slicewarden check -",
    "flux build kustomization app --path ./app | slicewarden check -",
    "kubectl get pods -A -o json | slicewarden check -",
)


@click.command(
    cls=parser.Command,
    page=parser.Page(_EXAMPLES, more=_MORE, environment=parser.KUBECONFIG | parser.LOOK),
    help="Judge manifests as the webhook would: as they would be after its patch. Says of each object whether it is "
    "allowed, what is found with file and line, what would be patched, and where its pods would land.",
)
@click.argument(
    "paths",
    nargs=-1,
    type=options.PATH,
    metavar="[PATH]...",
    help="files, folders, quoted patterns such as 'apps/**/*.yaml', - for standard input; default: this folder",
)
@options.policy()
@options.facts(live="take the facts from the cluster; `audit` judges what runs")
@options.cluster
@options.namespace("of objects that name none; default: default")
@options.report(reports.FORMATS)
@click.option("--explain", is_flag=True, help="add memory budgets, and patches as diffs")
def command(
    paths: Sequence[str],
    policy: str | None,
    facts: Sequence[str],
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    formats: Sequence[str],
    files: Sequence[str],
    fail_on: str,
    explain: bool,
) -> int:
    """Judge everything, write the reports; the exit status says the worst of it."""
    wanted = options.wanted(formats, files, reports.FORMATS)
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    inputs.note_sample(policy)
    engine = Engine(inputs.load_policy(policy), rules.walk())
    now = datetime.now(UTC)
    objects = batches.read(paths or ["."], namespace)
    target = inputs.Target(kubeconfig, context, namespace) if live else None
    known, unknown = inputs.known(facts, target, [engine.policy])
    all_facts = replace(Facts.of((*known, *objects.facts)), today=now.date())
    if not (facts or live):
        inputs.note_missing(all_facts)
    if caution := guard.unguarded(engine.policy, all_facts):
        outputs.say([f"warning: {caution}"])
    diffs = explain or any(report.format == "markdown" for report in wanted)
    report = objects.judge(engine, all_facts, at=now, explained=explain, diffs=diffs)
    report = replace(report, problems=(*unknown, *report.problems))
    outputs.say(reports.unshown((wanted_report.format for wanted_report in wanted), report))
    outputs.write(wanted, lambda name, look: reports.render(name, report, look))
    return options.status(
        fail_on,
        denied=report.count(allowed=False) > 0,
        warned=report.warned > 0,
        unusable=bool(report.problems),
    )
