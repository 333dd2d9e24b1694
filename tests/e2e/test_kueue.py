"""Kueue itself beside the webhook: what the lint of flavours says is what happens to jobs, and both judge one pod."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import queueing
from tests.e2e.conftest import Space
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.guard import Guard, policy_of
from tests.e2e.objects import TRUSTED, Object, pod, template, workload
from tests.e2e.queueing import Kueue
from tests.support.go_programs import Missing

GPU, QUEUE = "nvidia.com/gpu", "kueue.x-k8s.io/queue-name"
STRATEGY = "nvidia.com/gpu.sharing-strategy"
FLAVORS: dict[str, Object] = {
    "slices": {"nodeLabels": {STRATEGY: "time-slicing"}},
    "whole": {"nodeLabels": {STRATEGY: "none"}},
    "any": {},
    "tainted": {
        "nodeLabels": {STRATEGY: "time-slicing"},
        "nodeTaints": [{"key": "slicewarden.dev/pool", "value": "shared", "effect": "NoSchedule"}],
    },
}
"""A ClusterQueue and a LocalQueue is made for each flavour, of its name."""


def queue_objects(namespace: str) -> list[Object]:
    made: list[Object] = []
    for name, spec in FLAVORS.items():
        made.append(of_kueue("ResourceFlavor", name, spec))
        quota = {"name": name, "resources": [{"name": each, "nominalQuota": 4} for each in (GPU, "cpu")]}
        groups = [{"coveredResources": [GPU, "cpu"], "flavors": [quota]}]
        made.append(of_kueue("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups}))
        made.append(of_kueue("LocalQueue", name, {"clusterQueue": name}, namespace))
    return made


def of_kueue(kind: str, name: str, spec: Object, namespace: str | None = None) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


def queued_policy(cluster: Cluster) -> str:
    """The policy of the overlay, whose pool of slices gives them to Kueue's queues alone."""
    return policy_of(cluster).replace("    - name: shared\n", "    - name: shared\n      queue: {kueue: true}\n", 1)


@pytest.fixture(scope="module")
def kueue(programs: Path, guard: Guard) -> Iterator[Kueue]:
    """Kueue, and the webhook by a policy that names its queues."""
    del programs  # a control plane of our own, which reaches Kueue on this machine
    try:
        queueing.program()
        started = Kueue(guard.cluster)
    except Missing as missing:
        pytest.skip(str(missing))
    guard.judge_by(queued_policy(guard.cluster))
    guard.register()
    yield started
    guard.unregister()
    guard.judge_by()
    started.leave()


@pytest.fixture
def vision(kueue: Kueue, guard: Guard, space: Space) -> Iterator[str]:
    """A namespace whose pods may be trusted, with a LocalQueue for each flavour."""
    del kueue
    namespace = granted_in_queue(guard, space(TRUSTED))
    objects = queue_objects(namespace)
    guard.install(*objects)
    assert eventually(lambda: all(active(guard.cluster, name) for name in FLAVORS))
    yield namespace
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    guard.cluster.do("delete", "jobs,pods", "--all", "--wait=true", f"--namespace={namespace}")
    guard.cluster.do("delete", "--wait=false", "--filename=-", stdin=listed)


def granted_in_queue(guard: Guard, namespace: str) -> str:
    """Wait until the webhook has seen that a namespace was granted trust: its pods are asked for a queue alone."""
    asks = json.dumps(pod("probe", namespace, annotations=TRUSTED))

    def known() -> bool:
        made = guard.cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=asks)
        return "unearned-trust" not in made.stderr

    assert eventually(known)
    return namespace


def active(cluster: Cluster, name: str) -> bool:
    conditions = cluster.get("clusterqueue", name).get("status", {}).get("conditions", ())
    return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


