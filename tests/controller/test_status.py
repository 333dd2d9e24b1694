"""The conditions of a policy, as kstatus reads them (sigs.k8s.io/cli-utils pkg/kstatus/status/generic.go)."""

from datetime import UTC, datetime

import pytest

from webhook.controller.status import READY, STALLED, Reason, Standing, status
from webhook.model import Object

POLICY: Object = {"metadata": {"name": "sample", "generation": 2}, "spec": {}}


def kstatus(item: Object) -> str:
    """Return the status that kstatus computes."""
    found = item.get("status") or {}
    conditions = {each["type"]: each["status"] for each in found.get("conditions") or ()}
    if found.get("observedGeneration", 2) != item["metadata"]["generation"]:
        return "InProgress"
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "InProgress" if conditions.get("Ready", "True") != "True" else "Current"


@pytest.mark.parametrize("reason", Reason)
def test_only_a_policy_that_is_ready_is_current(reason: Reason) -> None:
    made = status(POLICY, Standing(reason, "why", {}), datetime.now(UTC))
    wanted = "Current" if reason in READY else "Failed" if reason in STALLED else "InProgress"
    assert kstatus({**POLICY, "status": made}) == wanted
    later = {**POLICY["metadata"], "generation": 3}
    assert kstatus({**POLICY, "metadata": later, "status": made}) == "InProgress"
