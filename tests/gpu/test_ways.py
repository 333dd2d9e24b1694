"""The ways as a whole: their tables, the guard, the system's own pods, and that nothing added opens one again."""

import copy
import os
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from tests.support import conditions, fixtures
from tests.support.fixtures import WAYS
from tests.support.objects import Object
from tests.support.policies import POLICY, policy_of
from tests.support.strategies import TRUST, containers, pods, request_for, workload
from webhook.api import jsonpatch
from webhook.api.admission import decode, wrap
from webhook.catalog import device_annotations, device_variables, gpu_requests, host_paths, names, node_labels
from webhook.catalog.host_paths import Access
from webhook.catalog.white_space import WHITE_SPACE
from webhook.cel.paths import beginnings
from webhook.cel.policies import offered
from webhook.cli.inputs import cautious
from webhook.engine.engine import Engine
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.gpu.exposure import access_of
from webhook.gpu.guard import unguarded
from webhook.gpu.review import pods_of
from webhook.model import Action, Malformed, Requester
from webhook.policy.model import Forms, Guard, Policy
from webhook.policy.resources import ResourceNames
from webhook.policy.scopes import Scope
from webhook.rules import walk


def pod(namespace: str = "visitors", annotations: Object | None = None, **spec: Any) -> Object:
    metadata = {"name": "x", "namespace": namespace, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}}


# Tables


@pytest.mark.parametrize(
    ("path", "leads"),
    [
        ("/dev/nvidia0", True),
        ("/dev", True),
        ("/", True),
        ("", True),
        ("/var", True),
        ("/var/run/", True),
        ("/run/../dev/dri/card0", True),
        ("/../../dev", True),
        ("/var/run/cdi/nvidia.yaml", True),
        ("/dev/shm", False),  # noqa: S108 - a path of nodes
        ("/dev/shm/../nvidia0", True),  # noqa: S108 - the same
        ("/dev/shm/x", True),  # noqa: S108 - the same
        ("/dev/infiniband", True),
        ("/dev/net", True),
        ("/dev/net/tun", True),
        ("/run/shm", False),
        ("/run/shm/x", True),
        ("/usr/share/zoneinfo", True),
        ("/tmp/vgpu", True),  # noqa: S108 - a path on nodes
        ("/tmp/vgpu-results", False),  # noqa: S108 - a path on nodes
        ("/devices", True),
        ("/data1", False),
        ("/home", True),
        ("/homes", True),
        ("/var/lib", True),
        ("/var/lib/app", True),
        ("/var/data/app", False),
        ("/var/log", True),
        ("/var/log/app", False),
        ("/run/nvidia-fabricmanager/socket", True),
        ("/run/nvidium", True),
        ("/etc/localtime", False),
        ("/sys/fs/cgroup", True),
        ("/opt", True),
        ("/opt/models", False),
    ],
)
def test_these_paths_of_a_node_lead_to_gpus(path: str, leads: bool) -> None:
    assert host_paths.leads_to_gpu(path) is leads


@pytest.mark.parametrize(
    ("path", "leads"),
    [
        ("/var/log/pods", False),
        ("/lib/modules/6.1", False),
        ("/lib", True),
        ("/etc/ssl", True),
        ("/etc/ssl/certs", False),
    ],
)
def test_paths_of_a_node_that_nobody_writes(path: str, leads: bool) -> None:
    assert host_paths.leads_to_gpu(path)
    assert host_paths.leads_to_gpu(path, Access.READ) is leads
    assert host_paths.leads_to_gpu(path, Access.NOTHING) is leads


@pytest.mark.parametrize(
    ("path", "harmless"),
    [
        ("/sys", Access.READ_ALL),
        ("/sys/fs/cgroup", Access.READ_ALL),
        ("/proc/sys", Access.READ_ALL),
        ("/sys/bus/pci/devices", Access.READ),
        ("/sys/class/net", Access.READ),
        ("/sys/kernel/debug", Access.READ_ALL),
        ("/dev/infiniband/uverbs0", Access.NOTHING),
        ("/dev/net/tun/x", Access.NOTHING),
        ("/var/run/shm/x", None),
        ("/dev/shm/x", None),  # noqa: S108 - a path of nodes
        ("//./pipe/docker_engine", None),
        (r"\\.\pipe\containerd-containerd", None),
        ("//localhost/c$/var/log", None),
        ("C:\\", None),
        ("/c:/ProgramData", None),
        ("/home/kubernetes/bin/nvidia", Access.NOTHING),
        ("/home/kubernetes", None),
        ("/proc", None),
        ("/proc/driver/nvidia", None),
        ("/", None),
    ],
)
def test_how_a_path_may_be_mounted(path: str, harmless: Access | None) -> None:
    for access in Access:
        assert host_paths.leads_to_gpu(path, access) is (harmless is None or access < harmless)


@pytest.mark.parametrize("path", sorted(host_paths.ABOVE | host_paths.ABOVE_KEPT))
@pytest.mark.parametrize("access", [Access.WRITE, Access.READ])
def test_a_folder_above_a_place_of_a_node_is_not_harmless_with_mounts_below(path: str, access: Access) -> None:
    """`readOnly` alone leaves mounts below a volume writable (KEP-3857)."""
    assert host_paths.leads_to_gpu(path, access)


MODES = st.fixed_dictionaries(
    {},
    optional={
        "readOnly": st.booleans(),
        "recursiveReadOnly": st.sampled_from(("Disabled", "IfPossible", "Enabled")),
        "mountPropagation": st.sampled_from(("None", "HostToContainer")),
    },
)


@given(
    st.lists(
        st.sampled_from((*host_paths.OPENED_PATHS, "/dev/net/tun", "/var/log", "/srv/models", "/dev")), max_size=3
    ),
    st.lists(st.lists(MODES, min_size=3, max_size=3), min_size=1, max_size=3),
)
def test_a_pod_gets_no_mount_that_harms(paths: list[str], mounts: list[list[Object]]) -> None:
    """The patch sets two fields of mounts, a second one is empty, and a pod that is let in has no harmful mount."""
    made = [
        {
            "name": f"c{number}",
            "volumeMounts": [{"name": f"v{i}", "mountPath": f"/host/{i}", **mount} for i, mount in enumerate(each)],
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        }
        for number, each in enumerate(mounts)
    ]
    volumes = [{"name": f"v{i}", "hostPath": {"path": path}} for i, path in enumerate(paths)]
    volumes += [{"name": f"v{i}", "emptyDir": {}} for i in range(len(paths), 3)]
    given_ = pod(volumes=volumes, containers=made)
    engine = Engine(policy_of(POLICY.read_text("utf-8")), [rule for rule in walk() if rule.id == "device-path"])
    verdict = engine.judge(decode(wrap(given_)), Facts())
    assert {each["path"].rpartition("/")[2] for each in verdict.patch} <= {"readOnly", "recursiveReadOnly"}
    patched = jsonpatch.apply(given_, verdict.patch)
    again = engine.judge(decode(wrap(patched)), Facts())
    assert (again.patch, again.allowed) == ((), verdict.allowed)
    left = [
        path
        for container in patched["spec"]["containers"]
        for path, mount in zip(paths, container["volumeMounts"], strict=False)
        if host_paths.leads_to_gpu(path, access_of(mount))
    ]
    stuck = [
        path
        for each in mounts
        for path, mount in zip(paths, each, strict=False)
        if host_paths.leads_to_gpu(path, access_of(mount)) and not _mendable(path, mount)
    ]
    assert (verdict.allowed, set(left) >= set(stuck)) == (not stuck, True)
    assert not left or stuck
    event("denied" if stuck else "patched" if verdict.patch else "allowed")


