"""`slicewarden diff`: say what a change of policy would do."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain

from webhook import batches, change, change_report, files, inputs, living, manual, outputs, progress, rules
from webhook import options as common
from webhook.change import Change, Effect
from webhook.engine import Engine
from webhook.facts import Facts
from webhook.model import Object

FAIL_ON = ("deny", "warn", "any", "never")

_MORE = """
With --live and without PATH what lives in the cluster is judged as if it were made anew: of a workload its template,
and of pods those that no workload makes. What has ended and what the webhook is never asked about is left out.
"""


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Judge the same objects by two policies, with the same facts, and say whom the change would newly deny, free, "
        "warn, patch otherwise or steer elsewhere."
    )
    parser.epilog = manual.epilog(
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
        environment=manual.KUBECONFIG | manual.LOOK,
    )
    parser.add_argument(
        "old",
        type=common.path,
        metavar="OLD",
        help="the policy as it is: a file or folder, or REV:PATH of a Git repository",
    )
    parser.add_argument("new", type=common.path, metavar="NEW", help="the policy as it would be, likewise")
    parser.add_argument(
        "paths",
        nargs="*",
        default=[],
        type=common.path,
        metavar="PATH",
        help="objects to judge by both: files and folders, - for standard input; default: this folder, with --live the "
        "cluster",
    )
    facts = common.facts(parser)
    facts.add_argument(
        "--live", action="store_true", help="take the facts from the cluster, and where no PATH is given the objects"
    )
    common.cluster(parser)
    common.namespace(parser, "of objects that name none; of the cluster's only this one's")
    common.report(parser, change_report.FORMATS, FAIL_ON)


def run(chosen: Namespace) -> int:
    """Judge everything twice, write what differs; the exit status says the worst of it."""
    wanted = common.wanted(chosen)
    common.only_live(chosen, "--kubeconfig", "--context")
    old, new = (Engine(inputs.load_policy(path), rules.walk()) for path in (chosen.old, chosen.new))
    take = _of_cluster if chosen.live and not chosen.paths else _of_files
    found = take(chosen, old, new)
    outputs.write(wanted, lambda name, look: change_report.render(name, found, look))
    return _status(chosen.fail_on, found)


def _of_files(chosen: Namespace, old: Engine, new: Engine) -> Change:
    given = batches.read(chosen.paths or ["."], chosen.namespace)
    known, unknown = inputs.known(chosen, (old.policy, new.policy))
    facts = _facts((*known, *given.facts))
    inputs.tell_of_unknown(chosen, facts)
    found = given.each(partial(change.compare, old=old, new=new, facts=facts))
    return Change.of(old, new, found, (*unknown, *given.problems))


def _of_cluster(chosen: Namespace, old: Engine, new: Engine) -> Change:
    """Compare what lives: of a workload's pods the template speaks, for it makes those that follow."""
    from webhook import snapshot  # 30 MiB, which only a live cluster needs

    policies = old.policy, new.policy
    workloads = {**old.policy.workloads, **new.policy.workloads}
    api = snapshot.connect(chosen.kubeconfig, chosen.context)
    with progress.bar() as tell:
        objects, unknown = snapshot.facts(api, policies, chosen.namespace, tell=tell)
        facts = _facts(objects)
        reading = snapshot.Reading(api, policies, chosen.namespace, tell=tell)
        alive = (each for each in reading if not (living.ended(each) or living.made(each, workloads)))
        items = map(files.alone, chain(alive, living.among_facts(objects, chosen.namespace)))
        compared = (change.compare(item, old, new, facts, living.judge) for item in items)
        found = [each for each in compared if not each.passed_over]  # only kinds that are judged were asked for
    unread = (*unknown, *reading.problems, *living.misnamed(chosen.namespace, facts))
    return Change.of(old, new, found, unread)


def _facts(objects: Iterable[Object]) -> Facts:
    return replace(Facts.of(objects), today=datetime.now(UTC).date())


def _status(fail_on: str, found: Change) -> int:
    if fail_on == "any" and found.changed and not found.problems:
        return common.DENIED
    return common.status(
        fail_on,
        denied=bool(found.having(Effect.DENIED)),
        warned=bool(found.having(Effect.WARNED)),
        unusable=bool(found.problems),
    )
