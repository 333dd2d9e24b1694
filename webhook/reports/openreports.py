"""Reports of openreports.io/v1alpha1 in a List, one for each object, as `kubectl apply -f` takes them."""

from webhook import policy_report
from webhook.check import Report
from webhook.terminal import PLAIN, Look


def render(report: Report, _: Look = PLAIN) -> str:
    """Write the report as JSON."""
    return policy_report.write(report, policy_report.OPEN)
