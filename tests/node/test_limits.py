"""Memory limits that NVIDIA's own hook sets before a container's first instruction, in containers of a real kubelet."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.control_plane import Cluster, eventually
from tests.node import images, nvidia, programs
from tests.node.nodes import GPU_NODE, Node
from tests.node.nvidia import CARDS, LIMITED, MIB_OF_CARD, STATE, LimitHook
from tests.node.pods import create, ended, pod, said
from tests.support.card.library import library
from tests.support.card.state import State
from tests.support.objects import Object
from tests.support.policies import POLICY, policy_of
from tests.support.strategies import request_for
from webhook.api.jsonpatch import apply
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.memory.driver import start
from webhook.memory.driver.nodes import LABEL, READY
from webhook.memory.driver.variables import NAMES
from webhook.rules import walk

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("CI")), reason="`make nightly` runs it: NVIDIA's newer toolkit has to be built"
)
TEAM = "vision"
TEXT = (
    POLICY.read_text("utf-8")
    .replace("sharing: time-slicing\n", "sharing: time-slicing\n      memoryLimit: Driver\n", 1)
    .replace("gpu.sharing-strategy: time-slicing}", f"gpu.sharing-strategy: time-slicing, {LABEL}: 'true'}}", 1)
    .replace("    # unread-variables: Warn\n", "    unread-variables: Warn\n", 1)
)
"""A policy whose pool has the driver's limits; it only warns of ConfigMaps, so that one can be tried."""
ENGINE = Engine(policy_of(TEXT), walk())
SLICE = (MIB_OF_CARD - MIB_OF_CARD * 2 // 100 - 1) // 4
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED",
    "nvidia.com/gpu.memory": str(MIB_OF_CARD),
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "nvidia.com/cuda.driver-version.major": "615",
    LABEL: READY,
}
HOSTNAME = "kubernetes.io/hostname"
BLOCK = 64
"""MiB of a block that take.c takes."""
LOADER = "/host/ld-linux-x86-64.so.2 --library-path /card:/host /take 20"
CARD = f"[ ! -e /dev/nvidia1 ] || export NVIDIA_VISIBLE_DEVICES={CARDS[1]}"
"""Names the card for the pretended CUDA: the runtime sets `void` in a container to which it has given devices."""
LARGE = dict.fromkeys(NAMES, "40000")


class Limited:
    """The node whose pods of the handler LIMITED get limits by NVIDIA's hook."""

    def __init__(self, cluster: Cluster, node: Node, hook: LimitHook) -> None:
        self.cluster, self.node, self.hook = cluster, node, hook
        self.state = State.opened(hook.cards)
        labelled = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": GPU_NODE, "labels": {**LABELS, HOSTNAME: GPU_NODE}},
        }
        trusted = {"name": TEAM, "labels": {"slicewarden.dev/trust": "trusted"}}
        self.facts = Facts.of([labelled, {"apiVersion": "v1", "kind": "Namespace", "metadata": trusted}])

    def admitted(self, item: Object) -> Object | None:
        """Return a pod as it is after /mutate; None if /validate denies it."""
        after = dict(apply(item, ENGINE.mutate(request_for(item), self.facts).patch))
        judged = ENGINE.validate(request_for(after), self.facts)
        return equipped(after, self.hook) if judged.allowed else None

    def limits(self, container: str) -> set[int]:
        """The driver's limits of a container, by its id as a pod's status has it, in MiB."""
        key = container.removeprefix("containerd://")
        return {mib for card in range(len(CARDS)) for path, mib in self.state.limits(card).items() if key in path}

    def agent(self, *words: str, **more: Any) -> "subprocess.Popen[str]":
        """Start the agent where it sees the node's cgroups as the hook does."""
        policy = self.cluster.folder / "limits.yaml"
        policy.write_text(TEXT)
        view = ("unshare", "--mount", "--propagation=private", "/bin/sh", "-c")
        command = [
            *self.node.inside, *view, 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"', "sh",
            sys.executable, "-c", "import sys; from webhook.cli.main import main; sys.exit(main())", "agent",
            "--node", GPU_NODE, "--kubeconfig", self.cluster.kubeconfig(), "--policy", policy, *words,
        ]  # fmt: skip
        environment = {**self.state.environment, "CARD_STATE": str(self.hook.cards)}
        return subprocess.Popen(command, env=environment, text=True, **more)


