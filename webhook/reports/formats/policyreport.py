"""Writes a List of wgpolicyk8s.io/v1alpha2 PolicyReports, for tools that cannot read openreports.io yet."""

from webhook.reports import report_objects
from webhook.scan.results import Report
from webhook.text.terminal import PLAIN, Look

PURPOSE = "PolicyReport of wgpolicyk8s.io/v1alpha2"
EXEMPTED = REPAIRED = True
PROBLEMS = NOTES = False


def render(report: Report, _: Look = PLAIN) -> str:
    """Write the report as JSON."""
    return report_objects.write(report, report_objects.OLDER)
