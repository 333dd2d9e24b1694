"""Runs PolicyTests with the policies, facts and objects that they name, by paths relative to their files."""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import NamedTuple

from webhook.api.fields import group_kind
from webhook.api.objects import judges
from webhook.documents.documents import Document
from webhook.documents.files import Item
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Object, Path, Problem, Unusable, dotted
from webhook.policytests import policy_tests
from webhook.policytests.policy_tests import Case, CaseResult, Suite, SuiteRun


class Loaders(NamedTuple):
    """Functions that load an engine from the path of a policy, and objects or facts from the path of a file.

    All raise Unusable.
    """

    engine: Callable[[str], Engine]
    objects: Callable[[str], list[Item]]
    facts: Callable[[str], list[Item]]


def run(
    tests: Iterable[Document],
    rules: Sequence[str],
    loaders: Loaders,
    problems: Iterable[Problem] = (),
    *,
    policy: str | None = None,
    named: str | None = None,
) -> SuiteRun:
    """Run the cases of PolicyTests under their own policy, or under `policy`. `named` selects cases by part of a name.

    `rules` are the ids of all rules. The loaders are called again for each test and case. The result includes the given
    problems, sorted by file and line.
    """
    outcomes, unusable = list[CaseResult](), [*problems]
    for document in tests:
        for result in _suite(document, rules, loaders, policy, named):
            if isinstance(result, CaseResult):
                outcomes.append(result)
            else:
                unusable += result.problems
    unusable.sort(key=lambda problem: (problem.file, problem.line))
    return SuiteRun(tuple(outcomes), tuple(unusable), datetime.now(UTC))


def _suite(
    document: Document, rules: Sequence[str], loaders: Loaders, policy: str | None, named: str | None
) -> Iterator[CaseResult | Unusable]:
    try:
        suite = policy_tests.load(document, rules)
        cases = [case for case in suite.cases if named is None or named in case.name]
        if not cases:
            return
        engine = loaders.engine(policy or _beside(suite, suite.policy, ("spec", "policy")))
        files = (_beside(suite, path, ("spec", "facts", index)) for index, path in enumerate(suite.facts))
        known = [item.value for file in files for item in loaders.facts(file)]
    except Unusable as error:
        yield error
        return
    shared = Facts.of(known)
    for case in cases:
        facts = Facts.of([*known, *case.value["facts"]]) if "facts" in case.value else shared
        try:
            objects = list(_objects(suite, case, engine, loaders))
            yield policy_tests.judge(suite, case, objects, engine, replace(facts, today=case.today))
        except Unusable as error:
            yield error


def _beside(suite: Suite, path: str, at: Path) -> str:
    """Return a path relative to a suite's file as one from here. Raises Unusable, at a place, if it does not exist."""
    whole = os.path.join(os.path.dirname(suite.document.file), path)  # noqa: PTH118, PTH120
    plain = os.path.normpath(whole)
    if os.path.realpath(plain) != os.path.realpath(whole):  # behind a symbolic link, `..` leads to another folder
        plain = whole
    if not (FilePath(plain).exists() or glob.has_magic(plain)):
        text = f"{dotted(at)}: no such file or folder: {plain}"
        raise Unusable((Problem(suite.document.file, suite.document.line(at), text),))
    return plain


def _objects(suite: Suite, case: Case, engine: Engine, loaders: Loaders) -> Iterator[Object]:
    if "files" not in case.value:
        yield from case.value["objects"] if "objects" in case.value else [case.value["object"]]
        return
    for index, path in enumerate(case.value["files"]):
        file = _beside(suite, path, (*case.path, "files", index))
        objects = [item.value for item in loaders.objects(file)]
        judged = [value for value in objects if judges(*group_kind(value), engine.policy.workloads)]
        if not judged:
            text = "it contains no object that is judged"
            raise Unusable((Problem(suite.document.file, case.line("files", index), f"{path}: {text}"),))
        yield from judged