def _mendable(path: str, mount: Object) -> bool:
    logs = mount.get("readOnly") is True and mount.get("mountPropagation") != "HostToContainer"
    return host_paths.only_opened(path) or (path in host_paths.RECURSIVE_IF_POSSIBLE_PATHS and logs)


FILE_NAMES = st.one_of(
    st.sampled_from(
        ("extensions", "confexts", "portables", "machines", "kata", "aws", "google", "wrappers", "app", "x")
    ),
    st.text("abcdefghijklmnopqrstuvwxyz0123456789-_.", min_size=1, max_size=12).filter(lambda name: set(name) != {"."}),
)


@given(
    st.sampled_from(Access), st.lists(FILE_NAMES, max_size=3), st.sampled_from(("C:", r"\\.", "//./pipe", "//?", "d:"))
)
def test_no_access_to_a_path_of_windows_is_harmless(access: Access, names_: list[str], start: str) -> None:
    assert host_paths.leads_to_gpu("/".join((start, *names_, "")), access)
    assert not host_paths.unknown("/".join((start, *names_, "")))


SYSTEM = ("", "/etc", "/local", "/opt", "/run", "/usr/lib", "/usr/local", "/var", "/var/cache", "/var/lib", "/var/run")
"""Folders in which distributions and administrators put programs, settings and state; `/` is empty."""


@given(folder=st.sampled_from(SYSTEM), names_=st.lists(FILE_NAMES, min_size=1, max_size=3))
def test_nobody_writes_what_no_table_calls_data(folder: str, names_: list[str]) -> None:
    """Whatever a name may stand for on some node: what is not known to be data is not written."""
    path = "/".join((folder, *names_))
    normal = host_paths.normal(path)
    data = any(
        normal.startswith(place[:-1]) if place.endswith("*") else host_paths.within(normal, (place,))
        for place in (*host_paths.DATA_PATHS, *host_paths.HARMLESS_PATHS)
    )
    event(f"data: {data}")
    assert host_paths.leads_to_gpu(path) or data


@given(place=st.sampled_from(host_paths.DATA_PATHS), names_=st.lists(FILE_NAMES, max_size=2))
def test_data_of_the_node_may_be_written(place: str, names_: list[str]) -> None:
    path = host_paths.normal("/".join((place.rstrip("*"), *names_)))
    kept = host_paths.above((*host_paths.KEPT_PATHS, *host_paths.HOST_PATHS))
    below = host_paths.begins((*host_paths.KEPT_PATHS, *host_paths.HOST_PATHS))
    runtimes = {*path.split("/")} & {*host_paths.RUNTIMES} and not path.startswith(host_paths.LOGS)
    assert host_paths.leads_to_gpu(path) is (path in kept or f"{path}/".startswith(below) or bool(runtimes))


@given(
    place=st.sampled_from(host_paths.DATA_PATHS),
    names_=st.lists(FILE_NAMES, max_size=2),
    access=st.sampled_from(Access),
)
@pytest.mark.parametrize("name", host_paths.RUNTIMES)
def test_a_folder_of_a_runtime_on_a_larger_disk_leads_to_the_node(
    name: str, place: str, names_: list[str], access: Access
) -> None:
    """Administrators and clouds move the kubelet's folder to a disk of its own, such as /data/kubelet."""
    base = place.rstrip("*")
    for path in ("/".join((base, name, *names_)), "/".join((base, *names_, name))):
        logs = host_paths.within(host_paths.normal(path), (host_paths.LOGS,))
        assert host_paths.leads_to_gpu(path, access) or logs
    assert not host_paths.leads_to_gpu(f"/data/{name}-images") or name == ".ssh"


@given(folder=st.sampled_from(SYSTEM), name=FILE_NAMES)
def test_what_is_only_not_known_to_be_data_may_be_read(folder: str, name: str) -> None:
    path = f"{folder}/{name}"
    if host_paths.unknown(path):
        assert not host_paths.leads_to_gpu(path, Access.READ)


@pytest.mark.parametrize("path", host_paths.KEPT_PATHS)
def test_what_a_node_keeps_among_data_is_written_by_nobody(path: str) -> None:
    place = path.rstrip("*")
    for each in (place, f"{place}/x", place.rpartition("/")[0]):
        assert host_paths.leads_to_gpu(each)
    assert not host_paths.unknown(place)
    assert host_paths.leads_to_gpu(f"{place}/x", Access.READ) is (path in host_paths.HOST_PATHS)


HOST_PATHS = """\
  gpus:
    hostPaths:
      - {path: /sys}
      - {path: /proc/sys/, writable: true}
      - {path: /var/lib/models, writable: true}
      - {path: /opt/weights}
"""


@pytest.mark.parametrize(
    ("path", "mount", "found"),
    [
        ("/sys", {"readOnly": True}, False),
        ("/sys/bus", {"readOnly": True}, False),
        ("/sys", {}, True),
        ("/proc/sys", {}, False),
        ("/proc", {"readOnly": True}, True),
        ("/systems", {}, True),
        ("/systems", {"readOnly": True}, False),
        ("/var/lib/models/llama", {}, False),
        ("/var/lib/model", {}, True),
        ("/opt/weights", {}, True),
        ("/opt/weights", {"readOnly": True}, False),
        ("/dev", {"readOnly": True}, True),
    ],
)
def test_a_policy_lists_paths_that_pods_may_mount(path: str, mount: Object, found: bool) -> None:
    policy = policy_of(POLICY.read_text("utf-8") + HOST_PATHS)
    container = {
        "name": "a",
        "volumeMounts": [{"name": "v", "mountPath": "/host", **mount}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    spec = {"volumes": [{"name": "v", "hostPath": {"path": path}}], "containers": [container]}
    value = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "lab"}, "spec": spec}
    results = Engine(policy, walk()).judge(decode(wrap(value)), Facts()).results
    assert any(result.rule == "device-path" for result in results) is found


@pytest.mark.parametrize("path", host_paths.HOST_PATHS)
def test_what_is_below_and_above_a_place_of_a_node_is_the_place(path: str) -> None:
    place = path.rstrip("*")
    assert host_paths.leads_to_gpu(place) is (place not in host_paths.HARMLESS_PATHS)
    assert host_paths.leads_to_gpu(f"{place}/x")
    assert host_paths.leads_to_gpu(place.rpartition("/")[0])


ENGINES = (
    *(
        "containerd/containerd.sock",
        "containerd-stargz-grpc/containerd-stargz-grpc.sock",
        "containerd-nydus/system.sock",
    ),
    *("soci-snapshotter-grpc/soci-snapshotter-grpc.sock", "firecracker-containerd/containerd.sock", "crio/crio.sock"),
    *("docker.sock", "docker/metrics.sock", "dockershim.sock", "cri-dockerd.sock", "cri-dockerd/cri.sock"),
    *("podman/podman.sock", "buildkit/buildkitd.sock", "k3s/containerd/containerd.sock", "system-docker.sock"),
    *("balena-engine.sock", "balena/balena-engine.sock", "isulad.sock", "isula/isula_restful.sock", "pouchcri.sock"),
    *("nri/nri.sock", "salt/minion/minion_event_pub.ipc", "finch.sock", "sysbox/sysmgr.sock"),
    *("koord-runtimeproxy/runtimeproxy.sock", "cri-resmgr/cri-resmgr.sock", "teleportd/snapshotter.sock"),
    *("overlaybd-snapshotter/overlaybd.sock", "nix-snapshotter/nix-snapshotter.sock", "nydus/api.sock"),
    *("vmm-sandboxer.sock", "quark-sandboxer.sock", "wasm-sandboxer.sock", "runc-sandboxer.sock", "kuasar-vmm/x.sock"),
)
"""The sockets, below /run, of programs that start containers or mount folders as root for whoever asks."""

