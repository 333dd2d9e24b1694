"""Where GPU pods run: every kind of workload, trusted and not, bound by the real scheduler."""

import json
from typing import Any

import pytest

from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.guard import Guard
from tests.e2e.objects import ONE, TRUSTED, Object, plain, pod, template, workload

SHARED, RENAMED, EXCLUSIVE, MIG = "t4-shared", "t4-shared-renamed", "a100-exclusive", "a100-mig"
SLICE = {"nvidia.com/gpu.shared": 1}
CONTROLLED = ["Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Job", "DaemonSet", "CronJob"]

trusted_and_not = pytest.mark.parametrize(
    ("annotations", "node"), [(TRUSTED, SHARED), ({}, EXCLUSIVE)], ids=["trusted", "untrusted"]
)


def env(item: Object) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in item["spec"]["containers"][0].get("env", [])}


def pods(cluster: Cluster, namespace: str) -> list[Object]:
    found: list[Object] = cluster.get("pods", f"--namespace={namespace}")["items"]
    return found


def bound(cluster: Cluster, namespace: str) -> list[str]:
    """The nodes of those pods that have one."""
    return [each["spec"]["nodeName"] for each in pods(cluster, namespace) if "nodeName" in each["spec"]]


def unschedulable(cluster: Cluster, namespace: str) -> list[str]:
    """Return what the scheduler says of those pods that fit nowhere."""
    return [
        condition["message"]
        for each in pods(cluster, namespace)
        for condition in each["status"].get("conditions", [])
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
    ]


@trusted_and_not
def test_a_pod_lands_in_its_pool(guarded: Guard, team: str, annotations: dict[str, str], node: str) -> None:
    cluster = guarded.cluster
    assert cluster.apply(pod("bare", team, annotations=annotations)).returncode == 0
    assert cluster.node_of("bare", team) == node
    stored = cluster.get("pod", "bare", f"--namespace={team}")
    if annotations:
        # A slice of the card's 15360 MiB, without what is kept back and what every process takes besides.
        assert "per_process_memory_fraction:0.2" in env(stored)["PYTORCH_ALLOC_CONF"]
    else:
        assert env(stored) == {"NVIDIA_NVSWITCH": "", "NVIDIA_IMEX_CHANNELS": ""}


def test_a_slice_with_a_renamed_resource_lands_in_its_pool(guarded: Guard, team: str) -> None:
    assert guarded.cluster.apply(pod("renamed", team, SLICE, TRUSTED)).returncode == 0
    assert guarded.cluster.node_of("renamed", team) == RENAMED


@pytest.mark.parametrize("annotations", [TRUSTED, {}], ids=["trusted", "untrusted"])
def test_a_mig_device_lands_in_its_pool(guarded: Guard, team: str, annotations: dict[str, str]) -> None:
    assert guarded.cluster.apply(pod("device", team, {"nvidia.com/mig-1g.10gb": 1}, annotations)).returncode == 0
    assert guarded.cluster.node_of("device", team) == MIG


@trusted_and_not
@pytest.mark.parametrize("kind", CONTROLLED)
def test_the_pods_of_every_workload_land_in_their_pool(
    guarded: Guard, team: str, kind: str, annotations: dict[str, str], node: str
) -> None:
    cluster = guarded.cluster
    asked = workload(kind, "made", team, template(ONE, annotations))
    if kind == "DaemonSet":
        # Its controller looks only at nodes that the template itself selects and tolerates.
        asked["spec"]["template"]["spec"] |= daemon(node)
    applied = cluster.apply(asked)
    assert applied.returncode == 0, applied.stderr
    if kind == "CronJob":
        cluster.do("create", "job", "now", "--from=cronjob/made", f"--namespace={team}")
    cluster.wait_until(f"a pod of the {kind} is bound", lambda: bound(cluster, team) != [])
    assert set(bound(cluster, team)) == {node}
    kept = cluster.get(kind, "made", f"--namespace={team}")
    kept_spec = kept["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else kept["spec"]
    spec: dict[str, Any] = kept_spec["template"]["spec"]
    assert kind == "DaemonSet" or spec.keys().isdisjoint({"nodeSelector", "affinity", "tolerations"})
    assert "env" not in spec["containers"][0]


def daemon(node: str) -> Object:
    pool = {SHARED: "shared", EXCLUSIVE: "exclusive"}[node]
    return {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"key": "slicewarden.dev/pool", "operator": "Equal", "value": pool, "effect": "NoSchedule"}],
    }


