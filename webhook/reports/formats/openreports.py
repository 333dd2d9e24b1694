"""Writes a List of openreports.io/v1alpha1 Reports for `kubectl apply -f`, one for each object."""

from webhook.reports import report_objects
from webhook.scan.results import Report
from webhook.text.terminal import PLAIN, Look

PURPOSE = "Report of openreports.io/v1alpha1"
EXEMPTED = REPAIRED = True
PROBLEMS = NOTES = False


def render(report: Report, _: Look = PLAIN) -> str:
    """Write the report as JSON."""
    return report_objects.write(report, report_objects.OPEN)