SOCKETS_OF_USERS = (
    *("spire/sockets/agent.sock", "log/journal", "xtables.lock", "contained", "calico/cni.sock", "mounts"),
    *("criteria", "dragonfly/dfdaemon.sock", "koordinator", "nix", "sandboxer", "teleport/agent.sock"),
)
"""Places below /run that a pod may read: a workload's identity, logs, and near misses of the names above."""


@given(
    st.sampled_from(ENGINES),
    st.sampled_from(("/run/", "/var/run/", "//var//run/./", "/run/../run/")),
    st.sampled_from(Access),
    st.integers(0, 2),
)
def test_no_access_to_a_socket_that_starts_containers_is_harmless(
    socket: str, run: str, access: Access, up: int
) -> None:
    """A read-only mount takes connections too. Neither does it help to mount a folder above the socket."""
    path = f"{run}{socket}"
    for _ in range(up):
        path = path.rpartition("/")[0]
    event(f"{access.name} of {path}")
    assert host_paths.leads_to_gpu(path, access)


ROOTS = (
    *("/.snapshots/1/snapshot", "/ostree/deploy/x/deploy/y.0", "/sysroot", "/media/root-ro", "/mnt/stateful_partition"),
    *("/mnt/state/root-overlay", "/mnt/sysroot/active", "/writable/system-data", "/run/mnt/data/system-data", "/local"),
)
"""Where systems mount their own root, a copy of it or the part that they may write, a second time."""


@given(
    st.sampled_from(ROOTS),
    st.sampled_from(("", "/etc", "/etc/kubernetes/pki", "/var/lib/kubelet/pki/kubelet-client-current.pem")),
    st.sampled_from(("", "/var", "/.")),
    st.sampled_from(Access),
)
def test_a_second_place_of_the_nodes_root_is_the_node(root: str, below: str, before: str, access: Access) -> None:
    """Whoever reads a key of the kubelet acts as the node. Under /var, LINKED names lead to the same place."""
    linked = root.split("/")[1] in host_paths.LINKED
    path = f"{before if linked else ''}{root}{below if root != '/local' else '/var' + below}"
    assert host_paths.leads_to_gpu(path, access)


@pytest.mark.parametrize("path", ["/mnt/data", "/mnt/disks/ssd0", "/mnt/states", "/media/movies", "/data/boot"])
def test_data_next_to_it_may_be_written(path: str) -> None:
    assert not host_paths.leads_to_gpu(path, Access.WRITE)


@given(st.sampled_from(SOCKETS_OF_USERS), st.sampled_from(("/run/", "/var/run/")))
def test_other_places_below_run_may_be_read(place: str, run: str) -> None:
    assert not host_paths.leads_to_gpu(f"{run}{place}", Access.READ)


PIECES = st.sampled_from(
    (
        "/",
        "//",
        ".",
        "..",
        "/etc",
        "etc",
        "/ld.so.preload",
        "ld.so.conf.d",
        "/mps",
        "/tmp",  # noqa: S108 - a path in containers
        "/vgpulock",
        ".vmem_node",
        ".sm_node",
        "/overrideEnv",
        "/usr/local",
        "/vgpu",
        "/vgpu-manager",
        "/var",
        "/run",
        "\n",
        "a",
        "/nvidia-container-devices",
    )
)
PLACES = st.lists(st.lists(PIECES, max_size=6).map("".join), max_size=4)


@given(mounts=PLACES, devices=PLACES, message=st.none() | PLACES.map("".join))
def test_no_place_among_others_is_lost(
    sample_policy: Policy, sample_facts: Facts, mounts: list[str], devices: list[str], message: str | None
) -> None:
    container = {
        "name": "c",
        "volumeMounts": [{"name": "v", "mountPath": each} for each in mounts],
        "volumeDevices": [{"name": "v", "devicePath": each} for each in devices],
        "terminationMessagePath": message,
    }
    asked = pod(containers=[container])
    (review,) = pods_of(request_for(asked), asked, sample_policy, sample_facts)
    found = {each.name for each in (*review.exposure.device_mounts, *review.exposure.limit_mounts)}
    for each in (*mounts, *devices, *([] if message is None else [message])):
        place = host_paths.normal(each)
        limit = place == "/etc" or host_paths.within(place, (*host_paths.LIMIT_MOUNTS, *host_paths.PLUGIN_MOUNTS))
        asks = each in (*mounts, *devices) and host_paths.asks_for_device(place)
        assert (each in found) is (limit or asks)


@given(
    place=st.sampled_from((*host_paths.LIMIT_MOUNTS, *host_paths.PLUGIN_MOUNTS)),
    below=st.sampled_from(("", "/", "/a", "/./a/../b")),
)
def test_each_place_of_a_limit_is_found_at_and_below_it(
    sample_policy: Policy, sample_facts: Facts, place: str, below: str
) -> None:
    """The folder above it is found only where that is a place too."""
    above = host_paths.normal(f"{place}/..")
    mounts = [{"name": "v", "mountPath": each} for each in (place + below, above or "/")]
    asked = pod(containers=[{"name": "c", "volumeMounts": mounts}])
    (review,) = pods_of(request_for(asked), asked, sample_policy, sample_facts)
    expected = [place + below, *([above] if above == "/etc" else [])]
    assert [each.name for each in review.exposure.limit_mounts] == expected


STARRED = [place for place in (*host_paths.HOST_PATHS, *host_paths.DATA_PATHS, "/run/a.b*") if place.endswith("*")]


@given(
    places=st.lists(st.sampled_from(STARRED), min_size=1),
    path=st.sampled_from((*STARRED, "/run/aXb*", "/x/run/nvidia*")),
    cut=st.integers(0, 6),
)
def test_a_pattern_of_places_matches_what_begins_like_one(places: list[str], path: str, cut: int) -> None:
    path = path[: len(path) - cut]
    assert bool(re.match(beginnings((*places, "/etc")), path)) is path.startswith(tuple(each[:-1] for each in places))


STEPS = st.lists(st.sampled_from(("a", "b", ".", "..", "")), min_size=1, max_size=4).map("/".join)


@given(
    place=STEPS.map("/{}".format), message=st.none() | STEPS.map("/{}".format), path=st.sampled_from(("/etc", "/data"))
)
def test_no_read_only_mount_of_the_node_has_the_message_of_its_container(
    sample_policy: Policy, sample_facts: Facts, place: str, message: str | None, path: str
) -> None:
    """The oracle is pathlib's; a message that is not named is in /dev/termination-log."""
    mount = {"name": "v", "mountPath": place, "readOnly": True}
    container = {"name": "c", "volumeMounts": [mount], "terminationMessagePath": message}
    asked = pod(containers=[container], volumes=[{"name": "v", "hostPath": {"path": path}}])
    (review,) = pods_of(request_for(asked), asked, sample_policy, sample_facts)
    plain, mounted = (
        Path(f"/{os.path.normpath(each).lstrip('/')}") for each in (message or "/dev/termination-log", place)
    )
    inside = plain.is_relative_to(mounted)  # POSIX keeps two slashes at the beginning, and Linux one
    assert [each.value for each in review.exposure.message_paths] == ([place] if inside and path == "/etc" else [])


