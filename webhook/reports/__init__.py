"""Reports: one file for each format in `formats/`, and one for each command with a report of its own."""

from collections.abc import Iterable, Iterator

from webhook.reports import formats
from webhook.scan.results import Report
from webhook.text.terminal import PLAIN, Look


def unshown(names: Iterable[str], report: Report) -> Iterator[str]:
    """Yield a line for each part of the report that none of these formats can show."""
    wanted = [*map(formats.load, set(names))]
    if not any(each.problems for each in wanted):
        yield from map(str, report.problems)
        yield from (f"warning: {warning}" for warning in report.warnings)
    if not any(each.notes for each in wanted):
        yield from (f"note: {note}" for note in report.notes)


def render(name: str, report: Report, look: Look = PLAIN) -> str:
    """Write the report in a format."""
    return formats.load(name).render(report, look)
