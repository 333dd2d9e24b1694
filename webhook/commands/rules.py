"""`slicewarden rules`: list the rules, or show the page of one."""

from argparse import ArgumentParser, Namespace

from webhook import manual, outputs, reference, rules
from webhook.model import Problem, Unusable


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = "List the rules, or show the page of one: what is wrong, whom it hurts, and the way out."
    parser.epilog = manual.epilog(
        ("slicewarden rules", "slicewarden rules multiple-slices"), manual.PLAIN, files={}, environment={}
    )
    parser.add_argument("--markdown", action="store_true", help="all pages, in Markdown")
    parser.add_argument("rule", nargs="?", metavar="RULE", help="its id")


def run(chosen: Namespace) -> int:
    """Show the list, or the page."""
    if chosen.markdown:
        outputs.show(reference.rules(rules.walk()))
        return 0
    known = {rule.id: rule for rule in rules.walk()}
    if chosen.rule is None:
        width = max(map(len, known))
        outputs.show("".join(f"{rule.id:<{width}}  {rule.page.partition(chr(10))[0]}\n" for rule in known.values()))
        return 0
    if chosen.rule not in known:
        raise Unusable((Problem(chosen.rule, 0, f"no such rule; known are {', '.join(known)}"),))
    outputs.show(f"{chosen.rule}\n\n{known[chosen.rule].page}\n")
    return 0
