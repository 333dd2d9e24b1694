"""`slicewarden test`: hold policies to the tests that are kept beside them."""

from collections.abc import Sequence
from pathlib import Path

import click

from webhook import rules
from webhook.cli import inputs, options, outputs, parser
from webhook.documents import files as manifests
from webhook.engine.engine import Engine
from webhook.model import Problem, Unusable
from webhook.policy import load
from webhook.reports import suite_report
from webhook.scan import policy_tests, suites

FAILED = 1


@click.command(
    cls=parser.Command,
    page=parser.Page(
        (
            "slicewarden test",
            "slicewarden test policies --run slices",
            "slicewarden test policies --format junit --output junit.xml",
            "slicewarden test policies/tests --policy HEAD:policies",
        ),
        {**parser.SHOWN, "0": "all passed", "1": "some failed"},
        files={"./policies": "where tests are looked for when no PATH is given, else this folder"},
    ),
    help="Run the PolicyTests that are kept beside a policy: objects in, expected verdicts out. A failure shows both "
    "sides, with the line of the expectation.",
)
@click.argument(
    "paths",
    nargs=-1,
    type=options.PATH,
    metavar="[PATH]...",
    help="files and folders with PolicyTests; default: ./policies if it is there, else this folder",
)
@options.policy("test this policy, not the one that each test names")
@click.option("--run", "named", metavar="NAME", help="only cases whose name has this in it")
@options.report(suite_report.FORMATS, fail_on=())
def command(
    paths: Sequence[str], policy: str | None, named: str | None, formats: Sequence[str], files: Sequence[str]
) -> int:
    """Run the cases, write what they came to; the exit status says the worst of it."""
    wanted = options.wanted(formats, files, suite_report.FORMATS)
    paths = paths or ["policies" if Path("policies").is_dir() else "."]
    documents, problems = manifests.load(paths)
    problems += load.misspellings(documents)
    tests = [document for document in documents if policy_tests.holds(document)]
    if not tests and not problems:
        raise Unusable((Problem(paths[0], 0, "no PolicyTest in it"),))
    loaders = suites.Loaders(_engine, inputs.load_objects)
    result = suites.run(tests, [rule.id for rule in rules.walk()], loaders, problems, policy=policy, named=named)
    if not result.outcomes and not result.problems:
        raise Unusable((Problem(paths[0], 0, f"no case with {named} in its name"),))
    outputs.write(wanted, lambda name, look: suite_report.render(name, result, look))
    if result.problems:
        return options.UNUSABLE
    return FAILED if result.failed else 0


def _engine(path: str) -> Engine:
    return Engine(inputs.load_policy(path), rules.walk())
