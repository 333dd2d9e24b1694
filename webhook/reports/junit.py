"""A JUnit report, which most build servers show: a test case for each object.

It has everything that windyroad/JUnit-Schema JUnit.xsd asks for, in its order.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple
from xml.etree import ElementTree as ET

from webhook.check import Judged, Report
from webhook.model import Action, Result, line
from webhook.terminal import PLAIN, Look


class Case(NamedTuple):
    """A test case: a `failure` or an `error` in lines, of which the first is the message; neither where it passed."""

    suite: str
    name: str
    failure: str = ""
    error: str = ""


def render(report: Report, _: Look = PLAIN) -> str:
    """Write the report; a problem is a test case in error, and warnings are the output of the suite."""
    cases = [
        *(Case(each.file or each.kind, _name(each), failure=_told(each, Action.DENY)) for each in report.judged),
        *(
            Case(each.file, f"line {each.line}" if each.line else each.file, error=each.message)
            for each in report.problems
        ),
    ]
    warnings = (f"{each.title}\n{told}" for each in report.judged if (told := _told(each, Action.WARN)))
    return write("slicewarden", cases, report.at, "\n".join(warnings))


def write(name: str, cases: Iterable[Case], at: datetime | None = None, output: str = "") -> str:
    """Write a suite of test cases as XML."""
    known = list(cases)
    suites = ET.Element("testsuites")
    suite = ET.SubElement(
        suites,
        "testsuite",
        name=name,
        timestamp=(at or datetime.fromtimestamp(0, UTC)).strftime("%Y-%m-%dT%H:%M:%S"),
        hostname="localhost",
        tests=str(len(known)),
        failures=str(sum(bool(each.failure) for each in known)),
        errors=str(sum(bool(each.error) for each in known)),
        time="0",
        package=name,
        id="0",
    )
    ET.SubElement(suite, "properties")
    for each in known:
        case = ET.SubElement(suite, "testcase", name=line(each.name), classname=line(each.suite), time="0")
        for kind, text in (("error", each.error), ("failure", each.failure)):
            if text:
                rows = [line(row) for row in text.split("\n")]
                ET.SubElement(case, kind, message=rows[0], type=kind).text = "\n".join(rows)
    ET.SubElement(suite, "system-out").text = "\n".join(line(row) for row in output.split("\n"))
    ET.SubElement(suite, "system-err")
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _name(judged: Judged) -> str:
    return f"{judged.title}, line {judged.line}" if judged.line else judged.title


def _told(judged: Judged, action: Action) -> str:
    return "\n".join(_row(judged, result, line_) for result, line_ in judged.findings if result.action is action)


def _row(judged: Judged, result: Result, line_: int) -> str:
    where = f"{judged.file}:{line_}: " if line_ else ""
    return f"{where}{result.text}"