@given(st.lists(st.sampled_from(("/", "//", ".", "?", "$", "\\", "\n", "C", ":", "a", "é")), max_size=8).map("".join))
def test_windows_paths_are_those_of_the_pattern(path: str) -> None:
    """The fallback has the pattern. A search of it in long paths took seconds."""
    assert host_paths.of_windows(path) is (re.search(host_paths.WINDOWS, path) is not None)


def test_a_longer_path_than_a_node_has_is_refused(sample_policy: Policy, sample_facts: Facts) -> None:
    """Each template of a Workflow reads the same volumes: a path of 52,000 letters and 200 templates took 2.2 s."""
    for length, refused in ((host_paths.LONGEST, False), (host_paths.LONGEST + 1, True)):
        asked = pod(volumes=[{"name": "v", "hostPath": {"path": "/" + "a" * (length - 1)}}])
        (review,) = pods_of(request_for(asked), asked, sample_policy, sample_facts)
        with pytest.raises(Malformed, match="at most 4096 characters") if refused else nullcontext():
            assert review.exposure.privileges == ()


def test_a_long_message_path_is_not_copied_for_each_mount(sample_policy: Policy, sample_facts: Facts) -> None:
    """A path of 1.5 MB and 30,000 mounts took 1.1 s: each comparison made a text as long as the path."""

    class Counted(str):
        copies = 0

        def __format__(self, specification: str) -> str:
            Counted.copies += 1
            return super().__format__(specification)

    mounts = [{"name": "v", "mountPath": f"/b{number}", "readOnly": True} for number in range(500)]
    container = {"name": "c", "volumeMounts": mounts, "terminationMessagePath": "/a"}
    asked = pod(containers=[container], volumes=[{"name": "v", "hostPath": {"path": "/etc"}}])
    with pytest.MonkeyPatch.context() as patch:
        normal = host_paths.normal
        patch.setattr(host_paths, "normal", lambda path: Counted(normal(path)) if path == "/a" else normal(path))
        (review,) = pods_of(request_for(asked), asked, sample_policy, sample_facts)
        assert review.exposure.message_paths == ()
    assert 0 < Counted.copies < 10


def test_a_mount_is_compared_by_how_it_begins() -> None:
    for folder in host_paths.MOUNT_PATHS:
        assert all(
            host_paths.asks_for_device(host_paths.normal(f"{folder}{rest}"))
            for rest in ("", "/", "/all", "all", "-x/0")
        )
    assert not host_paths.asks_for_device("/data/run/nvidia-container-devices/all")


def test_annotations_name_as_many_devices_as_any_container_needs() -> None:
    devices = ["/dev/fuse"] * device_annotations.MAX_DEVICES
    assert device_annotations.harmless_devices("devices.crio.io", ",".join(devices))
    assert not device_annotations.harmless_devices("devices.crio.io", ",".join([*devices, "/dev/fuse"]))


def test_white_space_around_a_device_is_gos() -> None:
    """The fallback trims a device as Go does. Python also trims the information separators."""
    spaces = {chr(number) for number in range(sys.maxunicode + 1) if chr(number).isspace()}
    assert set(WHITE_SPACE) == spaces - set("\x1c\x1d\x1e\x1f")
    for each in map(chr, range(0x3100)):
        harmless = each in WHITE_SPACE or each in ":/"
        assert device_annotations.harmless_devices("devices.crio.io", f"/dev/fuse{each}") is harmless, ascii(each)


@given(steps=st.lists(st.sampled_from(("..", ".", "", "dev", "nvidia0", "var", "run", "srv")), max_size=6))
def test_a_path_is_written_one_way(steps: list[str]) -> None:
    normal = host_paths.normal("/" + "/".join(steps))
    assert host_paths.normal(normal) == normal
    assert not {"..", "."} & set(normal.split("/"))
    assert not normal.endswith("/")


@pytest.mark.parametrize("path", [each for each in host_paths.HARMLESS_PATHS if each.startswith(("/sys/", "/proc/"))])
def test_no_link_of_the_kernel_leads_out_of_a_harmless_path(path: str) -> None:
    """This machine's kernel shows it. A runtime follows links of a hostPath, and the pod may name any of them."""
    assert Path(path).resolve() == Path(path)
    assert not [each for each in Path(path).rglob("*") if each.is_symlink()]


def test_harmless_paths_are_exceptions_of_something() -> None:
    exceptions = (*host_paths.HARMLESS_PATHS, *host_paths.READ_ONLY_PATHS)
    places = (*host_paths.HOST_PATHS, "/var/log")  # which is above two of them
    assert all(host_paths.within(path, places) for path in exceptions)
    assert all(host_paths.normal(path) == path for path in (*host_paths.HOST_PATHS, *exceptions))
    assert not set(host_paths.HARMLESS_PATHS) & set(host_paths.READ_ONLY_PATHS)


@pytest.mark.parametrize("prefix", ["", "N", "NVIDIA_", "NVIDIA_VISIBLE_DEVICES", "LD_", "CUDA_MPS", "NVSHARE_X", "C"])
def test_these_prefixes_of_env_from_may_open_a_door(prefix: str) -> None:
    assert device_variables.may_open(prefix)


@pytest.mark.parametrize("prefix", ["APP_", "NVIDIA_VISIBLE_DEVICES_", "nvidia_", "X"])
def test_these_prefixes_of_env_from_open_no_door(prefix: str) -> None:
    assert not device_variables.may_open(prefix)


def test_no_table_of_doors_has_a_name_twice() -> None:
    for table in (
        gpu_requests.RESOURCES,
        gpu_requests.ANNOTATIONS.patterns,
        device_variables.LIMIT_VARIABLES.patterns,
        device_annotations.DEVICE_ANNOTATIONS,
        device_annotations.PLACEMENT_ANNOTATIONS.patterns,
        device_annotations.PLACEMENT_LABELS.patterns,
        host_paths.HOST_PATHS,
        host_paths.DATA_PATHS,
        host_paths.KEPT_PATHS,
    ):
        assert len(set(table)) == len(table)


INTELS = (
    *gpu_requests.ALL_CARDS,
    "gpu.intel.com/i915",
    "gpu.intel.com/i915.shared",
    "gpu.intel.com/xe",
    "nvidia.com/gpu",
)


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize(
    "patterns",
    [
        ("gpu.intel.com/*",),
        ("gpu.intel.com/i915*", "nvidia.com/gpu"),
        ("gpu.intel.com/*", "gpu.intel.com/xe_monitoring"),
        ("gpu.intel.com/i915",),
    ],
)
def test_no_prefix_offers_all_cards_of_a_node(patterns: tuple[str, ...], shares: bool) -> None:
    """A pool that names such a resource in full offers it; the API server's conditions agree with the engine."""
    names_ = ResourceNames(patterns, shares=shares)
    for name in INTELS:
        expected = name in patterns or any(name.startswith(p[:-1]) for p in patterns if p.endswith("*"))
        expected &= name in patterns or (name not in gpu_requests.ALL_CARDS and (shares or ".shared" not in name))
        assert (name in names_) is expected, name
        expression = conditions.ENVIRONMENT.compile(offered("object", names_))
        assert expression.eval(data={"object": name, "oldObject": None, "request": {}}).value() is expected, name


