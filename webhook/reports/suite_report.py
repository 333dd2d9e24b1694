"""Reports the outcomes of policy tests: a table for people, JSON for programs, JUnit for CI."""

from collections.abc import Callable, Iterator, Mapping
from difflib import ndiff

from webhook.policytests.policy_tests import CaseResult, Failure, SuiteRun
from webhook.reports import parts
from webhook.reports.formats import junit
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import several


def table(run: SuiteRun, look: Look) -> str:
    """Write the failed cases, with the expected and the actual value of each failure, and the count."""
    lines = [line for outcome in run.outcomes if not outcome.passed for line in _failed(outcome, look)]
    for problem in run.problems:
        lines += look.hang(f"{look.paint('error', 'denied')}  ", str(problem))
    if not look.quiet:
        files = len({outcome.suite.document.file for outcome in run.outcomes})
        summary = (
            f"{several(len(run.outcomes), 'case')} in {several(files, 'file')}: "
            f"{len(run.outcomes) - run.failed} passed, {run.failed} failed; {several(len(run.problems), 'error')}"
        )
        lines += [*([""] if lines else ()), *look.wrap(summary, "")]
    return "".join(f"{line}\n" for line in lines)


def _failed(outcome: CaseResult, look: Look) -> Iterator[str]:
    case = outcome.case
    where = f"{case.document.file}:{case.line()}"
    yield from look.hang(f"{look.paint('FAIL', 'denied')}   ", f"{where}  {outcome.suite.name}: {case.name}")
    for line in _details(outcome):
        if line.startswith(" "):  # an expected or an actual value, shown as a diff
            yield f"  {look.paint(line, {'- ': 'removed', '+ ': 'added'}.get(line.lstrip()[:2], ''))}"
        else:
            yield from look.hang(f"  {line[:_HEAD]}", line[_HEAD:])


def _details(outcome: CaseResult) -> Iterator[str]:
    for failure in outcome.failures:
        if "\n" in failure.expected + failure.got:
            yield f"line {failure.line:<4} {failure.what}: - expected, + got"
            yield from (f"            {line}" for line in _sides(failure))
        else:
            yield f"line {failure.line:<4} {failure.what}: expected {failure.expected}, got {failure.got}"
    for finding in outcome.found or ("no finding",):
        yield f"found     {finding}"


_HEAD = 10
"""The width of the first column of a detail."""


def _sides(failure: Failure) -> list[str]:
    """Yield a failure as a diff: `-` before an expected line, `+` before an actual one, a space before a common one."""
    lines = ndiff(failure.expected.splitlines(), failure.got.splitlines())
    return [line for line in lines if not line.startswith("?")]


def to_json(run: SuiteRun, _: Look) -> str:
    """Write everything as one JSON object."""
    value = {
        "results": [
            {
                "file": outcome.case.document.file,
                "line": outcome.case.line(),
                "test": outcome.suite.name,
                "name": outcome.case.name,
                "passed": outcome.passed,
                "failures": [
                    {"line": failure.line, "what": failure.what, "expected": failure.expected, "got": failure.got}
                    for failure in outcome.failures
                ],
                "found": list(outcome.found),
            }
            for outcome in run.outcomes
        ],
        "errors": parts.problems(run.problems),
        "summary": {
            "cases": len(run.outcomes),
            "passed": len(run.outcomes) - run.failed,
            "failed": run.failed,
            "errors": len(run.problems),
        },
    }
    return parts.document("PolicyTestReport", value)


def to_junit(run: SuiteRun, _: Look) -> str:
    """Write JUnit XML: a suite for each PolicyTest, and one for the problems."""
    by_suite: dict[int, list[CaseResult]] = {}
    for outcome in run.outcomes:
        by_suite.setdefault(id(outcome.suite), []).append(outcome)
    suites = [junit.JUnitSuite(outcomes[0].suite.name, [*map(_case, outcomes)]) for outcomes in by_suite.values()]
    if run.problems:
        suites.append(junit.JUnitSuite("unusable", [*map(junit.unusable, run.problems)]))
    return junit.write(suites, run.at)


def _case(outcome: CaseResult) -> junit.JUnitCase:
    case = outcome.case
    if outcome.passed:
        return junit.JUnitCase(case.document.file, case.name)
    head = f"{case.document.file}:{case.line()}: {outcome.failures[0].what} differs from the expectation"
    return junit.JUnitCase(case.document.file, case.name, failure="\n".join((head, *_details(outcome))))


FORMATS: Mapping[str, str] = {"table": "failures, for people", "json": "for programs", "junit": "for CI"}
"""The name and purpose of each format."""

_RENDER: Mapping[str, Callable[[SuiteRun, Look], str]] = {"table": table, "json": to_json, "junit": to_junit}


def render(name: str, run: SuiteRun, look: Look = PLAIN) -> str:
    """Write the report in a format."""
    return _RENDER[name](run, look)
