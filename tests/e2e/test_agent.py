"""The agent's part in a real cluster: what it reads, writes and evicts, by its components' powers and no others."""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.e2e import access, control_plane
from tests.e2e.control_plane import PATIENCE, Cluster, User, eventually
from tests.e2e.guard import MANIFESTS
from tests.e2e.objects import Object, pod
from tests.support.card.state import LOST, State
from tests.support.manifests import powers
from webhook.agent.actions import DONE, WAITS
from webhook.agent.agent import REPORTER
from webhook.agent.limits import dead, enforce, taint
from webhook.agent.observe.node import DEAD_CARDS, NodeWatch
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.view import NodeContainer
from webhook.cli import inputs
from webhook.cluster.client import Api, connect
from webhook.cluster.events import EventNote, Events, Owner
from webhook.policy.model import REPORT

ACCOUNT = User("system:serviceaccount:slicewarden-node:slicewarden-node")
PARTS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
RIGHTS = (("list", "pods"), ("list", "nodes"), ("patch", "events.events.k8s.io"))
"""One of each role."""
ID = "ab" * 32
NODE = "t4-shared"
QUICK = "; ".join(
    (
        "import sys",
        "from webhook.agent import agent",
        "from webhook.agent.limits import taint",
        "agent.AGAIN = taint.AGAIN = 1",
        "taint.HOLD = 2",
    )
)
"""A second for ten, and two for a minute."""
COMMAND = (sys.executable, "-c", f"{QUICK}; from webhook.cli.main import main; sys.exit(main())", "agent")


@pytest.fixture(scope="module")
def cluster(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without the webhook, with the agent's account and two pods on a shared node."""
    folder = tmp_path_factory.mktemp("agent")
    rules = [{"level": "Metadata", "users": [ACCOUNT.name], "omitStages": ["RequestReceived"]}, {"level": "None"}]
    (folder / "audit.json").write_text(
        json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}), "utf-8"
    )
    flags = (f"--audit-policy-file={folder / 'audit.json'}", f"--audit-log-path={folder / 'audit.log'}")
    with control_plane.running(folder, programs, flags=flags) as started:
        started.add_nodes()
        started.add_namespace("red")
        chosen = [pod(name, "red", {"nvidia.com/gpu": 1}, nodeName=NODE) for name in ("greedy", "other")]
        chosen.append(pod("elsewhere", "red", {}, nodeName="cpu"))
        assert started.apply(*chosen).returncode == 0
        for name in ("greedy", "other", "elsewhere"):
            started.do("wait", "--for=condition=Ready", f"pod/{name}", "--namespace=red", "--timeout=300s")
        status = {"status": {"containerStatuses": [{**RUNNING, "containerID": f"containerd://{ID}"}]}}
        started.do("patch", "pod", "greedy", "--namespace=red", "--subresource=status", f"--patch={json.dumps(status)}")
        started.apply(
            *(each for each in rendered(started) if each["kind"] in PARTS and "node" in each["metadata"]["name"])
        )
        for verb, resource in RIGHTS:
            access.allowed(started, ACCOUNT, verb, resource)
        yield started


RUNNING = {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}


def rendered(cluster: Cluster) -> list[Object]:
    """All components of the agent on an overlay."""
    folder = cluster.folder / "with-agent"
    folder.mkdir()
    names = ("agent", "agent-acts", "agent-taints")
    ways = [os.path.relpath(MANIFESTS / "components" / name, folder.resolve()) for name in names]
    base = os.path.relpath(MANIFESTS / "controller", folder.resolve())
    (folder / "kustomization.yaml").write_text(json.dumps({"resources": [base], "components": ways}))
    made = [*yaml.safe_load_all(cluster.do("kustomize", "--load-restrictor=LoadRestrictionsNone", folder))]
    return sorted(made, key=lambda each: bool(each["kind"] != "Namespace"))


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    return connect(str(cluster.kubeconfig_of_account("slicewarden-node", "slicewarden-node")))


def known(cluster: Cluster, name: str) -> NodeContainer:
    return NodeContainer(
        ContainerName("red", name, "c"), str(cluster.get("pod", name, "--namespace=red")["metadata"]["uid"])
    )


def test_its_account_reads_the_pods_of_its_node_and_knows_what_they_were_admitted_with(
    api: Api, tmp_path: Path
) -> None:
    watched = NodeWatch(NODE, api, inputs.load_sample(), lambda _: None, tmp_path)
    watched.start()
    assert watched.settled(PATIENCE)
    try:
        assert eventually(lambda: ID in watched.containers())
        found = watched.containers()
        assert {each.name.pod for each in found.values()} <= {"greedy", "other"}
        assert found[ID].name == ContainerName("red", "greedy", "c")
        assert found[ID].admitted.requests is True
        assert found[ID].admitted.allowance == (15360 - 308) // 4
    finally:
        watched.stop()


