"""PolicyReports of wgpolicyk8s.io/v1alpha2 in a List, one for each object, for what reads no openreports.io yet."""

from webhook.reports import report_objects
from webhook.scan.results import Report
from webhook.text.terminal import PLAIN, Look


def render(report: Report, _: Look = PLAIN) -> str:
    """Write the report as JSON."""
    return report_objects.write(report, report_objects.OLDER)
