"""`slicewarden test`: hold policies to the tests that are kept beside them."""

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path as FilePath

import click

from webhook import files as manifests
from webhook import policy_file, policy_test, policy_test_report, rules
from webhook.cli import inputs, options, outputs, parser
from webhook.documents import Document
from webhook.engine import Engine
from webhook.facts import Facts, group_kind
from webhook.model import Object, Path, Problem, Unusable, dotted
from webhook.policy_test import Case, Outcome, Run, Suite
from webhook.targets import judges

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
@options.report(policy_test_report.FORMATS, fail_on=())
def command(
    paths: Sequence[str], policy: str | None, named: str | None, formats: Sequence[str], files: Sequence[str]
) -> int:
    """Run the cases, write what they came to; the exit status says the worst of it."""
    wanted = options.wanted(formats, files, policy_test_report.FORMATS)
    paths = paths or ["policies" if FilePath("policies").is_dir() else "."]
    documents, problems = manifests.load(paths)
    problems += policy_file.misspellings(documents)
    tests = [document for document in documents if policy_test.holds(document)]
    if not tests and not problems:
        raise Unusable((Problem(paths[0], 0, "no PolicyTest in it"),))
    outcomes = list(_outcomes(tests, policy, named, problems))
    if not outcomes and not problems:
        raise Unusable((Problem(paths[0], 0, f"no case with {named} in its name"),))
    unusable = sorted(problems, key=lambda problem: (problem.file, problem.line))
    done = Run(tuple(outcomes), tuple(unusable), datetime.now(UTC))
    outputs.write(wanted, lambda name, look: policy_test_report.render(name, done, look))
    if done.problems:
        return options.UNUSABLE
    return FAILED if done.failed else 0


def _outcomes(
    tests: list[Document], policy: str | None, named: str | None, problems: list[Problem]
) -> Iterator[Outcome]:
    """Run the cases whose name has `named` in it; what cannot be used is added to the problems."""
    ids = [rule.id for rule in rules.walk()]
    engine_of, items_of = cache(_engine), cache(inputs.load_objects)
    for document in tests:
        try:
            suite = policy_test.load(document, ids)
            cases = [case for case in suite.cases if named is None or named in case.name]
            if not cases:
                continue
            engine = engine_of(policy or _beside(suite, suite.policy, ("spec", "policy")))
            facts = (_beside(suite, path, ("spec", "facts", place)) for place, path in enumerate(suite.facts))
            known = [item.value for path in facts for item in items_of(path)]
        except Unusable as error:
            problems += error.problems
            continue
        shared = Facts.of(known)
        for case in cases:
            own = Facts.of([*known, *case.value["facts"]]) if "facts" in case.value else shared
            try:
                objects = list(_objects(suite, case, engine))
                yield policy_test.judge(suite, case, objects, engine, replace(own, today=case.today))
            except Unusable as error:
                problems += error.problems


def _beside(suite: Suite, path: str, at: Path) -> str:
    """Turn a path that a suite's file has at a place into one from here. Raises Unusable if nothing is there."""
    whole = os.path.join(os.path.dirname(suite.document.file), path)  # noqa: PTH118, PTH120
    plain = os.path.normpath(whole)
    if os.path.realpath(plain) != os.path.realpath(whole):  # `..` leads elsewhere behind a symbolic link
        plain = whole
    if not (FilePath(plain).exists() or glob.has_magic(plain)):
        text = f"{dotted(at)}: no such file or folder: {plain}"
        raise Unusable((Problem(suite.document.file, suite.document.line(at), text),))
    return plain


def _engine(path: str) -> Engine:
    return Engine(inputs.load_policy(path), rules.walk())


def _objects(suite: Suite, case: Case, engine: Engine) -> Iterator[Object]:
    if "files" not in case.value:
        yield from case.value["objects"] if "objects" in case.value else [case.value["object"]]
        return
    for place, path in enumerate(case.value["files"]):
        file = _beside(suite, path, (*case.path, "files", place))
        objects = [item.value for item in inputs.load_objects(file)]
        judged = [value for value in objects if judges(*group_kind(value), engine.policy.workloads)]
        if not judged:
            text = "no object in it that is judged"
            raise Unusable((Problem(suite.document.file, case.line("files", place), f"{path}: {text}"),))
        yield from judged
