"""`slicewarden rules`: list the rules, or show the page of one."""

import click
from click.shell_completion import CompletionItem

from webhook import rules
from webhook.cli import docs, options, outputs, parser


def _ids(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(rule.id) for rule in rules.walk() if rule.id.startswith(incomplete)]


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        ("slicewarden rules", "slicewarden rules multiple-slices"), parser.SHOWN, files={}, environment={}
    ),
    help="List the rules, or show the page of one rule: what is wrong, whom it hurts, and the way out.",
)
@options.pages("rule", _ids)
def command(rule: str | None, markdown: bool) -> None:
    """Show the list of rules, or the page of one."""
    known = rules.walk()
    pages = {rule.id: docs.whole_page(rule) for rule in known}
    outputs.show(docs.rules(known) if markdown else docs.page(pages, rule, "rule"))
