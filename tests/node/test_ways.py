"""Doors by NVIDIA's container runtime, in each of its modes: open for a real container without us, and shut with us."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.e2e.control_plane import Cluster, User, eventually
from tests.node.images import CHANNELS, GREEDY, LEGACY, SWITCHES, UNCAPPED
from tests.node.nvidia import MODES
from tests.node.pods import SAY, cards, create, pod, said
from tests.support.objects import Object
from webhook.catalog.device_variables import CLOSED

BOTH, NONE = {"nvidia0", "nvidia1"}, set[str]()
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
ALL = {"name": VISIBLE, "value": "all"}
DEVICE_LIST = "/var/run/nvidia-container-devices/all"


class Way(NamedTuple):
    """The rule that shuts a way, and what opens it: a container, more of its pod's spec, annotations, a request."""

    rule: str
    container: Object
    spec: Object | None = None
    annotations: Object | None = None
    gpus: int = 0


def from_map(reference: Object) -> Object:
    return {"env": [{"name": VISIBLE, "valueFrom": {"configMapKeyRef": reference}}]}


def mounted(path: str, at: str) -> tuple[Object, Object]:
    return {"volumeMounts": [{"name": "v", "mountPath": at}]}, {"volumes": [{"name": "v", "hostPath": {"path": path}}]}


WAYS = {
    "variable": Way("visible-devices", {"env": [ALL]}),
    "variable-of-a-card": Way("visible-devices", {"env": [{"name": VISIBLE, "value": "1"}]}),
    "variable-beside-a-request": Way("visible-devices", {"env": [ALL]}, gpus=1),
    "variable-by-value-from": Way("visible-devices", from_map({"name": "wishes", "key": VISIBLE})),
    "variable-by-reference": Way(
        "visible-devices", {"env": [{"name": "A", "value": "all"}, {"name": VISIBLE, "value": "$(A)"}]}
    ),
    "variables-of-a-map-beside-a-request": Way(
        "unread-variables", {"envFrom": [{"configMapRef": {"name": "wishes"}}]}, gpus=1
    ),
    "device-list-by-a-mount": Way("device-mount", *mounted("/dev/null", DEVICE_LIST)),
    "annotation-of-cdi": Way("device-annotation", {}, annotations={"cdi.k8s.io/mine": "nvidia.com/gpu=all"}),
    "privileged": Way("privileged-container", {"securityContext": {"privileged": True}}),
    "path-of-a-card": Way("device-path", *mounted("/dev/nvidia1", "/dev/nvidia1")),
}


BY_MODE = [
    (mode, way)
    for mode in MODES
    for way in WAYS
    # The runtime has no part in the last two, and reads annotations in the mode `cdi` alone (runtime_factory.go).
    if mode == "cdi" or way not in ("annotation-of-cdi", "privileged", "path-of-a-card")
]
"""Each way in the modes of the runtime that it leads through."""
IMAGES = {"greedy-image": GREEDY, "legacy-image": LEGACY}

BEYOND = {"switches": (SWITCHES, "nvidia-nvswitch0"), "channels": (CHANNELS, "channel0")}
"""Images that ask for more than cards, with what they get; `cdi` reads neither variable (internal/modifier/mode.go)."""
SAY_BEYOND = f"{SAY}; ls /dev/nvidia-caps-imex-channels; true"

in_each_mode = pytest.mark.parametrize("mode", MODES)


def opened(name: str, way: Way, mode: str, **spec: Any) -> Object:
    made = pod(name, way.container, way.gpus, **(way.spec or {}), **by_class(mode), **spec)
    made["metadata"]["annotations"] = way.annotations or {}
    return made


def beyond(name: str) -> Object:
    """A container whose image sets variables that `/mutate` writes, to values of its own."""
    return {"image": BEYOND[name][0], "command": ["sh", "-c", SAY_BEYOND]}


def by_class(mode: str) -> Object:
    """The RuntimeClass of a pod whose containers NVIDIA's runtime starts in a mode."""
    return {} if MODES[mode] == "runc" else {"runtimeClassName": MODES[mode]}


@pytest.fixture(scope="module")
def classes(shared: Cluster) -> Cluster:
    """The cluster with a RuntimeClass for each mode that is not the node's default."""
    made = [
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
        for name in MODES.values()
        if name != "runc"
    ]
    assert shared.apply(*made).returncode == 0
    return shared


@pytest.fixture(scope="module")
def tried(classes: Cluster) -> Iterator[Cluster]:
    """Each way tried by a pod in each mode, with no webhook there."""
    classes.do("create", "configmap", "wishes", f"--from-literal={VISIBLE}=all")
    create(classes, *(opened(f"{mode}-{way}", WAYS[way], mode) for mode, way in BY_MODE))
    for mode in MODES:
        chosen = by_class(mode)
        create(classes, *(pod(f"{mode}-{name}", {"image": image}, **chosen) for name, image in IMAGES.items()))
        create(classes, pod(f"{mode}-plain", **chosen), pod(f"{mode}-one", gpus=1, **chosen))
        create(classes, *(pod(f"{mode}-{name}", beyond(name), gpus=1, **chosen) for name in BEYOND))
    yield classes
    classes.do("delete", "pods", "--all", "--wait")


