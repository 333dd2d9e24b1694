"""The probe: a dry-run update of a lease, whose answer shows which path an API server calls.

The controller sends the update to each API server. The registration sends this update of this lease to the webhook, and
no other request about leases. A warning in the answer names the path that the API server called, and the release that
answered.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from webhook.cel.write import text
from webhook.engine.paths import Path
from webhook.policy.scopes import NAME_LABEL

GROUP, RESOURCE, KIND = "coordination.k8s.io", "leases", "Lease"

LEASE = "slicewarden-probe"
"""The name of the lease. It is in the webhook's namespace."""


def account(namespace: str) -> str:
    """Return the user name of the controller, which sends the dry runs."""
    return f"system:serviceaccount:{namespace}:slicewarden-controller"


def webhook(half: str, namespace: str, user: str) -> dict[str, Any]:
    """Return the webhook that receives the probe for `/mutate` or `/validate` (`half`), still without its clientConfig.

    `user` is the name of the account that sends the probe.
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
    """The content of a probe's warning: the path that an API server called, and the release that answered."""

    path: Path
    release: str


def warning(path: Path, release: str) -> str:
    """Return the warning that answers a probe."""
    return f"slicewarden probe {path} release {release}"


_WARNING = re.compile(r"slicewarden probe (?P<path>/[a-z]+/[0-9a-z.-]+) release (?P<release>[^\s\"]+)")


def heard(headers: Iterable[str]) -> list[Proof]:
    """Return the proofs in the `Warning` headers of an API server's response, such as `299 - "…"`."""
    found = (match for header in headers for match in _WARNING.finditer(header))
    read = ((Path.read(match["path"]), match["release"]) for match in found)
    return [Proof(path, release) for path, release in read if path is not None]
