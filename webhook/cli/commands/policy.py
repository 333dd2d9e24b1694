"""`slicewarden policy`: look after the policy itself."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click
from click.shell_completion import CompletionItem

from webhook import lints, reports
from webhook.cli import docs, inputs, options, outputs, parser
from webhook.facts.snapshot import Facts

command = parser.Group(
    "policy",
    help="Look after the policy itself. `slicewarden diff` says what a change of it would do.",
    no_args_is_help=True,
    subcommand_metavar="VERB [ARGS]...",
    page=parser.Page(
        ("slicewarden policy lint policies --facts cluster.yaml", "slicewarden policy lints empty-pool"),
    ),
)


@command.command(
    cls=parser.Command,
    page=parser.Page(
        (
            "slicewarden policy lint policies --facts cluster.yaml",
            "slicewarden policy lint HEAD:policies --fail-on warn",
            "slicewarden policy lint --soon 60 --format junit --output lint.xml",
        ),
        {**parser.JUDGED, "0": "no error was found", "1": "an error was found"},
    ),
    short_help="find what is likely wrong with it",
    help="Find what is likely wrong with a policy, by itself and against facts: pools that no node is in, grants that "
    "add nothing, exemptions that have ended, limits that the facts already break.",
)
@click.argument("policy", required=False, type=options.PATH, metavar="[PATH]", help=options.POLICY)
@options.facts()
@click.option(
    "--today",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="as 2026-12-31, by which exemptions end; default: today",
)
@click.option(
    "--soon",
    type=parser.Number(0, 3650),
    default=30,
    metavar="DAYS",
    help="name exemptions that end by then; default: 30",
)
@options.report(reports.FORMATS)
def lint(
    policy: str | None,
    facts: Sequence[str],
    today: datetime | None,
    soon: int,
    formats: Sequence[str],
    files: Sequence[str],
    fail_on: str,
) -> int:
    """Find what is likely wrong, write the reports; the exit status says the worst of it."""
    wanted = options.wanted(formats, files, reports.FORMATS)
    inputs.note_sample(policy, "PATH")
    loaded, document = inputs.load_policy_with_document(policy)
    known = Facts.of(item.value for item in inputs.load_facts(facts))
    day = (today or datetime.now(UTC)).date()
    report = lints.lint(loaded, document, known, day, timedelta(days=soon))
    if not facts:
        outputs.say(["note: lints about nodes and namespaces were not run: --facts names what is known of a cluster"])
    outputs.write(wanted, lambda name, look: reports.render(name, report, look))
    return options.status(fail_on, denied=report.count(allowed=False) > 0, warned=report.warned > 0)


def _ids(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in lints.pages() if name.startswith(incomplete)]


@command.command(
    "lints",
    cls=parser.Command,
    page=parser.Page(("slicewarden policy lints empty-pool",), parser.SHOWN, files={}, environment={}),
    short_help="list what lint finds, or show the page of one",
    help="List what `slicewarden policy lint` finds, or show the page of one: what is wrong, and the way out.",
)
@options.pages("lint", _ids)
def pages(lint: str | None, markdown: bool) -> None:
    """Show the list, or the page."""
    outputs.show(lints.markdown() if markdown else docs.page(lints.pages(), lint, "lint"))
