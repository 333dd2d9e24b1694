"""`slicewarden check`: judge manifests as the webhook would."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from datetime import UTC, datetime

from webhook import batches, guard, inputs, manual, outputs, reports, rules
from webhook import options as common
from webhook.engine import Engine
from webhook.facts import Facts

_MORE = """
The objects of a run are facts for each other: with a Namespace its labels are known. A saved AdmissionReview is
judged as the request it is, with its operation, its old object and who sent it. Charts are rendered first, and so is
what a tool applies for you.
"""

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


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Judge manifests as the webhook would: as they would be after its patch. Says of each object whether it is "
        "allowed, what is found with file and line, what would be patched, and where its pods would land."
    )
    parser.epilog = manual.epilog(_EXAMPLES, more=_MORE, environment=manual.KUBECONFIG | manual.LOOK)
    parser.add_argument(
        "paths",
        nargs="*",
        default=["."],
        type=common.path,
        metavar="PATH",
        help="files, folders, quoted patterns such as 'apps/**/*.yaml', - for standard input; default: this folder",
    )
    common.policy(parser)
    facts = common.facts(parser)
    facts.add_argument("--live", action="store_true", help="take the facts from the cluster; `audit` judges what runs")
    common.cluster(parser)
    common.namespace(parser, "of objects that name none; default: default")
    common.report(parser, reports.FORMATS)
    parser.add_argument("--explain", action="store_true", help="add memory budgets, and patches as diffs")


def run(chosen: Namespace) -> int:
    """Judge everything, write the reports; the exit status says the worst of it."""
    wanted = common.wanted(chosen)
    common.only_live(chosen, "--kubeconfig", "--context")
    inputs.tell_of_sample(chosen.policy)
    engine = Engine(inputs.load_policy(chosen.policy), rules.walk())
    now = datetime.now(UTC)
    given = batches.read(chosen.paths, chosen.namespace)
    known, unknown = inputs.known(chosen, [engine.policy])
    facts = replace(Facts.of((*known, *given.facts)), today=now.date())
    inputs.tell_of_unknown(chosen, facts)
    if caution := guard.unguarded(engine.policy, facts):
        outputs.say([f"warning: {caution}"])
    diffs = chosen.explain or any(each.format == "markdown" for each in wanted)
    report = given.judge(engine, facts, at=now, explained=chosen.explain, diffs=diffs)
    report = replace(report, problems=(*unknown, *report.problems))
    outputs.say(reports.untold((each.format for each in wanted), report))
    outputs.write(wanted, lambda name, look: reports.render(name, report, look))
    return common.status(
        chosen.fail_on,
        denied=report.count(allowed=False) > 0,
        warned=report.warned > 0,
        unusable=bool(report.problems),
    )
