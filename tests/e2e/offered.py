"""What an API server serves, asked of itself: the tests of what it lacks are skipped, whatever its version."""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.e2e import binaries, control_plane
from tests.e2e.control_plane import Cluster
from tests.e2e.objects import Object, pod, resource
from webhook.fallback.needs import calling

DEVICES, RESIZE, MUTATING = "resource.k8s.io/v1", "pods/resize", "mutatingadmissionpolicies"
GENERATION, FALLBACK = "the generation of pods", "the CEL functions of the fallback"
CAPACITY, CLASSES = "the capacity of claims", "device classes as resources"


UNSERVED = "the API server does not serve "
"""The beginning of the reason for which a test is skipped."""


def _serves(cluster: Cluster, group: str, resource: str = "") -> bool:
    found = cluster.kubectl("get", f"--raw={group}")
    names = {each["name"] for each in json.loads(found.stdout)["resources"]} if found.returncode == 0 else set()
    return resource in names if resource else bool(names)


def _kept(cluster: Cluster, item: Object) -> str:
    """An object as the API server would store it, in JSON; empty where it refuses the object.

    A field of a feature gate that is off is dropped without an error.
    """
    asked = ("create", "--dry-run=server", "--filename=-", "--output=json", "--validate=false")
    return cluster.kubectl(*asked, stdin=json.dumps(item)).stdout


def _counts(cluster: Cluster) -> bool:
    """Whether pods have a generation."""
    cluster.kubectl("create", "serviceaccount", "default")
    return "generation" in json.loads(_kept(cluster, pod("a", "default")))["metadata"]


def _sizes(cluster: Cluster) -> bool:
    """Whether a claim keeps how much it takes of a device (feature gate DRAConsumableCapacity)."""
    exactly = {"deviceClassName": "asked", "capacity": {"requests": {"memory": "1Gi"}}}
    devices = {"requests": [{"name": "asked", "exactly": exactly}]}
    return "capacity" in _kept(cluster, resource("ResourceClaim", "asked", {"devices": devices}, "default"))


def _names(cluster: Cluster) -> bool:
    """Whether a device class keeps the resource by which pods ask for it (feature gate DRAExtendedResource)."""
    named = resource("DeviceClass", "asked", {"extendedResourceName": "example.com/asked"})
    return "extendedResourceName" in _kept(cluster, named)


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
    CAPACITY: _sizes,
    CLASSES: _names,
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
