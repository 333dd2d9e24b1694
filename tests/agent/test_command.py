"""`slicewarden agent` as a process of its own, on the pretended card and with a pretended API server."""

import gc
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from tests import ROOT
from tests.agent.bed import GPU, get, policy, running
from tests.support.card.state import LOST, NO_EVENTS, NO_MPS, State
from tests.support.listening import Asked, listening
from tests.support.waiting import LONG, until
from webhook.agent.agent import AGAIN, NodeAgent, build
from webhook.agent.observe import cgroups
from webhook.agent.observe import node as watched
from webhook.agent.observe.nvml import Cards, Unavailable
from webhook.agent.observe.pods import ContainerName, by_status
from webhook.agent.observe.processes import Process
from webhook.agent.observe.view import NodeContainer
from webhook.cgroups import places
from webhook.cgroups.places import place
from webhook.cli import inputs
from webhook.cli import main as cli
from webhook.cluster import client, packed
from webhook.cluster.decoding import decoded
from webhook.cluster.listing import LIVING
from webhook.facts.snapshot import Facts
from webhook.memory.admitted import Admitted
from webhook.memory.driver import start
from webhook.memory.driver.nodes import LABEL, READY
from webhook.policy.model import Idle, Over
from webhook.telemetry.rate_limit import MOST, SHARE, TimeShare

COMMAND = (sys.executable, "-c", "import sys; from webhook.cli.main import main; sys.exit(main())", "agent")

Once = Callable[..., tuple[int, str, str]]


@pytest.fixture
def once(capsys: pytest.CaptureFixture[str]) -> Once:
    """Look once, in this process. Returns the status, and what was printed to both streams."""

    def run(*more: str) -> tuple[int, str, str]:
        return cli.main(["agent", "--once", *more]), *capsys.readouterr()

    return run


def test_once_names_the_processes_of_the_host_without_kubernetes(card: State, once: Once) -> None:
    card.hold(os.getpid(), 3000, sm=12)
    status, out, err = once()
    assert (status, err) == (0, "")
    first, *_, last = out.splitlines()
    assert first.startswith("0 Pretended Card GPU-00000000-0000-0000-0000-000000000000: 3000 of 24576 MiB in use")
    assert re.search(rf"\(no pod\) .* {os.getpid()} +3000 +- +12  host$", last)


def test_once_writes_json_for_programs_and_only_once_does(
    card: State, once: Once, capsys: pytest.CaptureFixture[str]
) -> None:
    card.hold(os.getpid(), 3000, sm=12)
    (seen,) = json.loads(once("--format", "json")[1])["cards"]
    assert (seen["usedMiB"], [each["pid"] for each in seen["host"]]) == (3000, [os.getpid()])
    assert cli.main(["agent", "-o", "json"]) == 2
    assert capsys.readouterr().err.startswith("error: --format: needs --once")


def test_once_shows_all_that_an_older_driver_reports_and_names_what_it_lacks(card: State, once: Once) -> None:
    card.set(missing=NO_MPS | NO_EVENTS)
    card.hold(os.getpid(), 3000, sm=12)
    status, out, err = once()
    assert status == 0
    assert "3000 of 24576 MiB in use" in out
    assert err.splitlines() == [
        "driver 615.10 has no nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "driver 615.10 has no nvmlEventSetCreate",
    ]


def test_once_shows_a_card_that_is_lost_and_the_others(card: State, once: Once) -> None:
    State(card.file, 2)
    card.set(1, fault=LOST)
    status, out, _ = once()
    assert status == 0
    assert "1 index 1: memory unknown\n  nvmlDeviceGetHandleByIndex: GPU is lost\n" in out
    assert out.startswith("0 Pretended Card")


