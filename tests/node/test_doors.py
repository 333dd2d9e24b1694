"""Doors by NVIDIA's container runtime: open for a real container where nothing of ours is, and shut where it is."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.e2e.control_plane import Cluster, User, eventually
from tests.node.images import GREEDY, LEGACY
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
    images = {"greedy-image": GREEDY, "legacy-image": LEGACY}
    create(shared, *(pod(name, {"image": image}) for name, image in images.items()))
    create(shared, *(opened(name, door) for name, door in DOORS.items()), pod("plain"), pod("one", gpus=1))
    yield shared
    shared.do("delete", "pods", "--all", "--wait")


@pytest.mark.parametrize("door", DOORS)
def test_a_door_is_open_where_nothing_shuts_it(tried: Cluster, door: str) -> None:
    seen = cards(said(tried, door))
    asked_for = DOORS[door].gpus
    assert len(seen) > asked_for, seen


@pytest.mark.parametrize("image", ["greedy-image", "legacy-image"])
def test_an_image_opens_the_cards_by_itself_where_nothing_shuts_them(tried: Cluster, image: str) -> None:
    assert cards(said(tried, image)) == BOTH


def test_a_pod_that_asks_for_nothing_gets_nothing(tried: Cluster) -> None:
    assert cards(said(tried, "plain")) == NONE


def test_a_pod_that_asks_for_one_card_gets_one(tried: Cluster) -> None:
    assert len(cards(said(tried, "one"))) == 1


# With us

TENANT = User("tenant", ("system:authenticated",))
TRUST = {"slicewarden.dev/trust": "trusted"}


@pytest.fixture(scope="module")
def team(enforced: Cluster) -> str:
    """A namespace whose pods may be trusted, and whose tenant may do what the role `edit` allows."""
    enforced.add_namespace("team", TRUST)
    enforced.do("create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant", "--namespace=team")
    enforced.do("create", "configmap", "wishes", f"--from-literal={VISIBLE}=all", "--namespace=team")
    probe = json.dumps(shared_pod("probe"))
    ask = ("create", "--dry-run=server", "--filename=-")
    assert eventually(lambda: enforced.kubectl(*ask, stdin=probe, user=TENANT).returncode == 0)
    return "team"


def shared_pod(name: str, container: Object | None = None, gpus: int = 1, **spec: Any) -> Object:
    """A pod that may be trusted with a slice, without any toleration or selector of its author's."""
    made = pod(name, container, gpus, "team")
    made["metadata"]["annotations"] = TRUST
    del made["spec"]["nodeSelector"], made["spec"]["tolerations"]
    made["spec"] |= spec
    return made


@pytest.mark.parametrize("door", DOORS)
def test_the_door_is_shut(enforced: Cluster, team: str, door: str) -> None:
    item = opened("shut", DOORS[door])
    item["metadata"] |= {"namespace": team, "annotations": TRUST | (DOORS[door].annotations or {})}
    done = enforced.kubectl("create", "--filename=-", stdin=json.dumps(item), user=TENANT)
    assert done.returncode
    assert f"{DOORS[door].rule}:" in done.stderr


def test_an_image_that_sees_cards_by_itself_sees_none(enforced: Cluster, team: str) -> None:
    """Its variable is what NVIDIA's own images have."""
    for name, image in (("greedy-image", GREEDY), ("legacy-image", LEGACY)):
        item = pod(name, {"image": image}, namespace=team)
        enforced.do("create", "--filename=-", stdin=json.dumps(item), user=TENANT)
        assert cards(said(enforced, name, team)) == NONE


def test_each_honest_pod_has_its_one_card_and_no_other(enforced: Cluster, team: str) -> None:
    for name in ("honest-1", "honest-2"):
        enforced.do("create", "--filename=-", stdin=json.dumps(shared_pod(name)), user=TENANT)
    for name in ("honest-1", "honest-2"):
        assert len(cards(said(enforced, name, team))) == 1


def test_two_slices_for_one_container_are_refused_before_the_plugin_has_to(enforced: Cluster, team: str) -> None:
    del team
    two = shared_pod("two", gpus=2, nodeSelector={"nvidia.com/gpu.sharing-strategy": "time-slicing"})
    done = enforced.kubectl("create", "--filename=-", stdin=json.dumps(two), user=TENANT)
    assert "multiple-slices:" in done.stderr
