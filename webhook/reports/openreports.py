"""Reports of openreports.io/v1alpha1 in a List, one for each object, as `kubectl apply -f` takes them."""

import json

from webhook import policy_report
from webhook.check import Report
from webhook.terminal import PLAIN, Look


def render(report: Report, _: Look = PLAIN) -> str:
    """Write the report as JSON; what could not be read was not judged, and is in none of them."""
    items = [policy_report.of(each, report.policy, policy_report.OPEN, report.at) for each in report.judged]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1) + "\n"
