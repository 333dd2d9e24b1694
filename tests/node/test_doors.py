"""Doors by NVIDIA's container runtime: what it opens for a real container while nothing of ours is there."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.e2e.control_plane import Cluster
from tests.node.pods import cards, create, pod, said
from tests.support.objects import Object

BOTH, NONE = {"nvidia0", "nvidia1"}, set[str]()
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
ALL = {"name": VISIBLE, "value": "all"}
DEVICE_LIST = "/var/run/nvidia-container-devices/all"


class Door(NamedTuple):
    """The rule that shuts a door, and what opens it: a container, more of its pod's spec, annotations, a request."""

    rule: str
    container: Object
    spec: Object | None = None
    annotations: Object | None = None
    gpus: int = 0


def from_map(reference: Object) -> Object:
    return {"env": [{"name": VISIBLE, "valueFrom": {"configMapKeyRef": reference}}]}


def mounted(path: str, at: str) -> tuple[Object, Object]:
    return {"volumeMounts": [{"name": "v", "mountPath": at}]}, {"volumes": [{"name": "v", "hostPath": {"path": path}}]}


DOORS = {
    "variable": Door("visible-devices", {"env": [ALL]}),
    "variable-of-a-card": Door("visible-devices", {"env": [{"name": VISIBLE, "value": "1"}]}),
    "variable-beside-a-request": Door("visible-devices", {"env": [ALL]}, gpus=1),
    "variable-by-value-from": Door("visible-devices", from_map({"name": "wishes", "key": VISIBLE})),
    "variable-by-reference": Door(
        "visible-devices", {"env": [{"name": "A", "value": "all"}, {"name": VISIBLE, "value": "$(A)"}]}
    ),
    "variables-of-a-map-beside-a-request": Door(
        "unread-variables", {"envFrom": [{"configMapRef": {"name": "wishes"}}]}, gpus=1
    ),
    "device-list-by-a-mount": Door("device-mount", *mounted("/dev/null", DEVICE_LIST)),
    "annotation-of-cdi": Door("device-annotation", {}, annotations={"cdi.k8s.io/mine": "nvidia.com/gpu=all"}),
    "privileged": Door("privileged-container", {"securityContext": {"privileged": True}}),
    "path-of-a-card": Door("device-path", *mounted("/dev/nvidia1", "/dev/nvidia1")),
}


def opened(name: str, door: Door, **spec: Any) -> Object:
    made = pod(name, door.container, door.gpus, **(door.spec or {}), **spec)
    made["metadata"]["annotations"] = door.annotations or {}
    return made


@pytest.fixture(scope="module")
def tried(shared: Cluster) -> Iterator[Cluster]:
    """Each door tried by a pod, with no webhook there."""
    shared.do("create", "configmap", "wishes", f"--from-literal={VISIBLE}=all")
    create(shared, *(opened(name, door) for name, door in DOORS.items()), pod("plain"), pod("one", gpus=1))
    yield shared
    shared.do("delete", "pods", "--all", "--wait")


@pytest.mark.parametrize("door", DOORS)
def test_a_door_is_open_where_nothing_shuts_it(tried: Cluster, door: str) -> None:
    seen = cards(said(tried, door))
    asked_for = DOORS[door].gpus
    assert len(seen) > asked_for, seen


def test_a_pod_that_asks_for_nothing_gets_nothing(tried: Cluster) -> None:
    assert cards(said(tried, "plain")) == NONE


def test_a_pod_that_asks_for_one_card_gets_one(tried: Cluster) -> None:
    assert len(cards(said(tried, "one"))) == 1
