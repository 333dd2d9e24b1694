"""`slicewarden rules`: list the rules, or show the page of one."""

from argparse import ArgumentParser, Namespace

from webhook import manual, outputs, reference, rules


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = "List the rules, or show the page of one: what is wrong, whom it hurts, and the way out."
    parser.epilog = manual.epilog(
        ("slicewarden rules", "slicewarden rules multiple-slices"), manual.PLAIN, files={}, environment={}
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--markdown", action="store_true", help="all pages, in Markdown")
    which.add_argument("rule", nargs="?", metavar="RULE", help="its id")


def run(chosen: Namespace) -> int:
    """Show the list, or the page."""
    known = rules.walk()
    pages = {rule.id: rule.page for rule in known}
    outputs.show(reference.rules(known) if chosen.markdown else reference.page(pages, chosen.rule, "rule"))
    return 0