def test_all_cards_of_a_node_are_gpus_whatever_pools_offer(sample_policy: Policy, sample_facts: Facts) -> None:
    exclusive = next(pool for pool in sample_policy.pools if not pool.shared)
    intel = replace(exclusive, resources=ResourceNames(("gpu.intel.com/*",), shares=False))
    engine = Engine(replace(sample_policy, pools=(intel,)), walk())
    for name in INTELS[:-2]:
        asked = pod(containers=[{"name": "c", "resources": {"limits": {name: 1}}}])
        denied = engine.judge(request_for(asked), sample_facts).having(Action.DENY)
        refused = any(f"no pool offers {name}" in result.finding.message for result in denied)
        assert refused is (name != "gpu.intel.com/i915"), name


# The guard


@pytest.mark.parametrize(
    ("guard", "spec", "void"),
    [
        (Guard("slicewarden.dev/pool"), {}, False),
        (Guard("slicewarden.dev/pool"), {"tolerations": [{"key": "slicewarden.dev/pool"}]}, True),
        (Guard("slicewarden.dev/pool"), {"tolerations": [{"key": "slicewarden.dev/pool", "operator": "Lt"}]}, True),
        (Guard("slicewarden.dev/pool"), {"tolerations": [{"operator": "Exists"}]}, True),
        (Guard("slicewarden.dev/pool"), {"tolerations": [{"key": "spot", "operator": "Exists"}]}, False),
        (Guard("slicewarden.dev/pool"), {"runtimeClassName": "nvidia"}, True),
        (Guard("slicewarden.dev/pool"), {"runtimeClassName": "gvisor"}, False),
        (Guard("slicewarden.dev/pool"), {"nodeName": "t4-shared"}, True),
        (Guard("gpus"), {"tolerations": [{"key": "slicewarden.dev/pool"}]}, False),
        (Guard(), {}, True),
        (None, {}, True),
    ],
)
def test_guard(sample_policy: Policy, sample_facts: Facts, guard: Guard | None, spec: Object, void: bool) -> None:
    engine = Engine(replace(sample_policy, guard=guard), walk())
    patched = engine.mutate(request_for(pod(**spec)), sample_facts).patch
    added = [op for op in patched if op["value"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]]
    assert bool(added) is void


@pytest.mark.parametrize(
    ("toleration", "pools", "node", "exposed"),
    [
        ({"operator": "Exists", "effect": "NoExecute"}, "NoSchedule", "NoSchedule", False),
        ({"operator": "Exists", "effect": [{}]}, "NoSchedule", "NoSchedule", True),
        ({"operator": "Exists", "effect": "NoSchedule"}, "NoSchedule", "NoSchedule", True),
        ({"key": "gpus", "effect": "NoExecute"}, "NoSchedule", "NoSchedule", False),
        ({"key": "gpus", "effect": "NoExecute"}, "NoExecute", "NoExecute", True),
        ({"key": "gpus", "effect": "NoExecute"}, "NoSchedule", "NoExecute", True),
        ({"key": "gpus", "effect": "NoExecute"}, None, "NoSchedule", True),
        ({"key": "gpus", "effect": "PreferNoSchedule"}, "NoSchedule", "NoSchedule", False),
        ({"key": "gpus", "effect": ""}, "NoSchedule", "NoSchedule", True),
    ],
)
def test_a_toleration_opens_the_guard_by_its_effect(
    sample_policy: Policy, toleration: Object, pools: str | None, node: str, exposed: bool
) -> None:
    """A pool that tolerates any effect tells of none, and a node may have another than the pools tolerate."""
    told = {"key": "gpus", "operator": "Exists"} | ({"effect": pools} if pools else {})
    policy = replace(
        sample_policy,
        guard=Guard("gpus"),
        pools=tuple(replace(each, tolerations=(told,)) for each in sample_policy.pools),
    )
    facts = Facts(nodes=(Node("n", {}, {}, {"gpus": frozenset({node})}),))
    asked = pod(tolerations=[toleration], containers=[{"name": "c", "securityContext": {"privileged": True}}])
    assert Engine(policy, walk()).judge(request_for(asked), facts).allowed is not exposed


PRIVILEGED = {"privileged": True}


@pytest.mark.parametrize("part", ["limits", "requests"])
@pytest.mark.parametrize("where", ["initContainers", "containers"])
@pytest.mark.parametrize("kind", [None, "Deployment"])
def test_a_request_for_none_is_tolerated_as_the_api_server_does(
    sample_policy: Policy, sample_facts: Facts, part: str, where: str, kind: str | None
) -> None:
    """A resource by the name of the guard's taint brings its toleration (ExtendedResourceToleration), 0 of it too."""
    taint = "nvidia.com/gpu"
    asking = {"name": "a", "image": "nvidia/cuda", "resources": {part: {taint: 0}}, "securityContext": PRIVILEGED}
    spec: Object = {"containers": [{"name": "c"}], where: [asking]}
    asked = pod(**spec)
    item = workload(kind, asked) if kind else asked
    for guarded_by, denied in ((taint, {"privileged-container"}), ("gpus", set())):
        pools = tuple(
            replace(each, tolerations=({"key": guarded_by, "operator": "Exists", "effect": "NoSchedule"},))
            for each in sample_policy.pools
        )
        judging = Engine(replace(sample_policy, guard=Guard(guarded_by), pools=pools), walk())
        verdict = judging.judge(request_for(item), sample_facts)
        assert {result.rule for result in verdict.having(Action.DENY)} - {"multiple-slices"} == denied
    plain = pod(containers=[{"name": "c", "securityContext": PRIVILEGED}])
    plain = workload(kind, plain) if kind else plain
    assert Engine(replace(sample_policy, guard=Guard(taint)), walk()).judge(request_for(plain), sample_facts).allowed


DEBUGGER = {
    "containers": [
        {"name": "debugger", "image": "busybox", "volumeMounts": [{"name": "host-root", "mountPath": "/host"}]},
    ],
    "hostIPC": True,
    "hostNetwork": True,
    "hostPID": True,
    "tolerations": [{"operator": "Exists"}],
    "volumes": [{"name": "host-root", "hostPath": {"path": "/"}}],
}
"""What `kubectl debug node/NAME` makes (kubernetes staging/src/k8s.io/kubectl/pkg/cmd/debug/debug.go)."""
HELPER = {
    "containers": [{"name": "helper", "image": "busybox", "securityContext": PRIVILEGED}],
    "tolerations": [{"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"}],
    "volumes": [{"name": "data", "hostPath": {"path": "/opt/local-path-provisioner"}}],
}
"""What local-path-provisioner makes for a volume (rancher/local-path-provisioner provisioner.go)."""


