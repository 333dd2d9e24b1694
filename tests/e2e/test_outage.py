"""While the webhook cannot be asked: who is stopped, who is not, and how to get out of it."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.conftest import granted, spaces
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.guard import COMMANDS, Guard
from tests.e2e.neighbour import answering
from tests.e2e.objects import ONE, TRUSTED, Object, config_map, plain, pod, template, workload

SHARING = "version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n"
FAILED = 'failed calling webhook "pods.slicewarden.dev"'


class Outage(NamedTuple):
    """The webhook is dead; in the namespace pods `old` and `plain` and a ReplicaSet were made before that."""

    cluster: Cluster
    namespace: str


@pytest.fixture(scope="module")
def outage(guarded: Guard) -> Iterator[Outage]:
    cluster = guarded.cluster
    making = spaces(cluster)
    namespace = granted(guarded, next(making)(TRUSTED))
    replicas = workload("ReplicaSet", "waiting", namespace, template(ONE, app="waiting"), replicas=0)
    made = cluster.apply(pod("old", namespace), plain(pod("plain", namespace)), replicas)
    assert made.returncode == 0, made.stderr
    cluster.node_of("old", namespace)
    guarded.stop()
    yield Outage(cluster, namespace)
    next(making, None)


def test_pods_without_gpus_are_created_while_the_webhook_is_down(outage: Outage) -> None:
    cluster, namespace = outage
    made = [
        workload(kind, kind.lower(), namespace, template(app=kind)) for kind in ("Deployment", "StatefulSet", "Job")
    ]
    applied = cluster.apply(plain(pod("web", namespace)), *made)
    assert (applied.returncode, applied.stderr) == (0, "")
    cluster.do("rollout", "status", "deployment/deployment", "--timeout=300s", f"--namespace={namespace}")
    cluster.do("rollout", "status", "statefulset/statefulset", "--timeout=300s", f"--namespace={namespace}")
    cluster.do("wait", "--for=condition=Complete", "job/job", "--timeout=300s", f"--namespace={namespace}")
    cluster.do("label", "pod", "plain", "tier=test", f"--namespace={namespace}")
    settings = config_map("settings", namespace, {"a": "b"})
    assert cluster.apply(settings).returncode == 0


def test_pods_with_gpus_are_refused_while_the_webhook_is_down(outage: Outage) -> None:
    cluster, namespace = outage
    for item, hook in (
        (pod("new", namespace), "pods"),
        (pod("new", namespace, annotations=TRUSTED), "pods"),
        (workload("Deployment", "new", namespace, template(ONE)), "workloads"),
        (workload("CronJob", "new", namespace, template(ONE)), "workloads"),
        (config_map("new", namespace, {"any": SHARING}), "configmaps"),
    ):
        refused = cluster.apply(item)
        assert refused.returncode == 1
        assert f'failed calling webhook "{hook}.slicewarden.dev"' in refused.stderr
    old = cluster.kubectl("label", "pod", "old", "tier=test", f"--namespace={namespace}")
    assert FAILED in old.stderr


def test_controllers_report_the_outage_in_their_events(outage: Outage) -> None:
    cluster, namespace = outage
    cluster.do("scale", "replicaset/waiting", "--replicas=1", f"--namespace={namespace}")
    chosen = "--field-selector=involvedObject.name=waiting,reason=FailedCreate"

    def said() -> list[str]:
        return [each["message"] for each in cluster.get("events", chosen, f"--namespace={namespace}")["items"]]

    assert eventually(lambda: said() != [])
    assert FAILED in said()[0]


@pytest.mark.parametrize("namespace", ["kube-system", "slicewarden-system"])
def test_excluded_namespaces_work_during_an_outage(outage: Outage, namespace: str) -> None:
    """Not even GPU pods are held up there: what brings the webhook back is not to wait for it."""
    name = f"outage-{outage.namespace}"
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    made = template(ONE, app=name)
    made["spec"]["containers"][0]["securityContext"] = restricted
    single = {**pod(name, namespace), "spec": made["spec"]}
    cluster, here = outage.cluster, f"--namespace={namespace}"
    assert eventually(lambda: cluster.kubectl("get", "serviceaccount", "default", here).returncode == 0)
    objects = [single, workload("Deployment", name, namespace, made), config_map(name, namespace, {"any": SHARING})]
    applied = cluster.apply(*objects)
    try:
        assert (applied.returncode, applied.stderr) == (0, "")
        assert eventually(lambda: len(cluster.get("pods", f"--selector=app={name}", here)["items"]) == 1)
        cluster.do("label", "pod", name, "tier=test", here)
    finally:
        cluster.do("delete", f"deployment/{name}", f"pod/{name}", f"configmap/{name}", here, "--ignore-not-found")


def test_nodes_leases_and_status_updates_work_during_an_outage(outage: Outage) -> None:
    cluster, namespace = outage
    here = f"--namespace={namespace}"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "a"}}
    assert cluster.apply({**lease, "metadata": {"name": "held", "namespace": namespace}}).returncode == 0
    condition = json.dumps({"status": {"conditions": [{"type": "example.com/Seen", "status": "True"}]}})
    cluster.do("patch", "node", "t4-shared", "--subresource=status", f"--patch={condition}")
    cluster.do("annotate", "node", "t4-shared", "example.com/seen=yes", "--overwrite")
    cluster.do("patch", "pod", "old", "--subresource=status", f"--patch={condition}", here)
    cluster.do("scale", "replicaset/waiting", "--replicas=0", here)
    cluster.do("create", "namespace", f"{namespace}-b")
    cluster.do("delete", "namespace", f"{namespace}-b", "--wait=false")


def test_gpu_pods_can_be_evicted_and_deleted_during_an_outage(outage: Outage) -> None:
    cluster, namespace = outage
    here = f"--namespace={namespace}"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "old", "namespace": namespace}}
    raw = f"--raw=/api/v1/namespaces/{namespace}/pods/old/eviction"
    cluster.do("create", raw, "--filename=-", stdin=json.dumps(eviction))
    assert eventually(lambda: cluster.kubectl("get", "pod", "old", here).returncode == 1)


def test_one_command_ends_the_effects_of_an_outage(outage: Outage, guarded: Guard) -> None:
    """The command of the manifests' README; after it the webhook comes back, and so does its registration."""
    cluster, namespace = outage
    assert (
        "kubectl delete mutatingwebhookconfigurations,validatingwebhookconfigurations"
        " -l app.kubernetes.io/part-of=slicewarden"
    ) in COMMANDS
    refused = cluster.apply(pod("let", namespace))
    assert FAILED in refused.stderr
    guarded.unregister()
    applied = cluster.apply(pod("let", namespace))
    assert (applied.returncode, applied.stderr) == (0, "")
    assert "nodeSelector" not in cluster.get("pod", "let", f"--namespace={namespace}")["spec"]


