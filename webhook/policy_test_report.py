"""What policy tests came to: a text for people, JSON for programs, JUnit for CI."""

import json
from collections.abc import Callable, Iterator, Mapping
from difflib import ndiff
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from webhook.model import Problem, several
from webhook.policy import API_VERSION
from webhook.policy_test import Failure, Outcome, Run
from webhook.terminal import PLAIN, Look


def table(run: Run, look: Look) -> str:
    """Write every case that failed, with both sides of each difference, and the count."""
    lines = [line for outcome in run.outcomes if not outcome.passed for line in _failed(outcome, look)]
    lines += [f"{look.paint('error', 'denied')}  {problem}" for problem in run.problems]
    if lines:
        lines.append("")
    files = len({each.suite.document.file for each in run.outcomes})
    lines.append(
        f"{several(len(run.outcomes), 'case')} in {several(files, 'file')}: {len(run.outcomes) - run.failed} passed, "
        f"{run.failed} failed; {several(len(run.problems), 'error')}"
    )
    return "\n".join(lines) + "\n"


def _failed(outcome: Outcome, look: Look) -> Iterator[str]:
    case = outcome.case
    yield f"{look.paint('FAIL', 'denied')}   {case.document.file}:{case.line()}  {outcome.suite.name}: {case.name}"
    for line in _details(outcome):
        style = {"- ": "removed", "+ ": "added"}.get(line.lstrip()[:2], "")
        yield f"  {look.paint(line, style) if style else line}"


def _details(outcome: Outcome) -> Iterator[str]:
    for failure in outcome.failures:
        if "\n" in failure.expected + failure.got:
            yield f"line {failure.line:<4} {failure.what}: - expected, + got"
            yield from (f"            {line}" for line in _sides(failure))
        else:
            yield f"line {failure.line:<4} {failure.what}: expected {failure.expected}, got {failure.got}"
    for found in outcome.found or ("no finding",):
        yield f"found     {found}"


def _sides(failure: Failure) -> list[str]:
    """Show the two sides of a failure: `-` what was expected, `+` what came, a space before what is in both."""
    lines = ndiff(failure.expected.splitlines(), failure.got.splitlines())
    return [line for line in lines if not line.startswith("?")]


def to_json(run: Run, _: Look) -> str:
    """Write everything as one JSON object."""
    value = {
        "apiVersion": API_VERSION,
        "kind": "PolicyTestReport",
        "results": [
            {
                "file": outcome.case.document.file,
                "line": outcome.case.line(),
                "test": outcome.suite.name,
                "name": outcome.case.name,
                "passed": outcome.passed,
                "failures": [
                    {"line": each.line, "what": each.what, "expected": each.expected, "got": each.got}
                    for each in outcome.failures
                ],
                "found": list(outcome.found),
            }
            for outcome in run.outcomes
        ],
        "errors": [{"file": each.file, "line": each.line, "message": each.message} for each in run.problems],
        "summary": {
            "cases": len(run.outcomes),
            "passed": len(run.outcomes) - run.failed,
            "failed": run.failed,
            "errors": len(run.problems),
        },
    }
    return json.dumps(value, indent=2) + "\n"


def junit(run: Run, _: Look) -> str:
    """Write JUnit XML: a suite for each PolicyTest, and what could not be used as errors of a suite of its own."""
    root = Element("testsuites", name="slicewarden test")
    by_suite: dict[int, list[Outcome]] = {}
    for outcome in run.outcomes:
        by_suite.setdefault(id(outcome.suite), []).append(outcome)
    for outcomes in by_suite.values():
        suite, failed = outcomes[0].suite, sum(not each.passed for each in outcomes)
        element = _suite(root, suite.name, suite.document.file, len(outcomes), failures=failed)
        for outcome in outcomes:
            _case(element, suite.name, outcome)
    if run.problems:
        element = _suite(root, "unusable", "", len(run.problems), errors=len(run.problems))
        for problem in run.problems:
            _error(element, problem)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(root: Element, name: str, file: str, tests: int, *, failures: int = 0, errors: int = 0) -> Element:
    counts = {"tests": str(tests), "failures": str(failures), "errors": str(errors), "skipped": "0"}
    return SubElement(root, "testsuite", {"name": _xml(name), **({"file": _xml(file)} if file else {}), **counts})


def _case(suite: Element, name: str, outcome: Outcome) -> None:
    case = outcome.case
    where = {"file": _xml(case.document.file), "line": str(case.line())}
    element = SubElement(suite, "testcase", {"classname": _xml(name), "name": _xml(case.name), **where})
    if not outcome.passed:
        first = outcome.failures[0]
        failure = SubElement(element, "failure", message=_xml(f"{first.what} is not as expected"), type="policy")
        failure.text = _xml("\n".join((f"{case.document.file}:{case.line()}", *_details(outcome))))


def _error(suite: Element, problem: Problem) -> None:
    where = {"file": _xml(problem.file), "line": str(problem.line)}
    element = SubElement(suite, "testcase", {"classname": "unusable", "name": _xml(problem.file), **where})
    SubElement(element, "error", message=_xml(problem.message), type="unusable")


def _xml(text: str) -> str:
    """Leave out what XML 1.0 cannot carry."""
    return "".join(each if each.isprintable() or each in "\t\n" else "?" for each in text)


FORMATS: Mapping[str, str] = {"table": "failures, for people", "json": "for programs", "junit": "for CI"}
"""Each format's name and what it is for."""

_RENDER: Mapping[str, Callable[[Run, Look], str]] = {"table": table, "json": to_json, "junit": junit}


def render(name: str, run: Run, look: Look = PLAIN) -> str:
    """Write the report in a format."""
    return _RENDER[name](run, look)
