"""`slicewarden diff`: say what a change of policy would do."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from datetime import UTC, datetime

from webhook import change, change_report, files, inputs, manual, outputs, rules
from webhook import options as common
from webhook.change import Change, Effect
from webhook.engine import Engine
from webhook.facts import Facts

FAIL_ON = ("deny", "warn", "any", "never")


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
            "kubectl get -A pods,deployments,jobs -o yaml | "
            "slicewarden diff origin/main:policies policies - --facts cluster.yaml",
        ),
        {
            "0": "nothing that --fail-on names",
            "1": "something newly denied; with --fail-on any, anything changed",
            "2": "input, a policy or usage that cannot be used",
            "3": "a fault of ours",
            "4": "something newly warned of, with --fail-on warn",
        },
        files={},
    )
    parser.add_argument(
        "old", metavar="OLD", help="the policy as it is: a file or folder, or REV:PATH of a Git repository"
    )
    parser.add_argument("new", metavar="NEW", help="the policy as it would be, likewise")
    parser.add_argument(
        "paths",
        nargs="*",
        default=["."],
        metavar="PATH",
        help="objects to judge by both: files and folders, - for standard input; default: this folder",
    )
    common.facts(parser)
    common.report(parser, change_report.FORMATS, FAIL_ON)


def run(chosen: Namespace) -> int:
    """Judge everything twice, write what differs; the exit status says the worst of it."""
    wanted = common.wanted(chosen)
    old, new = (Engine(inputs.load_policy(path), rules.walk()) for path in (chosen.old, chosen.new))
    documents, unreadable = files.load(chosen.paths)
    items, unusable = files.items(documents)
    known = inputs.load_facts(chosen.facts) if chosen.facts else []
    facts = replace(Facts.of(item.value for item in (*known, *items)), today=datetime.now(UTC).date())
    found = change.compare(items, old, new, facts)
    problems = sorted((*unreadable, *unusable, *found.problems), key=lambda p: (p.file, p.line))
    found = replace(found, problems=tuple(problems))
    outputs.write(wanted, lambda name, look: change_report.render(name, found, look))
    return _status(chosen.fail_on, found)


def _status(fail_on: str, found: Change) -> int:
    if fail_on == "any" and found.changed and not found.problems:
        return common.DENIED
    return common.status(
        fail_on,
        denied=bool(found.having(Effect.DENIED)),
        warned=bool(found.having(Effect.WARNED)),
        unusable=bool(found.problems),
    )