@pytest.mark.parametrize("guard", [Guard("slicewarden.dev/pool"), Guard(), None])
@pytest.mark.parametrize("spec", [DEBUGGER, HELPER], ids=["debugger", "helper"])
def test_on_a_node_without_gpus_a_node_may_be_named(
    sample_policy: Policy, sample_facts: Facts, guard: Guard | None, spec: Object
) -> None:
    """A node that is known to have no GPUs may be named; on any other no caller is excused, administrators included."""
    plain = Node("cpu-1", {"kubernetes.io/hostname": "cpu-1"})
    counted = Node("counted", {}, {"nvidia.com/gpu": 1})
    tainted = Node("tainted", {}, {}, {"slicewarden.dev/pool": frozenset({"NoSchedule"})})
    other = Node("other", {"karpenter.k8s.aws/instance-gpu-manufacturer": "amd"})
    facts = replace(sample_facts, nodes=(*sample_facts.nodes, plain, counted, tainted, other))
    judging = Engine(replace(sample_policy, guard=guard), walk())
    for node, allowed in {
        "cpu-1": True,
        "other": True,
        "cpu-2": False,
        "t4-shared": False,
        "counted": False,
        "tainted": guard is None or guard.taint is None,
    }.items():
        request = replace(
            request_for(pod(nodeName=node, **spec)),
            requester=Requester("admin", frozenset({"system:masters", "system:authenticated"})),
        )
        assert judging.judge(request, facts).allowed is allowed, node
        assert judging.judge(request_for(workload("Deployment", pod(nodeName=node, **spec))), facts).allowed is allowed


JOINED = (
    *(label.replace("*", "a") for label in node_labels.GPU_NODE_LABELS),
    *node_labels.MANUFACTURERS,
)


@pytest.mark.parametrize("label", JOINED)
def test_a_node_that_has_just_joined_counts_as_one_with_gpus(
    sample_policy: Policy, sample_facts: Facts, label: str
) -> None:
    """It has the label of its cloud or of an operator, but no taint, and it offers nothing yet."""
    joined = Node("joined", {label: "nvidia"})
    facts = replace(sample_facts, nodes=(*sample_facts.nodes, joined))
    judging = Engine(replace(sample_policy, guard=Guard("slicewarden.dev/pool")), walk())
    helper: Object = {**HELPER}
    assert not judging.judge(request_for(pod(nodeName="joined", **helper)), facts).allowed


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.present": "false"},
        {"nvidia.com/gpu.count": "0"},
        {"nvidia.com/ofed-driver-upgrade-state": "upgrade-done"},  # a node with NVIDIA's network cards
    ],
)
def test_a_node_whose_labels_say_that_it_has_no_gpu_counts_as_one_without(
    sample_policy: Policy, sample_facts: Facts, labels: dict[str, str]
) -> None:
    facts = replace(sample_facts, nodes=(*sample_facts.nodes, Node("plain", labels)))
    judging = Engine(replace(sample_policy, guard=Guard("slicewarden.dev/pool")), walk())
    helper: Object = {**HELPER}
    assert judging.judge(request_for(pod(nodeName="plain", **helper)), facts).allowed


def test_under_the_guard_of_every_pod_each_container_gets_void(sample_policy: Policy, sample_facts: Facts) -> None:
    engine = Engine(replace(sample_policy, guard=Guard()), walk())
    many = pod(initContainers=[{"name": "a"}, {"name": "b", "restartPolicy": "Always"}])
    assert len(engine.mutate(request_for(many), sample_facts).patch) == 3
    assert engine.judge(request_for(many), sample_facts).allowed


@pytest.mark.parametrize(("handed_out", "written"), [(False, {"", "NVIDIA_IMEX_CHANNELS"}), (True, {""})])
def test_channels_that_the_device_plugin_hands_out_are_left_to_it(
    sample_policy: Policy, sample_facts: Facts, handed_out: bool, written: set[str]
) -> None:
    policy = replace(sample_policy, forms=replace(sample_policy.forms, imex_channels=handed_out))
    asked = pod(containers=[{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}])
    engine = Engine(policy, [rule for rule in walk() if rule.id == "unguarded-container"])
    (operation,) = engine.mutate(request_for(asked), sample_facts).patch
    assert {each["name"].replace("NVIDIA_NVSWITCH", "") for each in operation["value"]} == written
    assert engine.judge(request_for(asked), sample_facts).allowed


def test_the_image_of_a_container_that_sees_none_takes_no_other_device(
    sample_policy: Policy, sample_facts: Facts
) -> None:
    """For NVIDIA's toolkit `none` is a visible device, next to which it adds whatever a variable enables."""
    env = [{"name": device_variables.VISIBLE, "value": device_variables.NONE}]
    tolerations = [{"key": "slicewarden.dev/pool", "operator": "Exists"}]
    made = request_for(pod(containers=[{"name": "c", "env": env}], tolerations=tolerations))
    verdict = Engine(sample_policy, walk()).judge(made, sample_facts)
    assert verdict.allowed
    written = {operation["value"]["name"]: operation["value"]["value"] for operation in verdict.patch}
    enabled = {name for name, each in device_variables.DEVICE_VARIABLES.items() if "disabled" in (each.harmless or ())}
    assert enabled == {"NVIDIA_NVSWITCH", "NVIDIA_GDS", "NVIDIA_GDRCOPY", "NVIDIA_MOFED"}
    assert written == dict.fromkeys(enabled | {device_variables.IMEX}, "")


def test_the_values_that_mutation_writes_over_an_image_open_no_door() -> None:
    for name, value in device_variables.CLOSED_WITHOUT_GPU.items():
        assert value in (device_variables.DEVICE_VARIABLES[name].harmless or ())


def test_nodes_that_the_guard_does_not_cover_are_named(sample_policy: Policy, sample_facts: Facts) -> None:
    assert unguarded(sample_policy, sample_facts) is None
    bare = Node("new", {"nvidia.com/gpu.present": "true"})
    plain = Node("plain", {"kubernetes.io/os": "linux"})
    facts = replace(sample_facts, nodes=(*sample_facts.nodes, bare, plain))
    assert unguarded(sample_policy, facts) == (
        "the guard of policy sample is the taint slicewarden.dev/pool, which new lacks, so an image alone may see its "
        "GPUs; taint it NoSchedule or NoExecute"
    )
    two = replace(facts, nodes=(*facts.nodes, replace(bare, name="another")))
    assert unguarded(sample_policy, two) == (
        "the guard of policy sample is the taint slicewarden.dev/pool, which another, new lack, so an image alone may "
        "see their GPUs; taint them NoSchedule or NoExecute"
    )
    nameless = {"apiVersion": "v1", "kind": "Node", "metadata": {"labels": dict(bare.labels)}}
    assert unguarded(sample_policy, Facts.of([nameless])) is None
    assert unguarded(replace(sample_policy, guard=Guard()), facts) is None
    said = unguarded(replace(sample_policy, guard=None), facts)
    assert said
    assert "no guard" in said
    assert "a100-exclusive, a100-mig, new, t4-shared, t4-shared-renamed;" in said
    assert unguarded(replace(sample_policy, guard=None), Facts()) is None


@pytest.mark.parametrize("effect", ["PreferNoSchedule", "", None])
def test_a_guard_taint_that_repels_no_pod_is_reported(sample_policy: Policy, effect: str | None) -> None:
    labels = {"nvidia.com/gpu.present": "true"}
    taints = [{"key": "slicewarden.dev/pool", "effect": effect}]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}}
    assert unguarded(sample_policy, Facts.of([node]))


def test_the_start_of_the_webhook_says_it_once(sample_policy: Policy, sample_facts: Facts) -> None:
    logged: list[Any] = []
    waiting = [None, sample_facts, sample_facts]
    source = cautious(replace(sample_policy, guard=None), lambda: waiting.pop(0), logged.append)
    assert [source(), source(), source()] == [None, sample_facts, sample_facts]
    assert len(logged) == 1
    assert "no guard" in logged[0]["caution"]


# The system's own

