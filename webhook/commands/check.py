"""`slicewarden check`: judge manifests as the webhook would."""

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from datetime import UTC, datetime

from webhook import check, files, guard, inputs, outputs, reports, rules
from webhook import options as common
from webhook.engine import Engine
from webhook.facts import Facts


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = common.STATUS
    parser.add_argument(
        "paths",
        nargs="*",
        default=["."],
        metavar="PATH",
        help="files and folders, - for standard input; default: this folder",
    )
    common.policy(parser)
    common.facts(parser)
    common.report(parser, reports.FORMATS)
    parser.add_argument("--explain", action="store_true", help="say of each pod its pool, its nodes and its cap")


def run(chosen: Namespace) -> int:
    """Judge everything, write the report; the exit status says the worst of it."""
    wanted = common.wanted(chosen)
    engine = Engine(inputs.load_policy(chosen.policy), rules.walk())
    documents, unreadable = files.load(chosen.paths)
    items, unusable = files.items(documents)
    known = inputs.load_facts(chosen.facts) if chosen.facts else []
    now = datetime.now(UTC)
    facts = replace(Facts.of(item.value for item in (*known, *items)), today=now.date())
    if caution := guard.unguarded(engine.policy, facts):
        print(f"warning: {caution}", file=sys.stderr)
    diffs = chosen.explain or any(each.format == "markdown" for each in wanted)
    report = check.check(items, engine, facts, explained=chosen.explain, diffs=diffs)
    problems = sorted((*unreadable, *unusable, *report.problems), key=lambda p: (p.file, p.line))
    report = replace(report, problems=tuple(problems), at=now)
    outputs.write(wanted, lambda name, look: reports.render(name, report, look))
    return common.status(
        chosen.fail_on,
        denied=report.count(allowed=False) > 0,
        warned=report.warned > 0,
        unusable=bool(report.problems),
    )