def test_its_account_may_do_nothing_else(cluster: Cluster) -> None:
    allowed = {("list", "pods"), ("watch", "pods"), ("create", "pods/eviction"), ("list", "nodes"), ("patch", "events")}
    allowed |= {("patch", "nodes")}
    for verb, resource in (
        *allowed,
        *(("get", "secrets"), ("list", "secrets"), ("create", "pods"), ("delete", "pods"), ("patch", "pods")),
        *(("update", "nodes"), ("patch", "nodes/status"), ("get", "configmaps"), ("create", "pods/exec")),
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
            writer.add(EventNote(owner, why, dead.REASON, REPORT, REPORTER))
    try:
        for namespace, kind in (("default", "Node"), ("red", "Pod")):
            assert eventually(lambda at=namespace, of=kind: told(cluster, at, of)), logged  # type: ignore[misc]
        # The second may be written a second after the first, and what waits when the writer stops is not written.
        assert eventually(lambda: counted(cluster) == 2), logged
    finally:
        writer.stop()
    anew = Events(api, logged.append)  # of an agent that was started anew: the Event is there, and becomes a series
    anew.start()
    anew.add(EventNote(Owner("v1", "Pod", "red", "greedy", uid), why, dead.REASON, REPORT, REPORTER))
    try:
        assert eventually(lambda: counted(cluster) == 3), logged
    finally:
        anew.stop()
    assert not logged


def counted(cluster: Cluster) -> int:
    """The number of Events at the pod."""
    items = cluster.get("events.events.k8s.io", "--namespace=red")["items"]
    (series,) = [each.get("series") for each in items if each["reason"] == dead.REASON]
    return int(series["count"]) if series else 1


def told(cluster: Cluster, namespace: str, kind: str) -> bool:
    items = cluster.get("events.events.k8s.io", f"--namespace={namespace}")["items"]
    return [each["regarding"]["kind"] for each in items if each["reason"] == dead.REASON] == [kind]


def test_it_evicts_the_pod_that_it_saw_and_waits_while_a_budget_forbids_it(cluster: Cluster, api: Api) -> None:
    seen = known(cluster, "greedy")
    assert enforce.evict(api, seen._replace(uid="11111111-2222-3333-4444-555555555555")) == "HTTP 409"
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "red"}}
    selector = {"matchLabels": {"app": "a"}}
    assert cluster.apply({**budget, "spec": {"minAvailable": 3, "selector": selector}}).returncode == 0
    assert eventually(lambda: enforce.evict(api, known(cluster, "other")) == WAITS)
    cluster.do("delete", "poddisruptionbudget", "b", "--namespace=red")
    assert enforce.evict(api, seen) == DONE
    assert eventually(lambda: cluster.kubectl("get", "pod", "greedy", "--namespace=red").returncode != 0)
    assert cluster.kubectl("get", "pod", "other", "--namespace=red").returncode == 0
    assert enforce.evict(api, seen) == DONE  # it is gone


def taints(cluster: Cluster) -> set[str]:
    """The keys of the node's taints."""
    return {each["key"] for each in cluster.get("node", NODE)["spec"].get("taints", [])}


def looked(port: int) -> bool:
    """Tell whether the agent has looked at its card."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return b"slicewarden_node_look_seconds" in answer.read()
    except OSError:
        return False


@contextmanager
def running(cluster: Cluster, card: State, policy: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The agent as a process, with its account's powers."""
    kubeconfig = cluster.kubeconfig_of_account("slicewarden-node", "slicewarden-node")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    at = f"127.0.0.1:{port}"
    given = ("--node", NODE, "--kubeconfig", str(kubeconfig), "--policy", str(policy), "--listen", at)
    log = (cluster.folder / "agent.log").open("ab")
    process = subprocess.Popen(
        [*COMMAND, *given, "--watch-only", "--taint"], env=card.environment, stdout=log, stderr=log
    )
    try:
        assert eventually(lambda: looked(port))
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


def test_a_dead_card_taints_its_node_until_it_is_back_and_survives_the_agents_death(
    cluster: Cluster, tmp_path: Path
) -> None:
    value = yaml.safe_load((MANIFESTS.parent / "policies" / "sample.yaml").read_text("utf-8"))
    value["spec"]["pools"][0]["node"] = {"dead": {"action": "Taint"}}
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(value))
    card = State(tmp_path / "card")
    before = taints(cluster)
    with running(cluster, card, policy):
        cluster.do("taint", "node", NODE, "team=red:NoSchedule")
        assert taint.KEY not in taints(cluster)
        card.set(fault=LOST)
        assert eventually(lambda: taints(cluster) == {*before, "team", taint.KEY}), taints(cluster)
    note = json.loads(cluster.get("node", NODE)["metadata"]["annotations"][DEAD_CARDS])
    assert [*note["cards"].values()] == [dead.LOST]
    with running(cluster, card, policy):
        assert not eventually(lambda: taint.KEY not in taints(cluster), 6)
        cluster.do("taint", "node", NODE, "team-", "other=blue:NoSchedule")
        card.set(fault=0)
        assert eventually(lambda: taints(cluster) == {*before, "other"}), taints(cluster)
        assert DEAD_CARDS not in cluster.get("node", NODE)["metadata"]["annotations"]
        cluster.do("taint", "node", NODE, "other-")


def test_its_rights_are_exactly_what_it_used(cluster: Cluster) -> None:
    """By the API server's own audit log; `can-i` of the tests before is not asked by its account."""
    used = set()
    for line in (cluster.folder.parent / "audit.log").read_text("utf-8").splitlines():
        event = json.loads(line)
        at = event.get("objectRef", {})
        if event["user"]["username"] == ACCOUNT.name and not event.get("impersonatedUser") and "resource" in at:
            below = f"/{at['subresource']}" if "subresource" in at else ""
            used.add((at.get("apiGroup", ""), f"{at['resource']}{below}", event["verb"]))
    roles = [
        each for each in cluster.get("clusterroles")["items"] if each["metadata"]["name"].startswith("slicewarden-node")
    ]
    assert used == set().union(*map(powers, roles))