@pytest.mark.usefixtures("card")
def test_without_a_driver_it_says_so_in_one_line(once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARD_STATE", "/missing")
    error = "error: NVML: Driver Not Loaded; is the NVIDIA driver loaded, and visible here?\n"
    assert once() == (2, "", error)


def test_without_the_library_of_the_driver_it_says_so_in_one_line(card: State) -> None:
    plain = {key: value for key, value in card.environment.items() if key != "LD_LIBRARY_PATH"}
    done = subprocess.run([*COMMAND, "--once"], env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "NVML" in done.stderr


@pytest.mark.parametrize("given", [["--events"], ["--taint"], ["--policy", "policies/sample.yaml"]])
def test_events_taints_and_a_policy_need_a_node(
    given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert cli.main(["agent", "--once", *given]) == 2
    assert f"{given[0]}: needs --node" in capsys.readouterr().err


def test_it_serves_metrics_and_health_until_it_is_told_to_end(card: State) -> None:
    card.hold(os.getpid(), 3000)
    with running(card.environment) as (process, port):
        until(lambda: get(port, "/healthz") == (200, "ok\n"), "it is healthy")
        until(lambda: "slicewarden_node_card_used_bytes{" in get(port, "/metrics")[1], "it has looked")
        assert re.search(r"slicewarden_node_card_used_bytes{.*} 3\.145728e\+09", get(port, "/metrics")[1])
        assert get(port, "/other")[0] == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0


# The API server

PODS, NODES, NAMESPACES = "/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces"
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-A10-SHARED",
    "nvidia.com/gpu.memory": "23028",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}
UID, ID = "11111111-2222-3333-4444-555555555555", "ab" * 32


def pod(**resources: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team", "name": "job", "uid": UID, "resourceVersion": "7"},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {"limits": resources}}]},
        "status": {"containerStatuses": [{"name": "main", "containerID": f"containerd://{ID}"}]},
    }


class Server:
    """Answers lists; a watch says nothing. `events` are what was created."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        node = {"metadata": {"name": "n", "resourceVersion": "1", "labels": LABELS}}
        space = {"metadata": {"name": "team", "resourceVersion": "1"}}
        self.items = {PODS: [*pods], NODES: [node], NAMESPACES: [space]}
        self.asked: list[str] = []
        self.watched: set[str] = set()
        self.events: list[dict[str, Any]] = []
        self.ended = threading.Event()

    def answer(self, asked: Asked) -> None:
        url = urlsplit(asked.path)
        if asked.command == "POST":
            self.events.append(json.loads(asked.body))
            asked.give(201, asked.body, Content_Type="application/json")
            return
        asked.begin(200, Content_Type="application/json", Connection="close")
        if "watch=" in url.query:
            self.watched.add(url.path)
            self.ended.wait(LONG)
            return
        self.asked.append(asked.path)
        answer = {"metadata": {"resourceVersion": "10"}, "items": self.items[url.path]}
        asked.wfile.write(json.dumps(answer).encode())


def _kubeconfig(tmp_path: Path, url: str = "http://127.0.0.1:1") -> str:
    file = tmp_path / "kubeconfig"
    context = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    config = {"clusters": [{"name": "c", "cluster": {"server": url}}], "contexts": context}
    users = {"users": [{"name": "u", "user": {}}], "current-context": "c", "kind": "Config", "apiVersion": "v1"}
    file.write_text(json.dumps({**config, **users}))
    return str(file)


@contextmanager
def serving(server: Server, tmp_path: Path) -> Iterator[str]:
    with listening(server.answer) as url:
        yield _kubeconfig(tmp_path, url)
        server.ended.set()


def test_it_asks_for_the_pods_of_its_own_node_alone_and_knows_their_allowance(tmp_path: Path) -> None:
    server = Server(pod(**{"nvidia.com/gpu.shared": "1"}))
    with serving(server, tmp_path) as kubeconfig:
        own = watched.NodeWatch("n", client.connect(kubeconfig), inputs.load_sample(), lambda _: None, tmp_path)
        own.start()
        assert own.settled(300)
        (known,) = own.containers().values()
        own.stop()
    assert (known.name, known.uid) == (ContainerName("team", "job", "main"), UID)
    assert known.admitted == Admitted(requests=True, allowance=(23028 - 461) // 4)
    assert any(path.startswith(f"{PODS}?") and "fieldSelector=spec.nodeName%3Dn" in path for path in server.asked)
    assert any(path.startswith(f"{NODES}?") and "fieldSelector=metadata.name%3Dn" in path for path in server.asked)
    assert {urlsplit(path).path for path in server.asked} == {PODS, NODES, NAMESPACES}


NAMES = ("apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.resourceVersion")
LARGE: dict[str, dict[str, Any]] = {
    "affinity": {"preferred": [{"weight": 1, "preference": {}}] * 100_000},
    "env": {"": [{"name": f"A{number}"} for number in range(50_000)]},
    "labels": {f"label-{number}": "" for number in range(50_000)},
    "annotations": {f"note-{number}": "" for number in range(50_000)},
    "ownerReferences": {"": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}] * 50_000},
    "status": {"": [{"name": f"c{number}", "state": {"waiting": {"reason": "x"}}} for number in range(5_000)]},
}


@pytest.mark.parametrize("place", LARGE)
def test_a_pod_of_a_tenant_is_kept_small_whatever_its_spec_and_ended_ones_are_not_read(place: str) -> None:
    """A spec of 3 MB of small maps would take 60 MB, 1.4 MB of labels 14, and a node may have 250 pods."""
    (pods, *_) = watched.read("n")
    assert (pods.fields, pods.namespaced) == (f"spec.nodeName=n,{LIVING}", True)
    large = {"apiVersion": "v1", "kind": "Pod", **pod(**{GPU: "1"})}
    metadata, spec, status = large["metadata"], large["spec"], large["status"]
    match place:
        case "affinity":
            large["spec"] = {**spec, "affinity": LARGE[place]}
        case "env":
            large["spec"] = {**spec, "containers": [{**spec["containers"][0], "env": LARGE[place][""]}]}
        case "status":
            large["status"] = {**status, "containerStatuses": [*status["containerStatuses"], *LARGE[place][""]]}
        case _:
            large["metadata"] = {**metadata, place: LARGE[place].get("", LARGE[place])}
    kept = watched.trimmed(decoded(json.dumps(large).encode(), (*NAMES, *watched.fields(pods))))
    assert kept is not None
    assert len(json.dumps({key: value for key, value in kept.items() if key != "packed"})) < 1_000
    whole, (main,) = watched.whole(kept), spec["containers"]
    owners = [{key: each[key] for key in ("kind", "name")} for each in large["metadata"].get("ownerReferences", [])]
    variables: dict[str, Any] = {"env": []} if place == "env" else {}
    assert whole["spec"]["containers"] == [{key: main[key] for key in ("name", "resources")} | variables]
    assert len(json.dumps(whole["spec"])) < 1_000
    assert whole["metadata"] == large["metadata"] | ({"ownerReferences": owners} if owners else {})
    assert by_status([kept]).keys() == by_status([large]).keys()


LARGEST: dict[str, dict[str, Any]] = {
    "terms": {"affinity": {"nodeAffinity": {"preferred": [{}] * 740_000}}},
    "variables": {"containers": [{"name": "a", "env": [{"name": "A"}] * 250_000}]},
    "containers": {"containers": [{"name": f"c{number}", "resources": {}} for number in range(70_000)]},
}
"""Parts of specs that fill the 1.5 MB which etcd takes."""

OTHERS = 100 + 2 * 16
"""MiB that the agent takes besides: to make a report of five weeks for /usage, and for peers that read slowly."""


@pytest.mark.parametrize("part", LARGEST)
def test_the_largest_pods_leave_room_for_a_report_and_slow_readers(part: str, card: State, tmp_path: Path) -> None:
    own = pod(**{GPU: "1"})
    own["spec"] |= LARGEST[part]
    server = Server(own)
    with serving(server, tmp_path) as kubeconfig:
        more = ("--node", "n", "--kubeconfig", kubeconfig, "--policy", str(ROOT / "policies" / "sample.yaml"))
        with running(card.environment, *more) as (process, port):
            until(lambda: PODS in server.watched, "it has read the pod")
            pages = set[str]()
            until(lambda: looked(pages, get(port, "/metrics")[1]), "it has looked several times")
            status = Path(f"/proc/{process.pid}/status").read_text("ascii")
    peak = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) / 1024
    print(f"{peak:.0f} MiB at most with {part}, and {OTHERS} for others")
    daemon_set = yaml.safe_load((ROOT / "manifests/components/agent/daemonset.yaml").read_text("utf-8"))
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    assert peak + OTHERS < int(container["resources"]["limits"]["memory"].removesuffix("Mi"))


def looked(pages: set[str], page: str) -> bool:
    """Note a page of metrics, which differs after each look. Return whether there were several."""
    pages.add(page)
    return len(pages) > 5


def test_no_tenant_delays_the_looks_by_changes_of_large_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch of one label of 25 such pods a second had every look take 4 s, for which nothing else was looked at."""
    now, unpacked, versions = [0.0], list[str](), count()

    def whole(kept: dict[str, Any], once: Callable[[Any], Any] = watched.whole) -> Any:
        now[0] += 0.15
        unpacked.append(kept["metadata"]["uid"])
        return once(kept)

    monkeypatch.setattr(watched, "whole", whole)
    monkeypatch.setattr(packed, "LARGE", 5_000)
    own = watched.NodeWatch("n", client.connect(_kubeconfig(tmp_path)), inputs.load_sample(), lambda _: None, tmp_path)
    own._share = TimeShare(lambda: now[0])
    facts = Facts.of([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": LABELS}}])
    monkeypatch.setattr(own._cluster, "facts", lambda: facts)

    def kept(uid: str, size: int, **resources: str) -> Any:
        one = pod(**resources)
        metadata = {**one["metadata"], "uid": uid, "resourceVersion": str(next(versions))}
        spec = {**one["spec"], "subdomain": "x" * size}
        return watched.trimmed({"apiVersion": "v1", "kind": "Pod", **one, "metadata": metadata, "spec": spec})

    def look(*others: Any) -> Any:
        here = (*(kept(f"large-{number}", 6_000) for number in range(25)), *others)
        monkeypatch.setattr(own._cluster, "objects", lambda kind: here if kind == "Pod" else ())
        own.containers()
        own.pods()
        return own.slices()

    for _ in range(200):
        begin = now[0]
        look()
        assert now[0] - begin <= MOST + 0.15
        now[0] += 1.0
    turns = Counter(unpacked)
    assert (len(turns), min(turns.values())) == (25, 200 * SHARE / 0.15 // 25)
    # A pod that may have a slice is read at once, whatever its size, and so is any small one.
    slices = look(kept("mine", 6_000, **{GPU: "1"}), kept("small", 10, **{GPU: "1"}))
    assert {each.uid for each in slices.held} == {"mine", "small"}
    # Nor are others whose resources are no GPUs, such as those of virtual machines, of which a node has many.
    begin = now[0]
    look(*(kept(f"new-{number}", 6_000, **{"devices.kubevirt.io/kvm": "1"}) for number in range(25)))
    assert now[0] - begin <= MOST + 0.15
    # It counts as it was until it is read again.
    assert {each.uid for each in look(kept("mine", 6_000, **{GPU: "1"})).held} == {"mine"}


def test_a_pod_is_unpacked_again_only_if_what_is_read_for_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """25 pods of 3 MB kept the agent from its looks for 8 s after each change of any namespace."""
    unpacked = list[str]()

    def whole(kept: dict[str, Any], once: Callable[[Any], Any] = watched.whole) -> Any:
        unpacked.append(kept["metadata"]["resourceVersion"])
        return once(kept)

    monkeypatch.setattr(watched, "whole", whole)
    with serving(Server(pod(**{GPU: "1"})), tmp_path) as kubeconfig:
        own = watched.NodeWatch("n", client.connect(kubeconfig), inputs.load_sample(), lambda _: None, tmp_path)
        own.start()
        assert own.settled(300)
        own.stop()
    facts, kept = own._cluster.facts(), own._cluster.objects("Pod")
    assert facts is not None

    def look(known: Facts) -> tuple[Any, ...]:
        monkeypatch.setattr(own._cluster, "facts", lambda: known)
        return own.containers(), own.pods(), own.slices()

    first = look(facts)
    assert first[0]
    assert first[2].held
    others = replace(facts, namespaces={**facts.namespaces, "new": {}})
    assert (look(others), len(unpacked)) == (first, 1)
    (node,) = facts.nodes
    labels = replace(facts, namespaces={**facts.namespaces, "team": {"a": "b"}})
    cards = replace(facts, nodes=(replace(node, labels={**node.labels, "nvidia.com/gpu.memory": "46056"}),))
    for number, changed in enumerate((labels, cards), 2):
        look(changed)
        assert len(unpacked) == number
    assert look(cards)[0] != first[0]
    newer = tuple({**each, "metadata": {**each["metadata"], "resourceVersion": "99"}} for each in kept)
    monkeypatch.setattr(own._cluster, "objects", lambda kind: newer if kind == "Pod" else ())
    look(cards)
    assert (unpacked[-1], len(unpacked)) == ("99", 4)


def with_logs(folder: Path, own: dict[str, Any], **targets: str) -> Mapping[str, NodeContainer]:
    """The containers of a pod that may be frozen, whose logs lie at these places by their ids."""
    own["metadata"]["annotations"] = {"slicewarden.dev/pausable": "true"}
    logs = folder / "logs"
    logs.mkdir()
    for container, target in targets.items():
        (logs / f"job_team_main-{container}.log").symlink_to(f"/var/log/pods/team_job_{target}.log")
    with serving(Server(own), folder) as kubeconfig:
        rules = inputs.load_policy(policy(folder))
        watch = watched.NodeWatch("n", client.connect(kubeconfig), rules, lambda _: None, logs)
        watch.start()
        assert watch.settled(300)
        known = watch.containers()
        watch.stop()
    return known


NAME = ContainerName("team", "job", "main")


@pytest.mark.parametrize("uid", [UID, "another"])
def test_a_container_is_known_before_its_pods_status_has_it_and_is_not_frozen_yet(tmp_path: Path, uid: str) -> None:
    own = {**pod(**{GPU: "1"}), "status": {"phase": "Pending"}}
    admitted = Admitted(requests=True, allowance=(23028 - 461) // 4)
    known = NodeContainer(NAME, uid, admitted) if uid == UID else NodeContainer(NAME)
    assert with_logs(tmp_path, own, **{ID: f"{uid}/main/0"}) == {ID: known}


def test_the_log_of_one_that_has_ended_has_only_its_name(tmp_path: Path) -> None:
    ended = "cd" * 32
    found = with_logs(tmp_path, pod(**{GPU: "1"}), **{ID: f"{UID}/main/1", ended: f"{UID}/main/0"})
    assert found[ended] == NodeContainer(NAME)
    assert found[ID].admitted.pause


LONG_NAMES = ContainerName("team" * 12, "job" * 40, "main" * 10)
SLICE = (23028 - 512) // 4


def with_long_names(uid: str, **more: Any) -> dict[str, Any]:
    """A pod with names so long that the kubelet cuts the links to its logs, which the status does not have yet."""
    own = {"name": LONG_NAMES.container, "resources": {"limits": {GPU: "1"}}}
    small = {**own, "name": "small", "env": [{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "1000"}]}
    return {
        "metadata": {"namespace": LONG_NAMES.namespace, "name": LONG_NAMES.pod, "uid": uid, "resourceVersion": "7"},
        "spec": {"nodeName": "n", "containers": [small, own, {"name": "side"}]},
        "status": {"phase": "Pending"},
        **more,
    }


@contextmanager
def driven(folder: Path, *pods: dict[str, Any]) -> Iterator[watched.NodeWatch]:
    """The watch of a node in a pool with `memoryLimit: Driver`."""
    value = yaml.safe_load(Path(policy(folder)).read_text("utf-8"))
    pool = next(each for each in value["spec"]["pools"] if each["sharing"] == "time-slicing")
    pool["memoryLimit"] = "Driver"
    file = folder / "driver.yaml"
    file.write_text(yaml.safe_dump(value))
    with serving(Server(*pods), folder) as kubeconfig:
        watch = watched.NodeWatch("n", client.connect(kubeconfig), inputs.load_policy(str(file)), print, folder)
        watch.start()
        assert watch.settled(300)
        yield watch
        watch.stop()


def test_a_pod_has_the_widest_limit_of_its_containers(tmp_path: Path) -> None:
    uids = [f"{number:08x}-2222-3333-4444-555555555555" for number in range(6)]
    plain = {"nodeName": "n", "containers": [{"name": "main"}]}
    trusted = {"namespace": "gpu-operator", "name": "job", "uid": uids[4], "resourceVersion": "7"}
    small = with_long_names(uids[5])
    small["spec"]["containers"][1]["env"] = small["spec"]["containers"][0]["env"]
    pods = [
        with_long_names(uids[0]),
        with_long_names(uids[1], status={"phase": "Succeeded"}),
        with_long_names(uids[2], spec=plain),
        with_long_names(uids[3], spec={"nodeName": "n", "containers": 7}),
        with_long_names(uids[4], metadata=trusted),
        small,
    ]
    pods[4]["spec"]["serviceAccountName"] = "nvidia-dcgm-exporter"
    for number, each in enumerate(pods):
        each["metadata"]["name"] = f"job-{number}"
    with driven(tmp_path, *pods) as watch:
        found = watch.pods()
    names = [ContainerName(LONG_NAMES.namespace, f"job-{number}", "(unknown)") for number in (0, 5)]
    assert found == {
        uids[0]: NodeContainer(names[0], uids[0], Admitted(allowance=SLICE, driver=True, stated=1000)),
        uids[5]: NodeContainer(names[1], uids[5], Admitted(allowance=1000, driver=True, stated=1000)),
    }


def test_a_container_whose_link_the_kubelet_cuts_is_limited_as_its_pod_until_it_is_reported(
    card: State, tmp_path: Path
) -> None:
    """Its image has a wider limit, and its `postStart` hook runs on; the cgroup and the API server are pretended."""
    uid, sandbox = UID, "ef" * 32
    folder = tmp_path / "kubepods.slice" / f"kubepods-pod{uid.replace('-', '_')}.slice" / f"cri-containerd-{ID}.scope"
    for each in (folder, folder.with_name(f"cri-containerd-{sandbox}.scope")):
        each.mkdir(parents=True)
    forged = folder / f"kubepods-pod{'9' * 8}_{uid[9:].replace('-', '_')}.slice" / f"cri-containerd-{'cd' * 32}.scope"
    forged.mkdir(parents=True)
    pod, now, logged = with_long_names(uid), [0.0], list[Any]()
    name = f"{LONG_NAMES.pod}_{LONG_NAMES.namespace}_{LONG_NAMES.container}-{ID}"[:251]
    (tmp_path / f"{name}.log").symlink_to(f"/var/log/pods/{LONG_NAMES.namespace}_{LONG_NAMES.pod}_{uid}/x/0.log")
    card.set(limits=1)
    cards = Cards()
    cards.limit(cards.whole[0], str(folder), 20_000)
    with driven(tmp_path, pod) as watch:
        assert watch.containers() == {}
        folders = cgroups.CgroupFolders(tmp_path)
        one = build(
            watch.containers, watch.over, logged.append, pods=watch.pods, folders=folders, clock=lambda: now[0],
            watch_only=False,
        )  # fmt: skip
        for _ in range(4):
            one.round()
            now[0] += 1
        widest = {str(folder): SLICE, str(folder.with_name(f"cri-containerd-{sandbox}.scope")): SLICE}
        assert card.limits() == widest
        assert [(each["action"], each["pod"]) for each in logged] == [("Limit", LONG_NAMES.pod)]
        status = [{"name": "small", "containerID": f"containerd://{ID}"}]
        reported = {**pod, "metadata": {**pod["metadata"], "resourceVersion": "8"}, "status": {}}
        reported["status"]["containerStatuses"] = status
        kept = watched.trimmed({"apiVersion": "v1", "kind": "Pod", **reported})
        watch._cluster.objects = lambda kind: (kept,) if kind == "Pod" and kept else ()  # type: ignore[method-assign]
        one.round()
        assert card.limits() == {**widest, str(folder): 1000}
        assert [each["container"] for each in logged if each["action"] == "Limit"] == ["(unknown)", "small"]
        one.close()
    cards.close()


def test_the_node_is_not_seen_before_its_pool_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Server(), tmp_path) as kubeconfig:
        own = watched.NodeWatch("n", client.connect(kubeconfig), inputs.load_sample(), lambda _: None, tmp_path)
        own.start()
        assert own.settled(300)
        assert own.seen() is not None
        own.stop()
    monkeypatch.setattr(own._cluster, "facts", lambda: None)  # the nodes are listed, and other kinds are not yet
    assert own.seen() is None


@pytest.mark.parametrize(
    ("mode", "action"), [(None, "Evict"), ("Enforce", "Evict"), ("Audit", "Report"), ("Off", "Report")]
)
def test_a_policy_that_only_records_evicts_nobody(tmp_path: Path, mode: str | None, action: str) -> None:
    value = yaml.safe_load(Path("policies/sample.yaml").read_text("utf-8"))
    value["spec"]["pools"][0]["node"] = {"idle": {"afterMinutes": 10, "action": "Evict"}, "over": {"action": "Evict"}}
    value["spec"] |= {"mode": mode} if mode else {}
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(value))
    with serving(Server(), tmp_path) as kubeconfig:
        own = watched.NodeWatch(
            "n", client.connect(kubeconfig), inputs.load_policy(str(file)), lambda _: None, tmp_path
        )
        own.start()
        assert own.settled(300)
        assert (own.idle(), own.over()) == (Idle(600, action), Over(action))
        own.stop()


def test_while_the_api_server_is_away_log_files_name_the_containers_and_nothing_is_said_of_them(tmp_path: Path) -> None:
    (tmp_path / f"job_team_main-{ID}.log").touch()
    api = client.connect(None) if os.environ.get("KUBERNETES_SERVICE_HOST") else None
    with serving(Server(), tmp_path) as kubeconfig:
        api = client.connect(kubeconfig)
    own = watched.NodeWatch("n", api, inputs.load_sample(), lambda _: None, tmp_path)
    assert own.containers() == {ID: NodeContainer(ContainerName("team", "job", "main"))}


def test_a_pod_that_asks_for_no_gpu_is_told_once_with_an_event_of_its_own(
    card: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way, with a real cgroup of a container; the API server is pretended."""
    mount = unified()
    folder = mount / f"kubepods-slicewarden-test-{os.getpid()}" / f"pod{UID}" / ID
    folder.mkdir(parents=True)
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        (folder / "cgroup.procs").write_text(str(job.pid))
        assert place(Path(f"/proc/{job.pid}/cgroup").read_text()) is not None
        card.hold(job.pid, 2000)
        server = Server(pod(cpu="1"))
        with serving(server, tmp_path) as kubeconfig:
            arguments = ("--node", "n", "--events", "--kubeconfig", kubeconfig, "--policy", "policies/sample.yaml")
            with running(card.environment, *arguments) as (process, port):
                until(lambda: bool(server.events), "an Event was written")
                until(lambda: 'state="not requested"' in get(port, "/metrics")[1], "it is a stranger")
                until(lambda: "slicewarden_node_reported{" in get(port, "/metrics")[1], "it was reported")
                (tmp_path / "n.txt").write_text(get(port, "/metrics")[1])
                time.sleep(2.2)
                process.send_signal(signal.SIGTERM)
                process.wait(LONG)
        (event,) = server.events
        assert (event["reason"], event["regarding"]["name"], event["regarding"]["uid"]) == (
            "GPUNotRequested",
            "job",
            UID,
        )
        assert cli.main(["top", "-o", "json", "--from", str(tmp_path / "n.txt")]) == 0
        (seen,) = json.loads(capsys.readouterr().out)["cards"]
        (stranger,) = seen["containers"]
        assert (stranger["pod"], stranger["usedMiB"], stranger["allowanceMiB"]) == ("job", 2000, None)
        assert (stranger["state"], stranger["reported"]) == ("not requested", True)
        assert (event["action"], event["reportingController"]) == ("Report", "slicewarden.dev/agent")
        assert event["note"].startswith("container main has processes on GPU GPU-0000")
    finally:
        job.kill()
        job.wait()
        for each in (folder, folder.parent, folder.parent.parent):
            until(lambda each=each: gone(each), f"{each} is removed")  # type: ignore[misc]


def test_once_shows_the_drivers_limit_of_each_container_and_changes_nothing(
    card: State, once: Once, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "CGROUPS", tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    mount = unified()
    top = mount / f"kubepods-slicewarden-once-{os.getpid()}"
    folder = top / f"pod{UID}" / ID
    folder.mkdir(parents=True)
    policy = tmp_path / "policy.yaml"
    value = yaml.safe_load(Path("policies/sample.yaml").read_text("utf-8"))
    next(pool for pool in value["spec"]["pools"] if pool["sharing"] == "time-slicing")["memoryLimit"] = "Driver"
    policy.write_text(yaml.safe_dump(value))
    schema = json.loads(Path("docs/schemas/gpuuse.json").read_text("utf-8"))
    server, most = Server(pod(**{"nvidia.com/gpu.shared": "1"})), (23028 - 512) // 4
    try:
        with serving(server, tmp_path) as kubeconfig:
            arguments = ("--node", "n", "--kubeconfig", kubeconfig, "--policy", str(policy))
            for mib, limited, difference in (
                (None, "none", "missing"),
                (9000, "9000", "wider"),
                (most, str(most), None),
            ):
                card.set(limits=1)
                cards = Cards()
                assert cards.limit(cards.whole[0], str(folder), mib) == ""
                before = card.file.read_bytes()
                status, out, err = once(*arguments)
                assert (status, err) == (0, f"{start.FIT}\n")
                assert out.splitlines()[-1].split() == [
                    "team/job", "main", "0", limited, str(most), difference or "-",
                ]  # fmt: skip
                written = json.loads(once(*arguments, "--format", "json")[1])
                jsonschema.validate(written, schema)
                (found,) = written["limits"]
                assert (found["container"], found["allowanceMiB"], found["difference"]) == ("main", most, difference)
                assert found["cards"] == [{"uuid": cards.whole[0], "limited": mib is not None, "limitMiB": mib}]
                assert card.file.read_bytes() == before
                cards.close()
            card.set(limits=0)  # a driver without limits
            _, out, err = once(*arguments)
            assert out.splitlines()[-1].split()[3:] == ["-", str(most), "-"]
            (tmp_path / "cgroup.controllers").unlink()
            assert err == f"no limit before the start: {start.UNMET[start.StartNeed.DRIVER]}\n"
            assert once(*arguments)[2] == err + f"no limit before the start: {start.UNMET[start.StartNeed.CGROUP]}\n"
            card.set(instances=2)
            assert "limit before the start: driver is not known" in once(*arguments)[2]
    finally:
        for each in (folder, folder.parent, top):
            until(lambda each=each: gone(each), f"{each} is removed")  # type: ignore[misc]
    assert server.events == []


def test_the_agent_counts_what_nvidias_hook_lacks_only_in_a_pool_that_selects_nodes_for_it(
    card: State, tmp_path: Path
) -> None:
    value = yaml.safe_load(Path("policies/sample.yaml").read_text("utf-8"))
    pool = next(each for each in value["spec"]["pools"] if each["sharing"] == "time-slicing")
    pool["memoryLimit"] = "Driver"
    server = Server()
    with serving(server, tmp_path) as kubeconfig:
        policy = tmp_path / "policy.yaml"
        policy.write_text(yaml.safe_dump(value))
        arguments = ("--node", "n", "--kubeconfig", kubeconfig, "--policy", str(policy), "--watch-only")
        with running(card.environment, *arguments) as (process, port):
            until(lambda: "slicewarden_node_card_used_bytes{" in get(port, "/metrics")[1], "it has looked")
            pool["nodes"]["matchLabels"][LABEL] = READY
            server.items[NODES][0]["metadata"]["labels"] = {**LABELS, LABEL: READY}
            assert "slicewarden_node_limit_needs{" not in get(port, "/metrics")[1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(LONG) == 0
        policy.write_text(yaml.safe_dump(value))
        met = 'slicewarden_node_limit_needs{need="whole GPUs"} 1.0'
        with running(card.environment, *arguments) as (process, port):
            until(lambda: met in get(port, "/metrics")[1], "it knows its pool")
            process.send_signal(signal.SIGTERM)
            assert process.wait(LONG) == 0


def gone(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return not folder.exists()
    return True


def unified() -> Path:
    """A mount of cgroup v2 where this process may make a cgroup; skips without one."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 ") and os.access(folder := Path(before.split()[4]), os.W_OK):
            return folder
    pytest.skip("no cgroup v2 that this user may write to")


# The loop


def agent(card: State, **more: Any) -> tuple[NodeAgent, list[Any]]:
    del card
    logged: list[Any] = []
    return build(dict, Over, logged.append, **more), logged


def test_nvml_that_cannot_be_started_is_told_once_and_tried_again(card: State) -> None:
    def broken() -> Any:
        raise Unavailable("Driver Not Loaded")

    one, logged = agent(card, open=broken)
    assert [one.round(), one.round()] == [AGAIN, AGAIN]
    assert logged == [{"message": "no NVML", "error": "Driver Not Loaded"}]
    assert 'slicewarden_node_nvml_errors_total{call="nvmlInit"} 2.0' in one.metrics.text().decode()
    assert one.metrics.age < math.inf, "it has looked"


def test_a_restart_changes_no_series_but_counters(card: State) -> None:
    card.hold(os.getpid(), 700, sm=5, stamp=9)
    texts = []
    for _ in range(2):
        one, _ = agent(card)
        one.round()
        one.close()
        lines = one.metrics.text().decode().splitlines()
        texts.append([line for line in lines if "_look_" not in line and "_total" not in line])
    assert texts[0] == texts[1]


def test_five_hundred_pods_that_came_and_went_leave_no_series_and_no_memory(
    card: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    card.hold(os.getpid(), 9000, sm=5, stamp=9)
    place = places.ContainerCgroup("", "", "/kubepods/x", 2)
    known: dict[str, NodeContainer] = {}
    one = build(lambda: known, lambda: Over(grace=0), lambda _: None)
    monkeypatch.setattr(one._processes, "find", lambda pids: {pid: Process(pid, 1, "p", place) for pid in pids})

    def pods(first: int, last: int) -> int:
        nonlocal place, known
        for number in range(first, last):
            place = places.ContainerCgroup(f"uid-{number}", f"{number:064x}", f"/kubepods/{number}", 2)
            name = ContainerName("team", f"job-{number}", "main")
            known = {
                place.container: NodeContainer(
                    name, f"uid-{number}", Admitted(requests=number % 2 == 0, allowance=4000)
                )
            }
            one.round()
            assert number % 50 or f'pod="job-{number}"' in one.metrics.text().decode()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    pods(0, 50)
    tracemalloc.start()
    try:
        before = pods(50, 100)
        assert pods(100, 600) - before < 20_000  # bytes; a name for each of 500 pods would be more
    finally:
        tracemalloc.stop()
    place, known = None, {}  # type: ignore[assignment]
    one.round()
    one.close()
    assert "job-" not in one.metrics.text().decode()
