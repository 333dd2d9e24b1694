"""The agent's part in a real cluster: what it reads, writes and evicts, by its components' powers and no others."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import control_plane
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.guard import MANIFESTS
from tests.e2e.objects import Object, pod
from webhook.agent import dead, deeds
from webhook.agent.agent import REPORTER
from webhook.agent.node import Node
from webhook.agent.pods import Name
from webhook.agent.view import Known
from webhook.cli import inputs
from webhook.cluster.client import Api, connect
from webhook.cluster.events import Denial, Events, Owner
from webhook.policy.model import TELL

ACCOUNT = User("system:serviceaccount:slicewarden-node:slicewarden-node")
PARTS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
ID = "ab" * 32
NODE = "t4-shared"


@pytest.fixture(scope="module")
def cluster(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without the webhook, with the agent's account and two pods on a shared node."""
    with control_plane.running(tmp_path_factory.mktemp("agent"), programs) as started:
        started.add_nodes()
        started.add_namespace("red")
        chosen = [pod(name, "red", {"nvidia.com/gpu": 1}, nodeName=NODE) for name in ("greedy", "other")]
        chosen.append(pod("elsewhere", "red", {}, nodeName="cpu"))
        assert started.apply(*chosen).returncode == 0
        for name in ("greedy", "other", "elsewhere"):
            started.do("wait", "--for=condition=Ready", f"pod/{name}", "--namespace=red", "--timeout=60s")
        status = {"status": {"containerStatuses": [{**RUNNING, "containerID": f"containerd://{ID}"}]}}
        started.do("patch", "pod", "greedy", "--namespace=red", "--subresource=status", f"--patch={json.dumps(status)}")
        started.apply(
            *(each for each in rendered(started) if each["kind"] in PARTS and "node" in each["metadata"]["name"])
        )
        yield started


RUNNING = {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}


def rendered(cluster: Cluster) -> list[Object]:
    """Both components on an overlay."""
    folder = cluster.folder / "with-agent"
    folder.mkdir()
    ways = [
        os.path.relpath(MANIFESTS / name, folder.resolve()) for name in ("components/agent", "components/agent-acts")
    ]
    base = os.path.relpath(MANIFESTS / "overlays/enforce", folder.resolve())
    (folder / "kustomization.yaml").write_text(json.dumps({"resources": [base], "components": ways}))
    made = [*yaml.safe_load_all(cluster.do("kustomize", "--load-restrictor=LoadRestrictionsNone", folder))]
    return sorted(made, key=lambda each: bool(each["kind"] != "Namespace"))


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    return connect(str(cluster.kubeconfig_of_account("slicewarden-node", "slicewarden-node")))


def known(cluster: Cluster, name: str) -> Known:
    return Known(Name("red", name, "c"), str(cluster.get("pod", name, "--namespace=red")["metadata"]["uid"]))


def test_its_account_reads_the_pods_of_its_node_and_knows_what_they_were_admitted_with(
    api: Api, tmp_path: Path
) -> None:
    watched = Node(NODE, api, inputs.load_sample(), lambda _: None, tmp_path)
    watched.start()
    assert watched.settled(30)
    try:
        assert eventually(lambda: ID in watched.known())
        found = watched.known()
        assert {each.name.pod for each in found.values()} <= {"greedy", "other"}
        assert found[ID].name == Name("red", "greedy", "c")
        assert found[ID].standing.asks is True
        assert found[ID].standing.allowance == (15360 - 308) // 4
    finally:
        watched.stop()


def test_its_account_may_do_nothing_else(cluster: Cluster) -> None:
    allowed = {("list", "pods"), ("watch", "pods"), ("create", "pods/eviction"), ("list", "nodes"), ("patch", "events")}
    for verb, resource in (
        *allowed,
        *(("get", "secrets"), ("list", "secrets"), ("create", "pods"), ("delete", "pods"), ("patch", "pods")),
        *(("patch", "nodes"), ("update", "nodes/status"), ("get", "configmaps"), ("create", "pods/exec")),
    ):
        group = "events.events.k8s.io" if resource == "events" else resource
        name, _, below = group.partition("/")
        options = [f"--subresource={below}"] if below else []
        asked = cluster.kubectl("auth", "can-i", verb, name, *options, "--all-namespaces", user=ACCOUNT)
        assert asked.stdout.strip() == ("yes" if (verb, resource) in allowed else "no"), (verb, resource)


def test_its_events_are_taken_for_a_pod_and_for_a_node(cluster: Cluster, api: Api) -> None:
    logged: list[object] = []
    writer = Events(api, logged.append)
    writer.start()
    uid = known(cluster, "greedy").uid
    why = dead.note("GPU-0", "XID 79")
    for owner in (Owner("v1", "Node", "", NODE, NODE), Owner("v1", "Pod", "red", "greedy", uid)):
        for _ in range(2):
            writer.add(Denial(owner, why, dead.REASON, TELL, REPORTER))
    try:
        for namespace, kind in (("default", "Node"), ("red", "Pod")):
            assert eventually(lambda at=namespace, of=kind: told(cluster, at, of)), logged  # type: ignore[misc]
    finally:
        writer.stop()
    assert not logged


def told(cluster: Cluster, namespace: str, kind: str) -> bool:
    items = cluster.get("events.events.k8s.io", f"--namespace={namespace}")["items"]
    return [each["regarding"]["kind"] for each in items if each["reason"] == dead.REASON] == [kind]


def test_it_evicts_the_pod_that_it_saw_and_waits_while_a_budget_forbids_it(cluster: Cluster, api: Api) -> None:
    seen = known(cluster, "greedy")
    assert deeds.evict(api, seen._replace(uid="11111111-2222-3333-4444-555555555555")) == "HTTP 409"
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "red"}}
    selector = {"matchLabels": {"app": "a"}}
    assert cluster.apply({**budget, "spec": {"minAvailable": 3, "selector": selector}}).returncode == 0
    assert eventually(lambda: deeds.evict(api, known(cluster, "other")) == deeds.WAITS)
    cluster.do("delete", "poddisruptionbudget", "b", "--namespace=red")
    assert deeds.evict(api, seen) == deeds.DONE
    assert eventually(lambda: cluster.kubectl("get", "pod", "greedy", "--namespace=red").returncode != 0)
    assert cluster.kubectl("get", "pod", "other", "--namespace=red").returncode == 0
    assert deeds.evict(api, seen) == deeds.DONE  # it is gone
