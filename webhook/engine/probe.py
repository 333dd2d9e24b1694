"""The probe: a lease that is updated for show, by which each API server proves what it calls.

The controller updates the lease as a dry run at each API server. The registration sends that request, and no other of
any lease, to the webhook. The answer's warning says by which path the API server asked, and which release answered.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from webhook.cel.write import text
from webhook.engine.paths import Path
from webhook.policy.scopes import NAME_LABEL

GROUP, RESOURCE, KIND = "coordination.k8s.io", "leases", "Lease"

LEASE = "slicewarden-probe"
"""The name of the lease, which is in the namespace of the webhook."""


def account(namespace: str) -> str:
    """Return the user name of the controller, whose dry runs the webhook is asked about."""
    return f"system:serviceaccount:{namespace}:slicewarden-controller"


def webhook(half: str, namespace: str, user: str) -> dict[str, Any]:
    """Return the webhook of a half that is called for the probe; it has no clientConfig yet.

    `user` is the name of the account that probes.
    """
    condition = f"request.dryRun && request.name == {text(LEASE)} && request.userInfo.username == {text(user)}\n"
    return {
        "name": f"probe-{half}.slicewarden.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 2,
        "rules": [{"apiGroups": [GROUP], "apiVersions": ["v1"], "resources": [RESOURCE], "operations": ["UPDATE"]}],
        "namespaceSelector": {"matchLabels": {NAME_LABEL: namespace}},
        "matchConditions": [{"name": "for-show", "expression": condition}],
    }


class Proof(NamedTuple):
    """The proof in a warning: the path by which an API server asked, and the release that answered."""

    path: Path
    release: str


def warning(path: Path, release: str) -> str:
    """Return the warning that answers a probe."""
    return f"slicewarden probe {path} release {release}"


_WARNING = re.compile(r"slicewarden probe (?P<path>/[a-z]+/[0-9a-z.-]+) release (?P<release>[^\s\"]+)")


def heard(headers: Iterable[str]) -> list[Proof]:
    """Return the answers in the `Warning` headers of an API server's response, such as `299 - "…"`."""
    found = (match for header in headers for match in _WARNING.finditer(header))
    read = ((Path.read(match["path"]), match["release"]) for match in found)
    return [Proof(path, release) for path, release in read if path is not None]
