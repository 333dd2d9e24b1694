"""`slicewarden prove --run` on a real API server and scheduler: with its own rights alone, and nothing left behind.

The nodes are KWOK's. In place of their kubelets a thread ends each pod, with the report of a probe that saw what
NVIDIA's runtime would give it.
"""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.e2e.access import allowed
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.guard import MUTATE, Guard, policy_of
from tests.e2e.objects import TRUSTED, pod
from tests.proving.nodes import ended, report, seen
from tests.support import policies
from tests.support.policies import RULES
from tests.support.records import SAME
from webhook.cluster import client
from webhook.proving import calls, changes
from webhook.proving.probes import ProbeTarget
from webhook.proving.proof import PATCH, DryRun, Outcome
from webhook.proving.running import INSTANCE, MANAGED_BY, MANAGER, UNTIL
from webhook.proving.ways import CHANGES, WAYS, ChangeCall, GPUWay

PROVER = User("prover")
GPU = "nvidia.com/gpu"
OURS = f"{MANAGED_BY}={MANAGER}"


@contextmanager
def kubelets(cluster: Cluster, namespace: str) -> Iterator[None]:
    """End the pods of runs in a namespace as soon as they are on a node."""
    done, api = threading.Event(), client.connect(str(cluster.kubeconfig()))
    path = f"/api/v1/namespaces/{namespace}/pods"

    def end() -> None:
        while not done.wait(0.05):
            for each in client.ask(api, path, {"labelSelector": OURS})["items"]:
                if each["spec"].get("nodeName") and each["status"].get("phase") == "Running":
                    status = {"status": ended(report(seen(each)))}
                    try:
                        name = each["metadata"]["name"]
                        client.ask(api, f"{path}/{name}/status", method="PATCH", body=status, patch=client.MERGE)
                    except client.StatusError:  # it was deleted meanwhile
                        continue

    thread = threading.Thread(target=end)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def left(cluster: Cluster, namespace: str, kind: str = "pods,configmaps") -> list[Any]:
    """What is there of runs."""
    return list(cluster.get(kind, f"--namespace={namespace}", f"--selector={OURS}")["items"])


@pytest.fixture
def prove(guarded: Guard, team: str) -> Callable[..., list[str | Path]]:
    """The command of a run in a namespace, as a user who has the rights that it writes, and no others."""
    cluster = guarded.cluster
    policy = cluster.folder / "proved.yaml"
    policy.write_text(policy_of(cluster), "utf-8")
    command: list[str | Path] = [sys.executable, "-m", "webhook", "prove", "--policy", policy, "--namespace", team]
    written = subprocess.run([*command, "--rights"], capture_output=True, text=True, check=True).stdout
    roles = [*yaml.safe_load_all(written)]
    bindings = [
        {
            "apiVersion": role["apiVersion"],
            "kind": f"{role['kind']}Binding",
            "metadata": role["metadata"],
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": role["kind"],
                "name": role["metadata"]["name"],
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": PROVER.name}],
        }
        for role in roles
    ]
    guarded.install(*roles, *bindings)
    allowed(cluster, PROVER, "create", "configmaps", team)
    allowed(cluster, PROVER, "list", "nodes")
    return partial(lambda *more: [*command, "--kubeconfig", cluster.kubeconfig(PROVER), "--run", "--yes", *more])


