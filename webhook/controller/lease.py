"""Takes and renews the lease with which one of several controllers leads.

If two controllers lead all the same, one of their writes is refused.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from webhook.cluster import client

SECONDS = 15
"""Seconds after which a lease that was not renewed may be taken."""

RENEW = 5.0
"""Seconds between two renewals."""


class Lease:
    """A lease as one controller sees it.

    Another controller's lease counts as ended when this controller has seen no renewal for its duration, by its own
    monotonic clock. So the clocks of two controllers need not agree (client-go tools/leaderelection does the same).
    """

    def __init__(self, api: client.Api, path: str, identity: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._path, self._identity, self._clock = api, path, identity, clock
        self._version = ""
        self._since = 0.0
        """When this controller first saw this version of another's lease."""
        self._renewed = ""
        """The version that this controller wrote last; empty if it has to read the lease first."""

    def leads(self, now: datetime) -> bool:
        """Take or renew the lease. Returns whether this controller has it. Raises StatusError and Unreachable.

        A renewal is one request. It is refused if the lease has changed since the last renewal, and then the lease is
        read.
        """
        mine: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": SECONDS,
            "renewTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        if self._renewed and self._write(self._renewed, mine):
            return True
        lease = client.ask(self._api, self._path)
        spec, version = lease.get("spec") or {}, lease["metadata"]["resourceVersion"]
        holder = spec.get("holderIdentity")
        if holder and holder != self._identity:
            if self._version != version:
                self._version, self._since = version, self._clock()
            if self._clock() - self._since < spec.get("leaseDurationSeconds", SECONDS):
                return False
        if holder != self._identity:
            mine["acquireTime"] = mine["renewTime"]
            mine["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
        return self._write(version, mine)

    def _write(self, version: str, spec: Mapping[str, Any]) -> bool:
        """Write the lease, unless it has changed since a version. Returns whether it was written."""
        self._renewed, body = "", {"metadata": {"resourceVersion": version}, "spec": spec}
        try:
            written = client.ask(self._api, self._path, method="PATCH", body=body, patch=client.MERGE)
        except client.StatusError as error:
            if error.status != client.CONFLICT:
                raise
            return False
        self._renewed = written["metadata"]["resourceVersion"]
        return True
