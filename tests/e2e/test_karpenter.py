"""Karpenter itself beside the webhook: for a pool without nodes an admitted pod makes one that fits, and runs there."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Space, granted
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.guard import Guard
from tests.e2e.karpenter import GPU, HERE, MACHINE, MIG, NODE_POOL, OFFERS, POOLS, Karpenter, amounts
from tests.e2e.karpenter import program as karpenters
from tests.e2e.objects import TRUSTED, Object, pod
from tests.support.go_programs import Missing
from tests.support.policies import policy_of
from webhook.engine.registration import configurations

POLICY = HERE / "policy.yaml"
UNSTEERED = "unsteered"


@pytest.fixture(scope="module")
def scaling(programs: Path, guard: Guard) -> Iterator[Karpenter]:
    """Karpenter, and the webhook by a policy whose pools are its NodePools."""
    del programs  # a control plane of our own: Karpenter would take the nodes of somebody's
    try:
        karpenters()
        started = Karpenter(guard.cluster)
    except Missing as missing:
        pytest.skip(str(missing))
    guard.judge_by(POLICY.read_text("utf-8"))
    guard.registered_for = [*configurations(policy_of(POLICY))]
    guard.register()
    guard.cluster.add_namespace(UNSTEERED)
    yield started
    guard.unregister()
    guard.registered_for = []
    guard.judge_by()
    started.leave()
    guard.cluster.do("delete", "namespace", UNSTEERED, "--wait=false")


@pytest.fixture
def empty(scaling: Karpenter) -> Iterator[Karpenter]:
    """Karpenter without nodes and overlays, as after the test."""
    yield scaling
    for namespace in {each["metadata"]["namespace"] for each in gpu_pods(scaling.cluster)}:
        scaling.cluster.do("delete", "pods", "--all", f"--namespace={namespace}", "--timeout=300s")
    scaling.overlay()
    scaling.scale_down()


def gpu_pods(cluster: Cluster) -> list[Object]:
    """The pods of these tests."""
    return list(cluster.get("pods", "--all-namespaces", "--selector=app=a")["items"])


@pytest.fixture
def team(guard: Guard, empty: Karpenter, space: Space) -> str:
    """A namespace whose pods may be trusted."""
    del empty
    return granted(guard, space(TRUSTED))


def create(cluster: Cluster, *objects: Object) -> None:
    applied = cluster.apply(*objects)
    assert applied.returncode == 0, applied.stderr


def bound(cluster: Cluster, namespace: str) -> dict[str, str]:
    """The nodes of a namespace's pods that have one."""
    found = cluster.get("pods", f"--namespace={namespace}")["items"]
    return {each["metadata"]["name"]: each["spec"]["nodeName"] for each in found if each["spec"].get("nodeName")}


def refusal(cluster: Cluster, namespace: str, name: str) -> str:
    """What Karpenter says of a pod for which it makes no node; the scheduler's own events have the same reason."""
    events = cluster.get("events", f"--namespace={namespace}", f"--field-selector=involvedObject.name={name}")["items"]
    said = [each for each in events if each.get("reportingComponent") == "karpenter"]
    return "\n".join(each["message"] for each in said if each["reason"] == "FailedScheduling")


