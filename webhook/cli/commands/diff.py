"""`slicewarden diff`: say what a change of policy would do."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain

import click

from webhook import rules
from webhook.cli import inputs, options, outputs, parser
from webhook.cli.inputs import Target
from webhook.documents import files as manifests
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.reports import diff_report
from webhook.scan import batches, diff
from webhook.scan import live as living
from webhook.scan.diff import Change, Effect
from webhook.telemetry import progress

FAIL_ON = ("deny", "warn", "any", "never")

_MORE = (
    "With --live and without PATH what lives in the cluster is judged as if it were made anew: of a workload its "
    "template, and of pods those that no workload makes. What has ended and what the webhook is never asked about is "
    "left out."
)


@click.command(
    cls=parser.Command,
    page=parser.Page(
        (
            "slicewarden diff policies/sample.yaml new.yaml deploy/ --facts cluster.yaml",
            "slicewarden diff origin/main:policies policies deploy/ --facts cluster.yaml --format markdown",
            "slicewarden diff origin/main:policies policies --live",
            "slicewarden diff origin/main:policies policies deploy/ --live",
        ),
        {
            "0": "nothing that --fail-on names",
            "1": "something newly denied; with --fail-on any, anything changed",
            "2": "input, a policy or usage that cannot be used",
            "3": "a fault of ours",
            "4": "something newly warned of, with --fail-on warn",
        },
        more=_MORE,
        files={},
        environment=parser.KUBECONFIG | parser.LOOK,
    ),
    help="Judge the same objects by two policies, with the same facts, and say whom the change would newly deny, free, "
    "warn, patch otherwise or steer elsewhere.",
)
@click.argument("old", type=options.PATH, help="the policy as it is: a file or folder, or REV:PATH of a Git repository")
@click.argument("new", type=options.PATH, help="the policy as it would be, likewise")
@click.argument(
    "paths",
    nargs=-1,
    type=options.PATH,
    metavar="[PATH]...",
    help="objects to judge by both: files and folders, - for standard input; default: this folder, with --live the "
    "cluster",
)
@options.facts(live="take the facts from the cluster, and where no PATH is given the objects")
@options.cluster
@options.namespace("of objects that name none; of the cluster's only this one's")
@options.report(diff_report.FORMATS, FAIL_ON)
def command(
    old: str,
    new: str,
    paths: Sequence[str],
    facts: Sequence[str],
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    formats: Sequence[str],
    files: Sequence[str],
    fail_on: str,
) -> int:
    """Judge everything twice, write what differs; the exit status says the worst of it."""
    wanted = options.wanted(formats, files, diff_report.FORMATS)
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    before, after = (Engine(inputs.load_policy(path), rules.walk()) for path in (old, new))
    target = Target(kubeconfig, context, namespace)
    if live and not paths:
        result = _of_cluster(target, before, after)
    else:
        result = _of_files(paths or ["."], facts, target if live else None, namespace, before, after)
    outputs.write(wanted, lambda name, look: diff_report.render(name, result, look))
    return _status(fail_on, result)


def _of_files(
    paths: Sequence[str],
    facts: Sequence[str],
    target: Target | None,
    namespace: str | None,
    old: Engine,
    new: Engine,
) -> Change:
    objects = batches.read(paths, namespace)
    known, unknown = inputs.known(facts, target, (old.policy, new.policy))
    all_facts = _facts((*known, *objects.facts))
    if not (facts or target):
        inputs.note_missing(all_facts)
    compared = objects.each(partial(diff.compare, old=old, new=new, facts=all_facts))
    return Change.of(old, new, compared, (*unknown, *objects.problems))


def _of_cluster(target: Target, old: Engine, new: Engine) -> Change:
    """Compare what lives in a cluster. A workload's template speaks for its pods: it makes those that follow."""
    from webhook.cluster import listing  # 30 MiB, which only a live cluster needs

    policies = old.policy, new.policy
    workloads = {**old.policy.workloads, **new.policy.workloads}
    api = listing.connect(target.kubeconfig, target.context)
    with progress.bar() as tell:
        objects, unknown = listing.facts(api, policies, target.namespace, tell=tell)
        facts = _facts(objects)
        reading = listing.Reading(api, policies, target.namespace, tell=tell)
        alive = (item for item in reading if not (living.ended(item) or living.made(item, workloads)))
        items = map(manifests.alone, chain(alive, living.among_facts(objects, target.namespace)))
        results = (diff.compare(item, old, new, facts, living.judge) for item in items)
        compared = [result for result in results if not result.passed_over]  # only judged kinds were asked for
    unread = (*unknown, *reading.problems, *living.misnamed(target.namespace, facts))
    return Change.of(old, new, compared, unread)


def _facts(objects: Iterable[Object]) -> Facts:
    return replace(Facts.of(objects), today=datetime.now(UTC).date())


def _status(fail_on: str, result: Change) -> int:
    if fail_on == "any" and result.changed and not result.problems:
        return options.DENIED
    return options.status(
        fail_on,
        denied=bool(result.having(Effect.DENIED)),
        warned=bool(result.having(Effect.WARNED)),
        unusable=bool(result.problems),
    )