@pytest.mark.parametrize(("mode", "way"), BY_MODE)
def test_a_door_is_open_where_nothing_shuts_it(tried: Cluster, mode: str, way: str) -> None:
    seen = cards(said(tried, f"{mode}-{way}"))
    asked_for = WAYS[way].gpus
    assert len(seen) > asked_for, seen


@in_each_mode
@pytest.mark.parametrize("image", IMAGES)
def test_an_image_opens_the_cards_by_itself_where_nothing_shuts_them(tried: Cluster, mode: str, image: str) -> None:
    assert cards(said(tried, f"{mode}-{image}")) == BOTH


@in_each_mode
def test_a_pod_that_asks_for_nothing_gets_nothing(tried: Cluster, mode: str) -> None:
    assert cards(said(tried, f"{mode}-plain")) == NONE


@in_each_mode
def test_a_pod_that_asks_for_one_card_gets_one(tried: Cluster, mode: str) -> None:
    assert len(cards(said(tried, f"{mode}-one"))) == 1


@in_each_mode
@pytest.mark.parametrize("name", BEYOND)
def test_an_image_takes_what_lies_beyond_its_card_where_nothing_shuts_it(tried: Cluster, mode: str, name: str) -> None:
    log = said(tried, f"{mode}-{name}")
    assert (BEYOND[name][1] in log.splitlines()) == (mode != "cdi")
    assert len(cards(log)) <= 1, "the device plugin's variable counts, and not the image's, which asks for all"


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


@pytest.mark.parametrize(("mode", "way"), BY_MODE)
def test_the_door_is_shut(enforced: Cluster, team: str, mode: str, way: str) -> None:
    item = opened("shut", WAYS[way], mode)
    item["metadata"] |= {"namespace": team, "annotations": TRUST | (WAYS[way].annotations or {})}
    done = enforced.kubectl("create", "--filename=-", stdin=json.dumps(item), user=TENANT)
    assert done.returncode
    assert f"{WAYS[way].rule}:" in done.stderr


def test_an_image_that_sees_cards_by_itself_sees_none(enforced: Cluster, classes: Cluster, team: str) -> None:
    """Its variable is what NVIDIA's own images have."""
    del classes
    tried = {f"{mode}-{name}": (mode, image) for mode in MODES for name, image in IMAGES.items()}
    for name, (mode, image) in tried.items():
        item = pod(name, {"image": image}, namespace=team, **by_class(mode))
        enforced.do("create", "--filename=-", stdin=json.dumps(item), user=TENANT)
    for name in tried:
        assert cards(said(enforced, name, team)) == NONE


def test_each_variable_that_is_written_counts_and_not_the_one_of_the_image(
    enforced: Cluster, classes: Cluster, team: str
) -> None:
    """containerd puts the image's variables before the pod's, and NVIDIA's programs differ in which they take."""
    del classes
    tried = {f"{kind}-{name}-{mode}": (kind, name, mode) for kind in (0, 1) for name in BEYOND for mode in MODES}
    for pod_name, (asks, name, mode) in ((f"beyond-{key}", it) for key, it in tried.items()):
        chosen = by_class(mode)
        item = shared_pod(pod_name, beyond(name), **chosen) if asks else pod(pod_name, beyond(name), 0, team, **chosen)
        enforced.do("create", "--filename=-", stdin=json.dumps(item), user=TENANT)
    written: set[str] = set()
    for key, (asks, name, _) in tried.items():
        log = said(enforced, f"beyond-{key}", team).splitlines()
        (container,) = enforced.get("pod", f"beyond-{key}", f"--namespace={team}")["spec"]["containers"]
        ours = {each["name"]: each.get("value", "") for each in container["env"]}
        seen = dict(line.split("=", 1) for line in log if "=" in line)
        assert {**seen, **ours} == seen
        assert BEYOND[name][1] not in log
        assert len(cards("\n".join(log))) == asks
        written |= ours.keys()
    assert written <= {VISIBLE, *CLOSED, *UNCAPPED}, "the images set each variable that may be written"
    assert written >= {VISIBLE, *CLOSED}


def test_each_honest_pod_has_its_one_card_and_no_other(enforced: Cluster, classes: Cluster, team: str) -> None:
    del classes
    for mode in MODES:
        item = shared_pod(f"honest-{mode}", **by_class(mode))
        enforced.do("create", "--filename=-", stdin=json.dumps(item), user=TENANT)
    for mode in MODES:
        assert len(cards(said(enforced, f"honest-{mode}", team))) == 1


def test_two_slices_for_one_container_are_refused_before_the_plugin_has_to(enforced: Cluster, team: str) -> None:
    del team
    two = shared_pod("two", gpus=2, nodeSelector={"nvidia.com/gpu.sharing-strategy": "time-slicing"})
    done = enforced.kubectl("create", "--filename=-", stdin=json.dumps(two), user=TENANT)
    assert "multiple-slices:" in done.stderr