def test_rollouts_end_and_jobs_complete(guarded: Guard, team: str) -> None:
    """The controllers see of the pods what they need to: rollouts end, and Jobs complete."""
    cluster, here = guarded.cluster, f"--namespace={team}"
    made = [
        workload(kind, kind.lower(), team, template(ONE, app=kind)) for kind in ("Deployment", "StatefulSet", "Job")
    ]
    assert cluster.apply(*made).returncode == 0
    cluster.do("rollout", "status", "deployment/deployment", "--timeout=300s", here)
    cluster.do("rollout", "status", "statefulset/statefulset", "--timeout=300s", here)
    cluster.do("wait", "--for=condition=Complete", "job/job", "--timeout=300s", here)
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}}
    cluster.do("patch", "deployment/deployment", f"--patch={json.dumps(image)}", here)
    cluster.do("rollout", "status", "deployment/deployment", "--timeout=300s", here)
    assert set(bound(cluster, team)) == {EXCLUSIVE}


def test_without_a_gpu_nothing_is_changed(guarded: Guard, strangers: str) -> None:
    cluster = guarded.cluster
    assert cluster.apply(plain(pod("web", strangers))).returncode == 0
    cluster.wait_until("the pod is bound", lambda: bound(cluster, strangers) != [])
    (stored,) = pods(cluster, strangers)
    assert "nodeSelector" not in stored["spec"]
    assert not set(bound(cluster, strangers)) & {SHARED, RENAMED, EXCLUSIVE, MIG}
    assert guarded.asked(strangers) == []


def test_a_trusted_pod_waits_while_every_shared_node_is_full(guarded: Guard, team: str) -> None:
    """Five where four fit: one stays Pending, though eight cards stand idle beside it, until there is room."""
    cluster = guarded.cluster
    assert cluster.apply(*(pod(f"tenant-{n}", team, annotations=TRUSTED) for n in range(5))).returncode == 0
    cluster.wait_until("one fits nowhere", lambda: unschedulable(cluster, team) != [])
    cluster.wait_until("the others are bound", lambda: len(bound(cluster, team)) == 4)
    assert set(bound(cluster, team)) == {SHARED}
    assert "Insufficient nvidia.com/gpu" in unschedulable(cluster, team)[0]
    waiting = next(each["metadata"]["name"] for each in pods(cluster, team) if "nodeName" not in each["spec"])
    events = f"--field-selector=involvedObject.name={waiting},reason=FailedScheduling"
    assert eventually(lambda: cluster.get("events", events, f"--namespace={team}")["items"] != [])
    leaving = next(each["metadata"]["name"] for each in pods(cluster, team) if "nodeName" in each["spec"])
    cluster.do("delete", "pod", leaving, f"--namespace={team}")
    assert cluster.node_of(waiting, team) == SHARED


def test_an_untrusted_pod_waits_while_every_exclusive_node_is_full(guarded: Guard, team: str) -> None:
    """Nine where eight fit, while slices stand idle."""
    cluster = guarded.cluster
    assert cluster.apply(pod("large", team, {"nvidia.com/gpu": 8}), pod("small", team)).returncode == 0
    cluster.wait_until("one fits nowhere", lambda: unschedulable(cluster, team) != [])
    cluster.wait_until("the other is bound", lambda: bound(cluster, team) != [])
    assert bound(cluster, team) == [EXCLUSIVE]
    assert "Insufficient nvidia.com/gpu" in unschedulable(cluster, team)[0]


# What is refused, and who hears of it