MPS_DAEMON: Object = {
    "serviceAccountName": "nvidia-device-plugin",
    "hostPID": True,
    "tolerations": [{"operator": "Exists"}],
    "containers": [
        {
            "name": "mps-control-daemon-ctr",
            "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
            "securityContext": {"privileged": True},
            "volumeMounts": [{"name": "mps-root", "mountPath": "/mps"}],
        }
    ],
    "volumes": [{"name": "mps-root", "hostPath": {"path": "/run/nvidia/mps"}}],
}
"""What the GPU Operator makes (its assets/state-mps-control-daemon), with all that a tenant may not have."""


def test_the_gpu_operators_pods_pass_as_they_are(engine: Engine, sample_facts: Facts) -> None:
    verdict = engine.judge(request_for(pod("gpu-operator", **MPS_DAEMON)), sample_facts)
    assert verdict.allowed
    assert not verdict.patch
    assert {result.exemption for result in verdict.results} == {"gpu-operator"}
    assert {result.rule for result in verdict.results} >= {"visible-devices", "privileged-container", "device-path"}


@pytest.mark.parametrize(
    ("namespace", "account"), [("visitors", "nvidia-device-plugin"), ("gpu-operator", "default"), ("vision", "default")]
)
def test_no_other_account_has_the_exemption_of_the_gpu_operator(
    engine: Engine, sample_facts: Facts, namespace: str, account: str
) -> None:
    asked = pod(namespace, **{**MPS_DAEMON, "serviceAccountName": account})
    denied = engine.judge(request_for(asked), sample_facts).having(Action.DENY)
    assert {result.rule for result in denied} >= {"visible-devices", "privileged-container", "device-path"}


def test_an_exemption_is_of_no_annotation_label_or_requester(engine: Engine, sample_facts: Facts) -> None:
    asked = pod("visitors", {"slicewarden.dev/exempt": "true", "kubernetes.io/config.mirror": "x"}, **MPS_DAEMON)
    request = replace(
        request_for(asked), requester=Requester("system:serviceaccount:gpu-operator:gpu-operator", frozenset())
    )
    assert not engine.judge(request, sample_facts).allowed


# Properties

