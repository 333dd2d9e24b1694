"""What an API server serves, asked of itself: the tests of what it lacks are skipped, whatever its version."""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.e2e import binaries, control_plane
from tests.e2e.control_plane import Cluster
from tests.e2e.objects import pod
from webhook.fallback.needs import calling

DEVICES, RESIZE, MUTATING = "resource.k8s.io/v1", "pods/resize", "mutatingadmissionpolicies"
GENERATION, FALLBACK = "the generation of pods", "the CEL functions of the fallback"


UNSERVED = "the API server does not serve "
"""The beginning of the reason for which a test is skipped."""


def _serves(cluster: Cluster, group: str, resource: str = "") -> bool:
    found = cluster.kubectl("get", f"--raw={group}")
    names = {each["name"] for each in json.loads(found.stdout)["resources"]} if found.returncode == 0 else set()
    return resource in names if resource else bool(names)


def _counts(cluster: Cluster) -> bool:
    """Whether pods have a generation."""
    cluster.kubectl("create", "serviceaccount", "default")
    made = cluster.do(
        "create", "--dry-run=server", "--filename=-", "--output=json", stdin=json.dumps(pod("a", "default"))
    )
    return "generation" in json.loads(made)["metadata"]


def _calls(cluster: Cluster) -> bool:
    """Whether a policy that calls every newer function of the fallback is accepted."""
    asked = calling({"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "asked"}})
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    asked["spec"]["matchConstraints"] = {"resourceRules": [rule]}
    made = cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(asked))
    return made.returncode == 0 or "undeclared reference" not in made.stderr


SERVED: dict[str, Callable[[Cluster], bool]] = {
    DEVICES: lambda cluster: _serves(cluster, f"/apis/{DEVICES}"),
    RESIZE: lambda cluster: _serves(cluster, "/api/v1", RESIZE),
    MUTATING: lambda cluster: _serves(cluster, "/apis/admissionregistration.k8s.io/v1", MUTATING),
    GENERATION: _counts,
    FALLBACK: _calls,
}
"""How an API server is asked for each thing that a test may need."""


@cache
def lacking() -> frozenset[str]:
    """What the API server of $KUBEBUILDER_ASSETS lacks. The pinned release serves everything, so nobody asks it."""
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        return frozenset()
    with tempfile.TemporaryDirectory() as folder, control_plane.serving(Path(folder), binaries.find()) as cluster:
        return frozenset(name for name, serves in SERVED.items() if not serves(cluster))


def reasons(needed: Iterable[str]) -> Iterator[str]:
    """Yield a sentence on each needed thing that is lacking."""
    yield from (f"{UNSERVED}{each}" for each in needed if each in lacking())
