"""`slicewarden policy`: look after the policy itself."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import UTC, date, datetime, timedelta

from webhook import inputs, lints, manual, outputs, reference, reports
from webhook import options as common
from webhook.facts import Facts


def options(parser: ArgumentParser) -> None:
    """Add the verbs and the options of each."""
    parser.description = "Look after the policy itself. What a change of it would do is said by `slicewarden diff`."
    parser.epilog = manual.epilog(
        ("slicewarden policy lint policies --facts cluster.yaml", "slicewarden policy lints empty-pool")
    )
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    verb = verbs.add_parser(
        "lint",
        help="find what is likely wrong with it",
        description="Find what is likely wrong with a policy, by itself and against facts: pools that no node is in, "
        "grants that add nothing, exemptions that have ended, limits that the facts already break.",
        epilog=manual.epilog(
            (
                "slicewarden policy lint policies --facts cluster.yaml",
                "slicewarden policy lint HEAD:policies --fail-on warn",
                "slicewarden policy lint --soon 60 --format junit --output lint.xml",
            ),
            {**manual.EXIT, "0": "no error was found", "1": "an error was found"},
        ),
    )
    verb.add_argument("policy", nargs="?", type=common.path, metavar="PATH", help=common.POLICY)
    common.facts(verb)
    verb.add_argument(
        "--today", type=_day, metavar="YYYY-MM-DD", help="as 2026-12-31, by which exemptions end; default: today"
    )
    verb.add_argument("--soon", type=_days, default=30, metavar="DAYS", help="tell of what ends by then; default: 30")
    common.report(verb, reports.FORMATS)
    verb.set_defaults(verb=_lint)
    verb = verbs.add_parser(
        "lints",
        help="list what lint finds, or show the page of one",
        description="List what `slicewarden policy lint` finds, or show the page of one: what is wrong, and the way "
        "out.",
        epilog=manual.epilog(("slicewarden policy lints empty-pool",), manual.PLAIN, files={}, environment={}),
    )
    which = verb.add_mutually_exclusive_group()
    which.add_argument("--markdown", action="store_true", help="all pages, in Markdown")
    which.add_argument("lint", nargs="?", metavar="LINT", help="its id")
    verb.set_defaults(verb=_lints)


def run(chosen: Namespace) -> int:
    """Do what the verb says."""
    return int(chosen.verb(chosen))


def _lint(chosen: Namespace) -> int:
    wanted = common.wanted(chosen)
    inputs.tell_of_sample(chosen.policy, "PATH")
    policy, document = inputs.load_policy_with_document(chosen.policy)
    facts = Facts.of(item.value for item in inputs.load_facts(chosen.facts or ()))
    today = chosen.today or datetime.now(UTC).date()
    report = lints.lint(policy, document, facts, today, timedelta(days=chosen.soon))
    if not chosen.facts:
        outputs.say(["note: lints about nodes and namespaces were not run: --facts names what is known of a cluster"])
    outputs.write(wanted, lambda name, look: reports.render(name, report, look))
    return common.status(chosen.fail_on, denied=report.count(allowed=False) > 0, warned=report.warned > 0)


def _lints(chosen: Namespace) -> int:
    outputs.show(lints.markdown() if chosen.markdown else reference.page(lints.pages(), chosen.lint, "lint"))
    return 0


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no day such as 2026-12-31") from None


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 3650):
        raise ArgumentTypeError(f"{text!r} is no number of days from 0 to 3650")
    return int(text)