NAMES = (*device_variables.DEVICE_VARIABLES, "LD_PRELOAD", "CUDA_MPS_PIPE_DIRECTORY", "PATH", "CUDA_VISIBLE_DEVICES")
VARIABLES = st.one_of(
    st.fixed_dictionaries({"name": st.just(device_variables.VISIBLE), "value": st.sampled_from(("all", "void"))}),
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(NAMES),
            "value": st.sampled_from(("void", "none", "all", "0", "", "enabled", "disabled", "$(X)")),
        }
    ),
)
SECURITY = st.sampled_from(
    (
        None,
        {},
        {"privileged": True},
        {"privileged": False},
        {"capabilities": {"add": ["SYS_ADMIN"], "drop": ["ALL"]}},
        {"capabilities": {"add": ["SYS_PTRACE"]}},
        {"capabilities": {"add": ["DAC_READ_SEARCH"]}},
        {"windowsOptions": {"hostProcess": True}},
    )
)
MOUNTS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.just("v"),
            "mountPath": st.sampled_from(
                (
                    "/data",
                    "/var/run/nvidia-container-devices/all",
                    "/run/nvidia-container-devicesall",
                    "/etc/ld.so.preload",
                    "/etc",
                    "/mps/nvidia.com/gpu/pipe",
                    "/usr/local/vgpu",
                )
            ),
        }
    ),
    max_size=2,
)
MESSAGES = st.sampled_from(("/dev/termination-log", "/etc/ld.so.preload", "/slicewarden/sitecustomize.py"))
VOLUMES = st.fixed_dictionaries(
    {"name": st.sampled_from(("v", "w"))},
    optional={
        "hostPath": st.sampled_from(("/", "/dev/nvidia0", "/mnt", "/dev/fuse", "/usr/bin", "/lib/modules")).map(
            lambda path: {"path": path}
        )
    },
)
KEYS = st.sampled_from(
    (
        "cdi.k8s.io/x",
        "nvidia.cdi.k8s.io/pod",
        "io.kubernetes.cri-o.Devices",
        "hami.io/vgpu-node",
        "gpu-fraction",
        "note",
    )
)
LABELS = st.sampled_from(("runai-gpu-group", "runai-gpu-group/g", "nvidia.com/assigned-phase", "app"))
ADDED_TOLERATIONS = st.sampled_from(
    (
        {"operator": "Exists"},
        {"key": "slicewarden.dev/pool", "operator": "Exists"},
        {"key": "slicewarden.dev/pool", "operator": "Equal", "value": "shared", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    )
)
SOURCES = st.lists(
    st.fixed_dictionaries(
        {"configMapRef": st.just({"name": "m"})}, optional={"prefix": st.sampled_from(("", "APP_", "NVIDIA_"))}
    ),
    max_size=1,
)
DOOR_CONTAINERS = containers(
    st.sampled_from(
        (
            {},
            {"limits": {"nvidia.com/gpu": 1}},
            {"limits": {"nvidia.com/gpu": 0}},
            {"claims": [{"name": "card"}]},
        )
    ),
    env=st.lists(VARIABLES, max_size=2),
    envFrom=SOURCES,
    securityContext=SECURITY,
    volumeMounts=MOUNTS,
    terminationMessagePath=MESSAGES,
    restartPolicy=st.sampled_from((None, "Always")),
)


@st.composite
def door_pods(draw: st.DrawFn) -> Object:
    """A pod that may open any of the ways."""
    made: Object = draw(pods())
    spec = {**made["spec"], "containers": draw(st.lists(DOOR_CONTAINERS, min_size=1, max_size=2))}
    for key, values in {
        "volumes": st.lists(VOLUMES, max_size=2),
        "hostPID": st.booleans(),
        "hostIPC": st.just(False),
        "runtimeClassName": st.sampled_from(("nvidia", "gvisor")),
        "resourceClaims": st.just([{"name": "card", "resourceClaimName": "card"}]),
        "initContainers": st.lists(DOOR_CONTAINERS, max_size=1),
        "tolerations": st.lists(ADDED_TOLERATIONS, max_size=1),
    }.items():
        spec.pop(key, None)
        if draw(st.integers(0, 2)) == 0:
            spec[key] = draw(values)
    spec.pop("nodeName", None)
    annotations = {
        **(made["metadata"].get("annotations") or {}),
        **draw(st.dictionaries(KEYS, st.just("/dev/fuse"), max_size=1)),
    }
    labels = draw(st.dictionaries(LABELS, st.just("x"), max_size=1))
    return {**made, "metadata": {**made["metadata"], "annotations": annotations, "labels": labels}, "spec": spec}


@st.composite
def added(draw: st.DrawFn, asked: Object, more_containers: st.SearchStrategy[Object], *, again: bool) -> Object:
    """The pod with one more container, volume, variable, annotation, label or toleration; with `again` of any name."""
    made = copy.deepcopy(asked)
    spec, annotations = made["spec"], made["metadata"]["annotations"]
    match draw(st.sampled_from(("container", "volume", "variable", "annotation", "label", "toleration"))):
        case "container":
            spec.setdefault(draw(st.sampled_from(("containers", "initContainers"))), []).append(draw(more_containers))
        case "volume":
            spec.setdefault("volumes", []).append(draw(VOLUMES))
        case "variable":
            where = draw(st.sampled_from([*(spec.get("initContainers") or []), *spec["containers"]]))
            where["env"] = [*(where.get("env") or [])]
            variable = draw(VARIABLES)
            assume(again or variable["name"] not in {each["name"] for each in where["env"]})
            place = draw(st.integers(0, len(where["env"])))
            where["env"].insert(place, variable)
        case "annotation":
            key = draw(KEYS)
            assume(key not in annotations)
            annotations[key] = draw(st.sampled_from(("/dev/fuse", "x")))
        case "label":
            made["metadata"]["labels"] = {**(made["metadata"].get("labels") or {}), draw(LABELS): "x"}
        case "toleration":
            spec.setdefault("tolerations", []).append(draw(ADDED_TOLERATIONS))
    return made


GUARDS = st.sampled_from((Guard("slicewarden.dev/pool"), Guard(), None))


@given(asked=door_pods(), guard=GUARDS, data=st.data())
def test_no_addition_to_a_pod_closes_an_open_way(
    sample_policy: Policy, sample_facts: Facts, asked: Object, guard: Guard | None, data: st.DataObject
) -> None:
    """Anything may be added, containers that ask and variables a second time too: each rule denies what it did."""
    judging = Engine(replace(sample_policy, guard=guard), [rule for rule in walk() if rule.id in WAYS])
    before, after = asked, data.draw(added(asked, DOOR_CONTAINERS, again=True))
    denying = [judging.judge(request_for(each), sample_facts).having(Action.DENY) for each in (before, after)]
    assert {result.rule for result in denying[0]} <= {result.rule for result in denying[1]}


@given(asked=door_pods(), guard=GUARDS, data=st.data())
def test_nothing_that_is_added_turns_a_denied_pod_into_an_allowed_one(
    sample_policy: Policy, sample_facts: Facts, asked: Object, guard: Guard | None, data: st.DataObject
) -> None:
    """By all rules; what asks for more GPUs, or for other trust, is another pod, and may belong elsewhere."""
    judging = Engine(replace(sample_policy, guard=guard), walk())
    before = judging.judge(request_for(asked), sample_facts)
    event(f"allowed: {before.allowed}")
    assume(not before.allowed)
    plain = containers(st.just({}), env=st.lists(VARIABLES, max_size=1), securityContext=SECURITY, volumeMounts=MOUNTS)
    more = data.draw(added(asked, plain, again=False))
    assert not judging.judge(request_for(more), sample_facts).allowed


@given(
    asked=door_pods(),
    scheduler=st.sampled_from((None, "", "default-scheduler", "hami-scheduler", "kai-scheduler", "x")),
)
def test_a_verdict_does_not_depend_on_the_scheduler(
    engine: Engine, sample_facts: Facts, asked: Object, scheduler: str | None
) -> None:
    other = {**asked, "spec": {**asked["spec"], "schedulerName": scheduler}}
    first, second = (engine.judge(request_for(each), sample_facts) for each in (asked, other))
    assert first.results == second.results
    assert first.patch == second.patch


@given(asked=door_pods())
def test_one_mutation_fixes_all_that_it_can_in_a_pod_with_doors(
    engine: Engine, sample_facts: Facts, asked: Object
) -> None:
    verdict = engine.judge(request_for(asked), sample_facts)
    assert not any(result.finding.fixes for result in verdict.results)


@given(asked=door_pods())
def test_void_is_written_into_no_container_that_asks(engine: Engine, sample_facts: Facts, asked: Object) -> None:
    for operation in engine.mutate(request_for(asked), sample_facts).patch:
        if "void" in str(operation["value"]):
            _, _, where, index, *_ = operation["path"].split("/")
            limits = asked["spec"][where][int(index)]["resources"].get("limits") or {}
            assert not limits.get("nvidia.com/gpu")


@given(asked=door_pods())
def test_a_door_is_refused_in_a_template_as_in_a_pod(engine: Engine, sample_facts: Facts, asked: Object) -> None:
    asked["metadata"] = {**asked["metadata"], "namespace": "vision"}
    direct = engine.judge(request_for(asked), sample_facts)
    template = engine.judge(request_for(workload("Deployment", asked)), sample_facts)
    assert {each.rule for each in direct.having(Action.DENY)} == {each.rule for each in template.having(Action.DENY)}


def test_a_trusted_pod_cannot_lift_a_limit_by_a_debug_container(engine: Engine, sample_facts: Facts) -> None:
    one = {"limits": {"nvidia.com/gpu.shared": 1}}
    running = pod("vision", {TRUST: "trusted"}, containers=[{"name": "c", "resources": one}])
    patched = engine.judge(request_for(running), sample_facts)
    assert patched.allowed
    debugged = copy.deepcopy(running)
    debugged["spec"]["ephemeralContainers"] = [
        {"name": "d", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    ]
    request = replace(request_for(debugged, operation="UPDATE", old=running), subresource="ephemeralcontainers")
    (denied,) = engine.judge(request, sample_facts).having(Action.DENY)
    assert denied.rule == "visible-devices"


# Claims


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize("device_class", ["gpu.nvidia.com", "nic.example.com", "any"])
def test_every_class_is_of_gpus_until_the_policy_names_some(
    sample_policy: Policy, sample_facts: Facts, kind: str, device_class: str
) -> None:
    devices: Object = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": device_class}}]}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "c", "namespace": "visitors"},
        "spec": devices if kind == "ResourceClaim" else {"spec": devices},
    }
    (denied,) = Engine(sample_policy, walk()).judge(request_for(claim), sample_facts).having(Action.DENY)
    assert denied.rule == "claimed-gpu"
    for forms in (
        Forms(claims=(Scope(frozenset({"visitors"}), None, frozenset({"mover"})),)),
        Forms(device_classes=names.Names(("other",))),
    ):
        assert Engine(replace(sample_policy, forms=forms), walk()).judge(request_for(claim), sample_facts).allowed


# The same, deterministically: what each fixture is denied for it stays denied for

VOID = {"name": device_variables.VISIBLE, "value": device_variables.VOID}
FIXTURES = [
    file
    for rule in sorted(WAYS - {"unguarded-container"})  # which void is what is missing for
    for file in sorted(fixtures.FIXTURES.glob(f"{rule}/deny-*.yaml"))
    if fixtures.fixture(file)[2].kind == "Pod"
]


def additions(asked: Object) -> Iterator[Object]:
    for key, each in (
        ("containers", {"name": "more"}),
        ("containers", {"name": "more", "resources": {"limits": {"nvidia.com/gpu": 1}}, "env": [VOID]}),
        ("initContainers", {"name": "more", "env": [VOID], "restartPolicy": "Always"}),
        ("volumes", {"name": "more", "emptyDir": {}}),
        ("tolerations", {"key": "slicewarden.dev/pool", "operator": "Exists"}),
    ):
        more = copy.deepcopy(asked)
        more["spec"][key] = [*(more["spec"].get(key) or []), each]
        yield more
    for front in (True, False):
        more = copy.deepcopy(asked)
        for key in ("initContainers", "containers", "ephemeralContainers"):
            for container in more["spec"].get(key) or []:
                env = container.get("env") or []
                container["env"] = [VOID, *env] if front else [*env, VOID]
        yield more
    metadata = asked["metadata"]
    yield {**asked, "metadata": {**metadata, "annotations": {"more": "x", **(metadata.get("annotations") or {})}}}


@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_fixture_stays_denied_whatever_is_added(file: Path) -> None:
    judging, facts = fixtures.engine_of(file.parent.name)
    request = fixtures.fixture(file)[2]
    assert request.object
    for more in additions(copy.deepcopy(dict(request.object))):
        assert not judging.validate(replace(request, object=more), facts).allowed, more
