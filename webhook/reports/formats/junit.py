"""Writes a JUnit report, which most build servers show, with a test case for each object.

It has all required elements of windyroad/JUnit-Schema JUnit.xsd, in order.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from xml.etree import ElementTree as ET

from webhook.model import Action, Problem, Result
from webhook.scan.results import Judged, Report
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import line

PURPOSE = "for build servers"
PROBLEMS = REPAIRED = True
NOTES = EXEMPTED = False


class JUnitCase(NamedTuple):
    """A test case with a `failure`, an `error` or neither. The first line of a failure or an error is its message."""

    suite: str
    name: str
    failure: str = ""
    error: str = ""


class JUnitSuite(NamedTuple):
    """A suite of test cases, with its output."""

    name: str
    cases: Sequence[JUnitCase]
    output: str = ""


def render(report: Report, _: Look = PLAIN) -> str:
    """Write the report. A problem is a test case with an error, and warnings are the suite's output."""
    cases = [
        *(
            JUnitCase(judged.file or judged.kind, _name(judged), failure=_texts(judged, Action.DENY))
            for judged in report.judged
        ),
        *map(unusable, report.problems),
    ]
    warnings = (f"{judged.title}\n{text}" for judged in report.judged if (text := _texts(judged, Action.WARN)))
    return write([JUnitSuite("slicewarden", cases, "\n".join([*warnings, *map(str, report.warnings)]))], report.at)


def unusable(problem: Problem) -> JUnitCase:
    """Return the test case of a problem, with an error."""
    return JUnitCase(problem.file, f"line {problem.line}" if problem.line else problem.file, error=problem.message)


def write(suites: Iterable[JUnitSuite], at: datetime | None = None) -> str:
    """Write suites of test cases as XML. `at` is the time of the run."""
    root = ET.Element("testsuites")
    for number, suite in enumerate(suites):
        _suite(root, suite, str(number), at or datetime.fromtimestamp(0, UTC))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(root: ET.Element, suite: JUnitSuite, number: str, at: datetime) -> None:
    element = ET.SubElement(
        root,
        "testsuite",
        name=line(suite.name),
        timestamp=at.strftime("%Y-%m-%dT%H:%M:%S"),
        hostname="localhost",
        tests=str(len(suite.cases)),
        failures=str(sum(bool(case.failure) for case in suite.cases)),
        errors=str(sum(bool(case.error) for case in suite.cases)),
        time="0",
        package="slicewarden",
        id=number,
    )
    ET.SubElement(element, "properties")
    for case in suite.cases:
        child = ET.SubElement(element, "testcase", name=line(case.name), classname=line(case.suite), time="0")
        for kind, text in (("error", case.error), ("failure", case.failure)):
            if text:
                rows = [line(row) for row in text.split("\n")]
                ET.SubElement(child, kind, message=rows[0], type=kind).text = "\n".join(rows)
    ET.SubElement(element, "system-out").text = "\n".join(line(row) for row in suite.output.split("\n"))
    ET.SubElement(element, "system-err")


def _name(judged: Judged) -> str:
    return f"{judged.title}, line {judged.line}" if judged.line else judged.title


def _texts(judged: Judged, action: Action) -> str:
    return "\n".join(_row(result, file, line_) for result, file, line_ in judged.located if result.action is action)


def _row(result: Result, file: str, line_: int) -> str:
    where = line(f"{file}:{line_}: ") if line_ else ""
    return f"{where}{result.text}{' (would be repaired)' if result.repaired else ''}"