def seen(*node_pools: str) -> list[Object]:
    """Nodes of NodePools as they are while they run, which facts of an earlier day have."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"was-{name}", "labels": {NODE_POOL: name, MACHINE: POOLS[name]}},
            "status": {"allocatable": amounts(OFFERS[name])},
        }
        for name in node_pools
    ]


def exported(folder: Path, nodes: list[Object]) -> list[Object]:
    """The overlays that `slicewarden policy export` writes by facts with these nodes."""
    facts = folder / "facts.yaml"
    facts.write_text(yaml.safe_dump_all(nodes), "utf-8")
    command = ["policy", "export", "--as", "nodeoverlay", "--policy", str(POLICY), "--facts", str(facts)]
    said = subprocess.run(
        [sys.executable, "-m", "webhook", *command], capture_output=True, text=True, check=False, cwd=HERE.parents[2]
    )
    assert said.returncode == 0, said.stderr
    return [each for each in yaml.safe_load_all(said.stdout) if each]


@pytest.mark.parametrize(
    ("node_pool", "limits", "note"),
    [("slices", {GPU: 1}, TRUSTED), ("whole", {GPU: 2}, None), ("parts", {MIG: 1}, None)],
)
def test_an_admitted_pod_makes_a_node_of_its_pool_that_has_none_and_runs_there(
    empty: Karpenter, team: str, tmp_path: Path, node_pool: str, limits: dict[str, int], note: dict[str, str] | None
) -> None:
    empty.overlay(*exported(tmp_path, seen("slices", "whole", "parts")))
    create(empty.cluster, pod("first", team, limits, annotations=note))
    stored = empty.cluster.get("pod", "first", f"--namespace={team}")
    assert stored["spec"]["nodeSelector"] == {NODE_POOL: node_pool}
    assert eventually(lambda: empty.plug(node_pool) != [] and "first" in bound(empty.cluster, team))
    assert [empty.cluster.node_of("first", team)] == empty.nodes(node_pool)
    node = empty.cluster.get("node", *empty.nodes(node_pool))
    assert node["metadata"]["labels"][MACHINE] == POOLS[node_pool]
    assert not any(empty.claims(each) for each in POOLS if each != node_pool)


def test_a_pod_that_selects_a_label_of_running_nodes_makes_none(empty: Karpenter) -> None:
    """Steering by what GPU Feature Discovery writes would have every first pod wait for ever."""
    selector = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    create(empty.cluster, pod("waits", UNSTEERED, {GPU: 1}, nodeSelector=selector))
    assert eventually(lambda: "does not have known values" in refusal(empty.cluster, UNSTEERED, "waits"))
    assert 'label "nvidia.com/gpu.product" does not have known values' in refusal(empty.cluster, UNSTEERED, "waits")
    assert not any(empty.claims(each) for each in POOLS)


def test_overlays_of_what_nodes_offer_have_karpenter_make_one_node_for_the_slices_of_a_card(
    empty: Karpenter, team: str, tmp_path: Path
) -> None:
    """Four slices are one card: four nodes without the overlay, one with it, which is made from what they offered."""
    pods = [pod(f"slice-{number}", team, {GPU: 1}, annotations=TRUSTED) for number in range(4)]
    create(empty.cluster, *pods)
    assert eventually(lambda: len(bound(empty.cluster, team)) == 4)
    assert len(empty.claims("slices")) == 4
    empty.plug("slices")
    nodes = empty.cluster.get("nodes")["items"]
    overlays = exported(tmp_path, nodes)
    assert [each["spec"]["capacity"] for each in overlays] == [{GPU: "4"}]

    empty.cluster.do("delete", "pods", "--all", f"--namespace={team}", "--timeout=300s")
    empty.scale_down()
    empty.overlay(*overlays)
    create(empty.cluster, *pods)
    assert eventually(lambda: empty.plug("slices") != [] and len(bound(empty.cluster, team)) == 4)
    assert len(empty.claims("slices")) == 1
    assert len(set(bound(empty.cluster, team).values())) == 1


def test_a_mig_device_makes_a_node_only_with_the_overlay_and_a_whole_card_of_it_none(
    empty: Karpenter, team: str, tmp_path: Path
) -> None:
    create(empty.cluster, pod("part", team, {MIG: 1}))
    assert eventually(lambda: "no instance type has enough resources" in refusal(empty.cluster, team, "part"))
    assert empty.claims("parts") == []
    empty.overlay(*exported(tmp_path, seen("parts")))
    assert eventually(lambda: empty.plug("parts") != [] and "part" in bound(empty.cluster, team))
    selector = {NODE_POOL: "parts"}
    create(empty.cluster, pod("card", UNSTEERED, {GPU: 1}, nodeSelector=selector))
    assert eventually(lambda: "no instance type has enough resources" in refusal(empty.cluster, UNSTEERED, "card"))
    assert len(empty.claims("parts")) == 1