@pytest.fixture(scope="module")
def limited(shared: Cluster, gpu_node: Node) -> Iterator[Limited]:
    """The node with the toolkit whose hook sets limits, and with the labels of a driver that has them."""
    cluster = shared
    hook = nvidia.limits(cluster.folder, gpu_node.programs["runc"], programs.find_hook())
    for card in range(len(CARDS)):
        State.opened(hook.cards).set(card, limits=1)
    mounted = "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"
    done = gpu_node.run("/bin/sh", "-c", mounted)  # runc then makes cgroups there too
    assert done.returncode == 0, done.stderr
    cluster.add_namespace(TEAM, {"slicewarden.dev/trust": "trusted"})
    named = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": LIMITED}, "handler": LIMITED}
    assert cluster.apply(named).returncode == 0
    wishes = [f"--from-literal={name}={value}" for name, value in LARGE.items()]
    cluster.do("create", "configmap", "wishes", f"--namespace={TEAM}", *wishes)
    before = cluster.get("node", GPU_NODE)["metadata"]["labels"]
    cluster.do("label", "node", GPU_NODE, "--overwrite", *(f"{name}={value}" for name, value in LABELS.items()))
    yield Limited(cluster, gpu_node, hook)
    cluster.do("delete", "namespace", TEAM, "--timeout=300s")
    again = (f"{name}={before[name]}" if name in before else f"{name}-" for name in LABELS)
    cluster.do("label", "node", GPU_NODE, "--overwrite", *again)
    gpu_node.run("umount", "/sys/fs/cgroup/unified")


def taking(name: str, container: Object | None = None, then: str = "true", **spec: Any) -> Object:
    """A pod whose program takes all that it gets of a card, by three processes, and prints it."""
    given = container or {}
    again = [{"name": "CARD_STATE", "value": STATE}, {"name": "AGAIN", "value": f"{LOADER} leaf"}]
    own = {"command": ["sh", "-c", f"{CARD}; {LOADER}; {then}"], "env": [*again, *given.get("env", [])]}
    made = pod(name, {**given, **own}, 1, TEAM, runtimeClassName=LIMITED, **spec)
    made["metadata"]["annotations"] = {"slicewarden.dev/trust": "trusted"}
    return made


def equipped(item: Object, hook: LimitHook) -> Object:
    """The same with the program and the pretended driver, which no pod gets by admission."""
    program = images.compiled(Path(__file__).with_name("take.c"))
    places = {
        "host": ("/usr/lib/x86_64-linux-gnu", "/host"),
        "card": (str(library().parent), "/card"),
        "state": (str(hook.cards), STATE),
        "take": (str(program), "/take"),
    }
    spec = item["spec"]
    mounts = [{"name": each, "mountPath": at} for each, (_, at) in places.items()]
    volumes = [{"name": each, "hostPath": {"path": path}} for each, (path, _) in places.items()]
    main = {**spec["containers"][0], "volumeMounts": mounts}
    return {**item, "spec": {**spec, "containers": [main], "volumes": volumes}}


def taken(log: str) -> list[int]:
    return [int(mib) for mib in re.findall(r"^taken (\d+)$", log, re.MULTILINE)]


def variables(values: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in values.items()]


def test_the_hook_limits_all_processes_of_a_container_from_the_start(limited: Limited) -> None:
    item = limited.admitted(taking("honest"))
    assert item is not None
    create(limited.cluster, item)
    log = said(limited.cluster, "honest", TEAM)
    (status,) = ended(limited.cluster, "honest", TEAM)["status"]["containerStatuses"]
    assert limited.limits(status["containerID"]) == {SLICE}
    assert [*taken(log)[:2]] == [20 * BLOCK] * 2
    assert len(taken(log)) == 3
    assert SLICE - BLOCK < sum(taken(log)) <= SLICE