def job(name: str, namespace: str, queue: str | None, **annotations: Any) -> Object:
    pods = template({GPU: 1}, annotations or TRUSTED)
    pods["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    made = workload("Job", name, namespace, pods)
    if queue:
        made["metadata"]["labels"] = {QUEUE: queue}
    return made


def admitted(cluster: Cluster, namespace: str, name: str) -> bool:
    """Tell whether Kueue holds quota for a job or a pod."""
    for item in workloads_of(cluster, namespace, name):
        conditions = item.get("status", {}).get("conditions", ())
        return any(each["type"] == "Admitted" and each["status"] == "True" for each in conditions)
    return False


def workloads_of(cluster: Cluster, namespace: str, name: str) -> list[Object]:
    """The Workload that Kueue makes of a job or a pod."""
    items = cluster.get("workloads.kueue.x-k8s.io", f"--namespace={namespace}")["items"]
    return [
        item for item in items if any(owner["name"] == name for owner in item["metadata"].get("ownerReferences", ()))
    ]


def pods_of(cluster: Cluster, namespace: str, name: str) -> list[Object]:
    return list(cluster.get("pods", f"--namespace={namespace}", f"--selector=job-name={name}")["items"])


def nodes_of(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """The nodes of a job's pods, which end as soon as they run."""
    return [each["spec"].get("nodeName", "") for each in pods_of(cluster, namespace, name)]


def logged(cluster: Cluster) -> list[str]:
    return (cluster.folder / "kueue.log").read_text("utf-8", "replace").splitlines()


def linted(cluster: Cluster, folder: Path) -> dict[str, list[str]]:
    """The findings of `slicewarden policy lint` on the flavours that the cluster has, by flavour."""
    kinds = "namespaces,nodes,configmaps,daemonsets,resourceflavors,clusterqueues,localqueues"
    facts, policy = folder / "facts.json", folder / "policy.yaml"
    facts.write_text(cluster.do("get", "--all-namespaces", kinds, "--output=json"), "utf-8")
    policy.write_text(queued_policy(cluster), "utf-8")
    command = [
        sys.executable,
        "-m",
        "webhook",
        "policy",
        "lint",
        str(policy),
        "--facts",
        str(facts),
        "--format",
        "json",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode in (0, 1), said.stderr
    found = [each["message"] for each in json.loads(said.stdout)["problems"] if each["lint"] == "flavor-against-pool"]
    return {name: [text for text in found if f'"{name}"' in text] for name in FLAVORS}


def test_a_flavour_that_agrees_admits_a_job_and_its_pod_runs_in_the_pool(
    kueue: Kueue, vision: str, tmp_path: Path
) -> None:
    """Kueue writes its labels into the template, and the webhook steers the pod: both name the same nodes."""
    cluster = kueue.cluster
    applied = cluster.apply(job("agrees", vision, "slices"))
    assert applied.returncode == 0, applied.stderr
    assert eventually(lambda: admitted(cluster, vision, "agrees") and len(pods_of(cluster, vision, "agrees")) == 1)
    (made,) = pods_of(cluster, vision, "agrees")
    assert made["spec"]["nodeSelector"][STRATEGY] == "time-slicing"
    assert eventually(lambda: nodes_of(cluster, vision, "agrees") == ["t4-shared"])
    assert linted(cluster, tmp_path)["slices"] == []


def test_a_flavour_that_excludes_the_pool_admits_a_job_that_makes_no_pod_as_the_lint_says(
    kueue: Kueue, vision: str, tmp_path: Path
) -> None:
    """Kueue holds quota for it, and cannot start it: with the flavour's labels the webhook refuses its template."""
    cluster = kueue.cluster
    assert cluster.apply(job("excluded", vision, "whole")).returncode == 0
    refused = 'admission webhook \\"workloads.slicewarden.dev\\" denied the request: unsteered-pod: '
    assert eventually(lambda: any(refused in line and vision in line for line in logged(cluster)))
    assert admitted(cluster, vision, "excluded")
    assert cluster.get("job", "excluded", f"--namespace={vision}")["spec"]["suspend"]
    assert pods_of(cluster, vision, "excluded") == []
    (said,) = linted(cluster, tmp_path)["whole"]
    assert f"excludes pool shared: trusted pods of namespace {vision}" in said
    assert "are admitted but get no pods" in said


def test_a_flavour_with_a_taint_that_no_job_tolerates_admits_none_as_the_lint_says(
    kueue: Kueue, vision: str, tmp_path: Path
) -> None:
    """The webhook gives the toleration to pods, and Kueue looks at the job."""
    cluster = kueue.cluster
    assert cluster.apply(job("tainted", vision, "tainted")).returncode == 0
    assert eventually(lambda: "untolerated taint" in told(cluster, vision, "tainted"))
    assert not admitted(cluster, vision, "tainted")
    assert pods_of(cluster, vision, "tainted") == []
    (said,) = linted(cluster, tmp_path)["tainted"]
    assert "so none is admitted" in said


def counted(cluster: Cluster, namespace: str, name: str) -> dict[str, str]:
    """The GPUs of a job that Kueue counts, by the flavour."""
    (own,) = workloads_of(cluster, namespace, name)
    (given,) = own["status"]["admission"]["podSetAssignments"]
    return {given["flavors"][GPU]: given["resourceUsage"][GPU]}


def told(cluster: Cluster, namespace: str, name: str) -> str:
    """The words of Kueue on a job's workload."""
    own = workloads_of(cluster, namespace, name)
    return "\n".join(each["message"] for item in own for each in item.get("status", {}).get("conditions", ()))


def test_a_flavour_of_all_nodes_counts_a_slice_as_a_card_as_the_lint_says(
    kueue: Kueue, vision: str, tmp_path: Path
) -> None:
    cluster = kueue.cluster
    assert cluster.apply(job("slice", vision, "any"), job("card", vision, "any", note="none")).returncode == 0
    assert eventually(lambda: nodes_of(cluster, vision, "slice") == ["t4-shared"])
    assert eventually(lambda: nodes_of(cluster, vision, "card") == ["a100-exclusive"])
    assert [counted(cluster, vision, name) for name in ("slice", "card")] == [{"any": "1"}, {"any": "1"}]
    assert any("counts a slice as a card" in said for said in linted(cluster, tmp_path)["any"])


def test_a_job_without_a_queue_is_refused_before_kueue_sees_it(kueue: Kueue, vision: str) -> None:
    made = kueue.cluster.apply(job("unqueued", vision, None))
    assert made.returncode != 0
    assert "unqueued-pod: " in made.stderr
    assert f"the Job has no label {QUEUE}; add it with the name of your queue" in made.stderr


def test_a_bare_pod_waits_at_kueues_gate_and_is_held_to_the_pool_when_it_is_let_in(kueue: Kueue, vision: str) -> None:
    cluster, bare = kueue.cluster, pod("bare", vision, annotations=TRUSTED)
    bare["metadata"]["labels"] |= {QUEUE: "slices"}
    applied = cluster.apply(bare)
    assert applied.returncode == 0, applied.stderr
    assert cluster.node_of("bare", vision) == "t4-shared"
    stored = cluster.get("pod", "bare", f"--namespace={vision}")
    assert stored["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
    assert stored["spec"]["nodeSelector"][STRATEGY] == "time-slicing"
    assert not stored["spec"].get("schedulingGates")


def test_a_bare_pod_with_the_labels_that_kueue_writes_alone_is_refused(kueue: Kueue, vision: str) -> None:
    copied = pod("copied", vision, annotations=TRUSTED)
    copied["metadata"]["labels"] |= {"kueue.x-k8s.io/local-queue-name": "slices"}
    made = kueue.cluster.apply(copied)
    assert made.returncode != 0
    assert "unqueued-pod: " in made.stderr
