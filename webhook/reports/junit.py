"""A JUnit report, which most build servers show: a test case for each object.

It has everything that windyroad/JUnit-Schema JUnit.xsd asks for, in its order.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from xml.etree import ElementTree as ET

from webhook.model import Action, Problem, Result
from webhook.scan.results import Judged, Report
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import line


class Case(NamedTuple):
    """A test case: a `failure` or an `error` in lines, of which the first is the message; neither where it passed."""

    suite: str
    name: str
    failure: str = ""
    error: str = ""


class Suite(NamedTuple):
    """Test cases that belong together, with their output."""

    name: str
    cases: Sequence[Case]
    output: str = ""


def render(report: Report, _: Look = PLAIN) -> str:
    """Write the report; a problem is a test case in error, and warnings are the output of the suite."""
    cases = [
        *(
            Case(judged.file or judged.kind, _name(judged), failure=_told(judged, Action.DENY))
            for judged in report.judged
        ),
        *map(unusable, report.problems),
    ]
    warnings = (f"{judged.title}\n{text}" for judged in report.judged if (text := _told(judged, Action.WARN)))
    return write([Suite("slicewarden", cases, "\n".join(warnings))], report.at)


def unusable(problem: Problem) -> Case:
    """The test case of what could not be used, in error."""
    return Case(problem.file, f"line {problem.line}" if problem.line else problem.file, error=problem.message)


def write(suites: Iterable[Suite], at: datetime | None = None) -> str:
    """Write suites of test cases as XML; `at` is when they ran."""
    root = ET.Element("testsuites")
    for number, suite in enumerate(suites):
        _suite(root, suite, str(number), at or datetime.fromtimestamp(0, UTC))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(root: ET.Element, suite: Suite, number: str, at: datetime) -> None:
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


def _told(judged: Judged, action: Action) -> str:
    return "\n".join(_row(judged, result, line_) for result, line_ in judged.findings if result.action is action)


def _row(judged: Judged, result: Result, line_: int) -> str:
    where = f"{judged.file}:{line_}: " if line_ else ""
    return f"{where}{result.text}"
