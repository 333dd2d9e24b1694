"""Reports: one file for each format.

Each format is a function from a Report to text. Only the wanted ones are imported.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module

from webhook.scan.results import Report
from webhook.text.terminal import PLAIN, Look

FORMATS: Mapping[str, str] = {
    "table": "for people",
    "html": "a page for a browser",
    "json": "for programs",
    "sarif": "for code scanning, SARIF 2.1.0",
    "junit": "for build servers",
    "github": "annotations in GitHub Actions",
    "gitlab": "code quality of GitLab",
    "markdown": "a comment on a pull request",
    "openreports": "Report of openreports.io/v1alpha1",
    "policyreport": "PolicyReport of wgpolicyk8s.io/v1alpha2",
}
"""The name and purpose of each format; the module of that name has `render(report, look)`."""


TELL_OF_ALL = frozenset(("html", "json", "markdown", "table"))
"""Formats that show the notes: what was not judged, or otherwise than a new object of a file."""

OBJECTS_ALONE = frozenset(("openreports", "policyreport"))
"""Formats that cannot show problems: they hold judged objects alone."""


def unshown(names: Iterable[str], report: Report) -> Iterator[str]:
    """Yield a line for each part of the report that none of these formats can show."""
    names = frozenset(names)
    if OBJECTS_ALONE.issuperset(names):
        yield from map(str, report.problems)
    if TELL_OF_ALL.isdisjoint(names):
        yield from (f"note: {note}" for note in report.notes)


def render(name: str, report: Report, look: Look = PLAIN) -> str:
    """Write the report in a format."""
    text: str = import_module(f"{__name__}.{name}").render(report, look)
    return text