def test_the_rights_that_are_written_are_enough_and_nothing_is_left(
    guarded: Guard, team: str, prove: Callable[..., list[str | Path]]
) -> None:
    with kubelets(guarded.cluster, team):
        done = subprocess.run(prove("--format", "json"), capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    value = json.loads(done.stdout)
    assert (done.returncode, value["summary"]["open"], value["summary"]["not shown"]) == (0, 0, 0), done.stdout
    patched = {way.name for way in WAYS if way.patched}
    by = {way.name: PATCH if way.patched else way.rule for way in CHANGES}
    for target in value["targets"]:
        assert {each["way"]: each["by"] for each in target["ways"] if each["way"] in by} == by, done.stdout
        ran = {each["way"]: each for each in target["ways"] if each["seen"]}
        assert ran.keys() == {"honest pod", *patched}
        assert all(ran[name]["seen"]["nvml"]["count"] == 0 for name in patched)
        assert ran["honest pod"]["seen"]["nvml"]["count"] > 0
    assert eventually(lambda: left(guarded.cluster, team) == [])


# Ways of a pod that exists


@pytest.fixture
def changed(guarded: Guard, team: str) -> Callable[[User | None], dict[str, tuple[Outcome, str]]]:
    """What the changes show that a user sends for pods which never start."""
    cluster = guarded.cluster
    file = cluster.folder / "changed.yaml"
    file.write_text(policy_of(cluster), "utf-8")
    policy = policies.policy_of(file)
    target = ProbeTarget(policy.pools[0], "trusted", team, GPU, "t4-shared")

    def show(user: User | None) -> dict[str, tuple[Outcome, str]]:
        found: dict[str, tuple[Outcome, str]] = {}
        api = sender = client.connect(str(cluster.kubeconfig()))
        if user is not None:
            sender = client.connect(str(cluster.kubeconfig()))
            sender.default_headers["Impersonate-User"] = user.name
        for bare in (False, True):
            item = {**changes.held(policy, target, bare=bare)}
            made = calls.created(api, item).pod
            assert made is not None
            name = made["metadata"]["name"]

            def send(way: GPUWay, name: str = name, made: Any = made) -> DryRun:
                body = changes.change(policy, target, way, made)
                return calls.ProbeCalls(api, sender).changed(way, team, name, body)

            ways = [way for way in changes.changes(policy, target) if way.bare is bare]
            found |= {
                each.way.name: (each.outcome, each.by) for each in changes.shown(ways, team, send, RULES) if each.way
            }
            here = cluster.get("pod", name, f"--namespace={team}")
            assert {**here["metadata"], "managedFields": None} == {**made["metadata"], "managedFields": None}
            assert here["spec"] == made["spec"]
            cluster.do("delete", "pod", name, f"--namespace={team}")
        return found

    return show


@pytest.mark.skipif(SAME, reason="registers the webhook three times; make nightly runs it")
def test_a_change_that_the_webhook_does_not_judge_is_open(
    guarded: Guard, changed: Callable[[User | None], dict[str, tuple[Outcome, str]]]
) -> None:
    """So an answer of the API server itself, such as on the pod's gate, is not taken for a denial."""
    updates = {way.name for way in CHANGES if way.change is not ChangeCall.BIND and not way.patched}
    try:
        guarded.without("pods.slicewarden.dev", lambda: guarded.reached_by(pod("probe", "default")) == [MUTATE])
        unjudged = changed(None)
        guarded.without("bindings.slicewarden.dev", lambda: changed(None)["binding"][0] is not Outcome.SHUT)
        unbound = changed(None)
    finally:
        guarded.register()
    assert {name for name, (outcome, _) in unjudged.items() if outcome is Outcome.OPEN} == updates
    assert unjudged["debug"] == (Outcome.SHUT, PATCH)
    assert unjudged["binding"] == (Outcome.SHUT, "foreign-binding")
    assert unbound["binding"] == (Outcome.OPEN, "")


def test_a_change_that_a_tenant_may_not_make_is_shut_by_rbac(
    guarded: Guard, changed: Callable[[User | None], dict[str, tuple[Outcome, str]]], team: str
) -> None:
    tenant = User("editor")
    guarded.cluster.do(
        "create", "rolebinding", "editor", "--clusterrole=edit", f"--user={tenant.name}", f"--namespace={team}"
    )
    allowed(guarded.cluster, tenant, "patch", "pods", team)
    found = changed(tenant)
    assert {name for name, shown in found.items() if shown == (Outcome.SHUT, "RBAC")} == {
        way.name for way in CHANGES if way.change is not ChangeCall.UPDATE
    }
    assert {shown for name, shown in found.items() if shown[1] != "RBAC"} == {
        (Outcome.SHUT, way.rule) for way in CHANGES if way.change is ChangeCall.UPDATE
    }


def test_a_change_that_a_tenant_may_make_by_another_call_is_not_shut_by_rbac(
    guarded: Guard, changed: Callable[[User | None], dict[str, tuple[Outcome, str]]], team: str
) -> None:
    tenant, here = User("updater"), f"--namespace={team}"
    resources = "--resource=pods,pods/ephemeralcontainers,bindings"
    guarded.cluster.do("create", "role", "updater", "--verb=create,update", resources, here)
    guarded.cluster.do("create", "rolebinding", "updater", "--role=updater", f"--user={tenant.name}", here)
    allowed(guarded.cluster, tenant, "update", "pods", team)
    assert set(changed(tenant).values()) == {(Outcome.UNKNOWN, "")}


FROM_A_TERMINAL = """
import os, signal, sys
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Starts a program that no signal is ignored for, as a terminal does. A shell's background job ignores Ctrl-C."""


@contextmanager
def begun(cluster: Cluster, namespace: str, command: list[str | Path]) -> Iterator[subprocess.Popen[str]]:
    """A run whose first pod is there, and does not end."""
    started = [sys.executable, "-c", FROM_A_TERMINAL, *command]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert eventually(lambda: bool(left(cluster, namespace, "pods")) or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_end_by_a_signal_leaves_nothing(
    guarded: Guard, team: str, prove: Callable[..., list[str | Path]], ending: signal.Signals
) -> None:
    with begun(guarded.cluster, team, prove()) as process:
        process.send_signal(ending)
        assert process.wait(300) == 130
    assert eventually(lambda: left(guarded.cluster, team) == [])


def test_after_a_kill_its_object_takes_the_pods_with_it(
    guarded: Guard, team: str, prove: Callable[..., list[str | Path]]
) -> None:
    cluster, here = guarded.cluster, f"--namespace={team}"
    with begun(cluster, team, prove()) as process:
        process.kill()
        process.wait(300)
    (probe,) = left(cluster, team, "pods")
    assert probe["spec"]["activeDeadlineSeconds"] == 120
    (run,) = left(cluster, team, "configmaps")
    assert run["metadata"]["labels"][INSTANCE] == probe["metadata"]["labels"][INSTANCE]
    second = subprocess.run(prove(), capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert f"kubectl delete configmap {run['metadata']['name']} -n {team}" in second.stderr
    cluster.do("delete", "configmap", run["metadata"]["name"], here)
    assert eventually(lambda: left(cluster, team) == [])


def slices(cluster: Cluster, node: str) -> int:
    """The slices of a node that no pod has which stays, besides those of runs."""
    mine = f"--selector={MANAGED_BY}!={MANAGER}"
    others = cluster.get("pods", "--all-namespaces", mine, f"--field-selector=spec.nodeName={node}")["items"]
    stay = [each for each in others if "deletionTimestamp" not in each["metadata"]]
    held = sum(
        int(container.get("resources", {}).get("limits", {}).get(GPU, 0))
        for each in stay
        if each["status"].get("phase") not in ("Succeeded", "Failed")
        for container in each["spec"]["containers"]
    )
    return int(cluster.get("node", node)["status"]["allocatable"][GPU]) - held


def class_of_the_page() -> Any:
    """The PriorityClass that the page has for the pods of a run."""
    blocks = re.findall(r"```yaml\n(apiVersion.*?)```", (ROOT / "docs" / "prove.md").read_text("utf-8"), re.DOTALL)
    (found,) = [each for each in map(yaml.safe_load, blocks) if each["kind"] == "PriorityClass"]
    return found


def test_a_neighbour_takes_the_last_slice_from_a_pod_of_a_run(
    guarded: Guard, team: str, prove: Callable[..., list[str | Path]]
) -> None:
    cluster, chosen = guarded.cluster, class_of_the_page()
    guarded.install(chosen)
    with begun(cluster, team, prove("--priority-class", chosen["metadata"]["name"])) as process:
        (probe,) = left(cluster, team, "pods")
        name = probe["metadata"]["name"]
        assert eventually(lambda: "nodeName" in cluster.get("pod", name, f"--namespace={team}")["spec"])
        node = cluster.get("pod", name, f"--namespace={team}")["spec"]["nodeName"]
        pinned = {"nodeSelector": {"kubernetes.io/hostname": node}}
        count = slices(cluster, node)
        assert count
        rivals = [pod(f"neighbour-{number}", team, annotations=TRUSTED, **pinned) for number in range(count)]
        made = cluster.apply(*rivals)
        assert made.returncode == 0, made.stderr

        def placed() -> bool:
            found = cluster.get("pods", *(each["metadata"]["name"] for each in rivals), f"--namespace={team}")
            return all(each["spec"].get("nodeName") == node for each in found["items"])

        assert eventually(placed)
        assert probe["metadata"]["uid"] not in {each["metadata"]["uid"] for each in left(cluster, team, "pods")}
        assert process.poll() is None or process.returncode == 2


@pytest.mark.skipif(SAME, reason="tests/proving tries each moment; make nightly runs this too")
def test_after_a_kill_the_next_run_leaves_nothing(
    guarded: Guard, team: str, prove: Callable[..., list[str | Path]]
) -> None:
    cluster = guarded.cluster
    with begun(cluster, team, prove()) as process:
        process.kill()
        process.wait(300)
    (run,) = left(cluster, team, "configmaps")
    past = f"{UNTIL}=2026-01-01T00:00:00+00:00"
    cluster.do("annotate", "configmap", run["metadata"]["name"], past, "--overwrite", f"--namespace={team}")
    with kubelets(cluster, team):
        done = subprocess.run(prove(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert eventually(lambda: left(cluster, team) == [])
