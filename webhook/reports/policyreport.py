"""PolicyReports of wgpolicyk8s.io/v1alpha2 in a List, one for each object, for what reads no openreports.io yet."""

from webhook import policy_report
from webhook.check import Report
from webhook.terminal import PLAIN, Look


def render(report: Report, _: Look = PLAIN) -> str:
    """Write the report as JSON."""
    return policy_report.write(report, policy_report.OLDER)