def test_two_slices_are_refused_to_whoever_applies_the_deployment(guarded: Guard, team: str) -> None:
    asked = workload("Deployment", "inference", team, template({"nvidia.com/gpu.shared": 2}, TRUSTED))
    refused = guarded.cluster.apply(asked)
    assert refused.returncode == 1
    assert 'admission webhook "workloads.slicewarden.dev" denied the request: multiple-slices:' in refused.stderr
    assert "2 slices in one pod (2 of nvidia.com/gpu.shared)" in refused.stderr
    assert "ask for 1 in all containers together" in refused.stderr
    assert guarded.cluster.kubectl("get", "deployment", "inference", f"--namespace={team}").returncode == 1


def test_two_slices_are_refused_in_every_kind_of_workload(guarded: Guard, team: str) -> None:
    two = {"nvidia.com/gpu.shared": 2}
    for kind in [*CONTROLLED, "PodTemplate"]:
        refused = guarded.cluster.apply(workload(kind, "two", team, template(two, TRUSTED)))
        assert 'webhook "workloads.slicewarden.dev" denied the request: multiple-slices: ' in refused.stderr, kind
        assert "2 slices in one pod" in refused.stderr, kind


def test_trust_without_a_grant_is_refused(guarded: Guard, strangers: str) -> None:
    for item in (
        pod("sneaky", strangers, annotations=TRUSTED),
        workload("Deployment", "sneaky", strangers, template(ONE, TRUSTED)),
    ):
        refused = guarded.cluster.apply(item)
        assert refused.returncode == 1
        assert "unearned-trust:" in refused.stderr


def test_trust_counts_from_the_moment_that_it_is_granted(guarded: Guard, strangers: str) -> None:
    asks = pod("early", strangers, annotations=TRUSTED)
    assert "unearned-trust:" in guarded.cluster.apply(asks).stderr
    guarded.cluster.do("label", "namespace", strangers, "slicewarden.dev/trust=trusted")
    assert eventually(lambda: guarded.cluster.apply(asks).returncode == 0)


def test_a_denied_controller_reports_the_denial_in_its_events(guarded: Guard, team: str) -> None:
    """A ReplicaSet that was let in while trust was granted makes no more pods once it is withdrawn, and says why."""
    cluster, here = guarded.cluster, f"--namespace={team}"
    assert cluster.apply(workload("ReplicaSet", "old", team, template(ONE, TRUSTED), replicas=0)).returncode == 0
    cluster.do("label", "namespace", team, "slicewarden.dev/trust-")
    asks = json.dumps(pod("told", team, annotations=TRUSTED))

    def answer() -> str:  # for show: a pod that was made before the webhook knew would never be asked about again
        return cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=asks).stderr

    assert eventually(lambda: "unearned-trust:" in answer())
    told = answer()
    cluster.do("scale", "replicaset/old", "--replicas=1", here)
    chosen = "--field-selector=involvedObject.name=old,reason=FailedCreate"

    def said() -> list[str]:
        return [event["message"] for event in cluster.get("events", chosen, here)["items"]]

    assert eventually(lambda: said() != [])
    reason = 'admission webhook "pods.slicewarden.dev" denied the request: unearned-trust: '
    (message,) = set(said())
    assert reason in message
    assert told.partition(reason)[2].strip() == message.partition(reason)[2].strip()
    cluster.do("label", "namespace", team, "slicewarden.dev/trust=trusted")
    cluster.wait_until("the pod is made after all", lambda: bound(cluster, team) == [SHARED])


def test_an_unsteered_pod_cannot_exist(guarded: Guard, strangers: str) -> None:
    """Without the mutating half, nothing is stored that it would have steered."""
    cluster = guarded.cluster
    cluster.do("delete", "mutatingwebhookconfiguration", "slicewarden")
    try:
        asked = json.dumps(pod("stray", strangers))
        create = ("create", "--dry-run=server", "--filename=-")
        assert eventually(lambda: "unsteered-pod:" in cluster.kubectl(*create, stdin=asked).stderr)
    finally:
        guarded.register()