def every(item: Object) -> set[str]:
    """The ids of all containers of a pod that requested a card."""
    status = item["status"]
    return {each["containerID"] for each in (*status.get("initContainerStatuses", ()), *status["containerStatuses"])}


INIT = {"name": "first", "image": images.TOOLS, "imagePullPolicy": "Never", "command": ["true"]}
ASKS = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
WAYS: dict[str, tuple[Object, dict[str, Any]]] = {
    "env": ({"env": variables(LARGE)}, {}),
    "env-from": ({"envFrom": [{"configMapRef": {"name": "wishes"}}]}, {}),
    "init": ({}, {"initContainers": [{**INIT, **ASKS, "env": variables(LARGE)}]}),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_variables_of_a_tenant_widen_the_limit(limited: Limited, way: str) -> None:
    container, spec = WAYS[way]
    item = limited.admitted(taking(way, container, **spec))
    if item is None:
        return  # refused
    create(limited.cluster, item)
    assert 0 < sum(taken(said(limited.cluster, way, TEAM))) <= SLICE
    ids = every(ended(limited.cluster, way, TEAM))
    assert {mib for each in ids for mib in limited.limits(each)} == {SLICE}


@pytest.mark.parametrize("case", ["wide", "disabled"])
def test_the_agent_sets_right_what_an_image_or_a_missing_hook_leaves_open(limited: Limited, case: str) -> None:
    if case == "disabled":
        limited.hook.disabled.touch()
    image = {"image": images.WIDE} if case == "wide" else {}
    item = limited.admitted(taking(case, image, then="sleep 600"))
    assert item is not None
    create(limited.cluster, item)

    def status() -> Object:
        found = limited.cluster.get("pod", case, f"--namespace={TEAM}")["status"].get("containerStatuses", [{}])
        return dict(found[0])

    assert eventually(lambda: "running" in status().get("state", {}), 120), status()
    container = status()["containerID"]
    assert limited.limits(container) == ({40000} if case == "wide" else set())
    once = limited.agent("--once", "--format", "json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    written, notes = once.communicate()
    assert notes == f"{start.FIT}\n"
    shown = {each["pod"]: each for each in json.loads(written)["limits"]}
    assert shown[case]["difference"] == ("wider" if case == "wide" else "missing")
    log = limited.cluster.folder / f"agent-{case}.log"
    with log.open("w") as out:
        agent = limited.agent("--listen", "127.0.0.1:8099", stdout=out)
        try:
            assert eventually(lambda: limited.limits(container) == {SLICE}, 60), log.read_text()
            assert eventually(lambda: "GPULimitDiffers" in log.read_text(), 60), log.read_text()
        finally:
            agent.kill()
            agent.wait()
            limited.hook.disabled.unlink(missing_ok=True)
            limited.cluster.do("delete", "pod", case, f"--namespace={TEAM}", "--wait", "--grace-period=0", "--force")


def test_the_agent_sets_right_a_container_that_the_kubelet_has_not_reported(limited: Limited) -> None:
    """While its postStart hook runs, its pod's status has no id of it."""
    hook = {"lifecycle": {"postStart": {"exec": {"command": ["sleep", "600"]}}}}
    item = limited.admitted(taking("hook", {"image": images.WIDE, **hook}, then="sleep 600"))
    assert item is not None
    log = limited.cluster.folder / "agent-hook.log"
    with log.open("w") as out:
        agent = limited.agent("--listen", "127.0.0.1:8099", stdout=out)
        try:
            create(limited.cluster, item)
            own = limited.cluster.get("pod", "hook", f"--namespace={TEAM}")["metadata"]["uid"]
            assert eventually(lambda: limited.limits(own) == {SLICE}, 120), log.read_text()
            status = limited.cluster.get("pod", "hook", f"--namespace={TEAM}")["status"]
            assert "containerID" not in str(status.get("containerStatuses")), status
            assert eventually(lambda: "had a limit of 40000 MiB" in log.read_text(), 60), log.read_text()
        finally:
            agent.kill()
            agent.wait()
            limited.cluster.do("delete", "pod", "hook", f"--namespace={TEAM}", "--wait", "--grace-period=0", "--force")
