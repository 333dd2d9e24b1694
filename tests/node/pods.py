"""Pods of the tests' own, and what a container of theirs says that it was given."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.e2e.control_plane import Cluster, eventually
from tests.node.images import TOOLS
from tests.node.nodes import GPU_NODE
from tests.support.objects import Object

SAY = "ls /dev; env"
"""What a container runs whose log tells its cards and its variables."""

HAS_SAID = {"startupProbe": {"exec": {"command": ["test", "-e", "/said"]}, "periodSeconds": 1, "failureThreshold": 60}}
"""Of a sidecar that makes this file when it has said its part: else it may be told to end before it has begun."""


def pod(
    name: str, container: Mapping[str, Any] | None = None, gpus: int = 0, namespace: str = "default", **spec: Any
) -> Object:
    """A pod on the node with cards that ends when its one container has said what it was given."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    base = {"name": "main", "image": TOOLS, "imagePullPolicy": "Never", "command": ["sh", "-c", SAY]}
    made = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"kubernetes.io/hostname": GPU_NODE},
        "tolerations": [{"key": "slicewarden.dev/pool", "operator": "Exists"}],
        "containers": [base | limits | {**(container or {})}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": made | spec}


def create(cluster: Cluster, *pods: Object) -> None:
    """Create pods, as an administrator."""
    cluster.do("create", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))


def ended(cluster: Cluster, name: str, namespace: str = "default", seconds: float = 120) -> Object:
    """Wait until a pod has ended, well or not, and return it."""
    found: list[Object] = []

    def has_ended() -> bool:
        found[:] = [cluster.get("pod", name, f"--namespace={namespace}")]
        return found[0]["status"].get("phase") in ("Succeeded", "Failed")

    assert eventually(has_ended, seconds), found[0]["status"]
    return found[0]


def said(cluster: Cluster, name: str, namespace: str = "default", container: str = "main") -> str:
    """Return what a container of a pod that ended well has said."""
    status = ended(cluster, name, namespace)["status"]
    assert status["phase"] == "Succeeded", status
    return cluster.do("logs", name, f"--namespace={namespace}", f"--container={container}")


def cards(log: str) -> set[str]:
    """The cards that a container saw."""
    return set(re.findall(r"^nvidia\d+$", log, re.MULTILINE))
