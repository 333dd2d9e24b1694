"""The lease with which one of several controllers leads. If two lead, one of their writes is refused."""

from datetime import UTC, datetime

from webhook.cluster import client

SECONDS = 15
"""Seconds after which a lease that was not renewed may be taken."""

RENEW = 5.0
"""Seconds between two renewals."""


def leads(api: client.Api, path: str, identity: str, now: datetime) -> bool:
    """Take or renew the lease at a path. Returns whether this controller has it. Raises StatusError and Unreachable.

    A lease from the future ends as well: the clock of its holder was wrong, and would keep it for as long.
    """
    lease = client.ask(api, path)
    spec = lease.get("spec") or {}
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if holder and holder != identity and renewed:
        age = (now - datetime.fromisoformat(renewed)).total_seconds()
        if abs(age) < spec.get("leaseDurationSeconds", SECONDS):
            return False
    mine = {
        "holderIdentity": identity,
        "leaseDurationSeconds": SECONDS,
        "renewTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    if holder != identity:
        mine["acquireTime"] = mine["renewTime"]
        mine["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
    body = {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}, "spec": mine}
    try:
        client.ask(api, path, method="PATCH", body=body, patch=client.MERGE)
    except client.StatusError as error:
        if error.status != client.CONFLICT:
            raise
        return False
    return True