def test_a_held_up_replica_set_continues_when_the_webhook_returns(outage: Outage, guarded: Guard) -> None:
    """A ReplicaSet that was held up goes on by itself."""
    cluster, namespace = outage
    here = f"--namespace={namespace}"
    guarded.install(*guarded.registration())
    probe = json.dumps(pod("probe", namespace))
    create = ("create", "--dry-run=server", "--filename=-")
    assert eventually(lambda: FAILED in cluster.kubectl(*create, stdin=probe).stderr)
    cluster.do("scale", "replicaset/waiting", "--replicas=1", here)
    chosen = "--field-selector=involvedObject.name=waiting,reason=FailedCreate"
    assert eventually(lambda: cluster.get("events", chosen, here)["items"] != [])
    guarded.start()
    granted(guarded, namespace)
    cluster.wait_until("the pod is made", lambda: cluster.get("pods", "--selector=app=waiting", here)["items"] != [])
    name = cluster.get("pods", "--selector=app=waiting", here)["items"][0]["metadata"]["name"]
    assert cluster.node_of(name, namespace) == "a100-exclusive"


# Slow, not dead


@pytest.fixture
def slow(guarded: Guard, strangers: str, tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[list[str]]:
    """Register a server in its place that takes what it is asked and does not answer; yield the names in a namespace.

    Controllers may go on with what other tests left in theirs.
    """
    asked: list[str] = []
    end = threading.Event()

    def answer(review: Object) -> Object:
        if review["request"].get("namespace") == strangers:
            asked.append(review["request"]["name"])
        end.wait()
        return {"allowed": True}

    with answering(tmp_path, answer, pytestconfig.getoption("webhook_host")) as (url, bundle):
        guarded.install(*guarded.registration(url, bundle))
        try:
            yield asked
        finally:
            end.set()
            guarded.register()


def test_a_slow_webhook_delays_only_gpu_pods_and_at_most_until_the_timeout(
    guarded: Guard, strangers: str, slow: list[str]
) -> None:
    cluster = guarded.cluster
    probe = json.dumps(pod("probe", strangers))
    create = ("create", "--dry-run=server", "--filename=-")

    def both_are_slow() -> bool:  # each half comes into force at its own time
        slow.clear()
        return "timeout" in cluster.kubectl(*create, stdin=probe).stderr and slow == ["probe", "probe"]

    assert eventually(both_are_slow)
    # The seconds of the manifests are what the API server waits: it says so, and asked both halves in turn.
    slow.clear()
    refused = cluster.apply(pod("held", strangers))
    assert refused.returncode == 1
    assert FAILED in refused.stderr
    assert "/validate?timeout=5s" in refused.stderr
    assert "deadline exceeded" in refused.stderr
    assert slow == ["held", "held"]
    applied = cluster.apply(plain(pod("free", strangers)), workload("Deployment", "free", strangers, template()))
    assert (applied.returncode, applied.stderr) == (0, "")
    cluster.do("rollout", "status", "deployment/free", "--timeout=300s", f"--namespace={strangers}")
    assert slow == ["held", "held"]
