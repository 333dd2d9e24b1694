"""`slicewarden prove --run` on a real node: its probe is in the product's own image, and sees the pretended cards."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.e2e.access import allowed
from tests.e2e.control_plane import Cluster, User, eventually
from tests.node.nodes import GPU_NODE
from tests.node.pods import create, pod
from tests.support import policies
from tests.support.records import SAME
from webhook.cluster import client
from webhook.proving.running import MANAGED_BY, MANAGER, UNTIL
from webhook.proving.ways import CHANGES, WAYS, ChangeCall

TENANT = User("prover", ("system:authenticated",))
PLACE = "proof"
OURS = (f"--namespace={PLACE}", f"--selector={MANAGED_BY}={MANAGER}")

in_the_night = pytest.mark.skipif(SAME, reason="takes minutes; make nightly runs it")


@pytest.fixture(scope="module", autouse=True)
def namespace(labelled: Cluster) -> None:
    """A namespace whose pods may be trusted, and whose tenant may do what the role `edit` allows."""
    labelled.add_namespace(PLACE, {"slicewarden.dev/trust": "trusted"})
    labelled.do(
        "create", "rolebinding", "prover", "--clusterrole=edit", f"--user={TENANT.name}", f"--namespace={PLACE}"
    )
    allowed(labelled, TENANT, "create", "pods", PLACE)
    # The pretended driver counts in a file, which is root's; the user of a container has to open it.
    (labelled.folder / "nvidia-container-runtime" / "cards").chmod(0o666)


def command(policy: Path) -> list[str]:
    words = [sys.executable, "-m", "webhook", "prove", "--policy", str(policy), "--namespace", PLACE]
    return [*words, "--as", TENANT.name, "--run", "--yes", "--format", "json"]


def environment(cluster: Cluster) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(cluster.kubeconfig())}


def left(cluster: Cluster, kind: str = "pods,configmaps") -> list[Any]:
    """What is there of runs."""
    return list(cluster.get(kind, *OURS)["items"])


def proved(cluster: Cluster, policy: Path) -> dict[str, dict[str, Any]]:
    """What a run shows of each way in the pool of the node. It leaves nothing."""
    done = subprocess.run(command(policy), env=environment(cluster), capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    (found,) = [each for each in json.loads(done.stdout)["targets"] if each["pool"] == "shared"]
    assert eventually(lambda: left(cluster) == [])
    return {each["way"]: each for each in found["ways"]}


def saw_cards(shown: dict[str, Any]) -> bool:
    return re.search("(?:^|; )saw [1-9]", shown["message"]) is not None


KNOWN = {
    *("cuda-version", "variables", "variable", "variable-init", "variable-reference", "variable-source"),
    *("annotation-cdi", "privileged"),
}
"""The ways by which a pod without a request sees cards on this node, as NVIDIA's programs are by default."""


@in_the_night
def test_without_us_the_known_ways_lead_to_cards(labelled: Cluster) -> None:
    policy = labelled.folder / "proved.yaml"
    policy.write_text(policies.sample().replace("\nspec:\n", "\nspec:\n  mode: Enforce\n", 1), "utf-8")
    found = proved(labelled, policy)
    honest = found.pop("honest pod")
    assert honest["outcome"] == "admitted", honest
    for way in CHANGES:  # the role `edit` allows updates only
        shown = found.pop(way.name)
        assert (shown["outcome"], shown["by"]) == (
            ("open", "") if way.change is ChangeCall.UPDATE else ("shut", "RBAC")
        )
    assert {each["outcome"] for each in found.values()} == {"open"}
    unasked = {way.name for way in WAYS if not way.gpus}
    seeing = {name for name, each in found.items() if name in unasked and saw_cards(each)}
    # A sidecar that ends is started again, and may be stopped before it says anything.
    assert seeing - {"variable-sidecar"} == KNOWN, found


NEXT = "neighbours"


def honest(name: str, command: str, namespace: str = NEXT) -> dict[str, Any]:
    """A pod with one slice."""
    container = {"command": ["sh", "-c", command]}
    made = pod(name, container, gpus=1, namespace=namespace, automountServiceAccountToken=False)
    made["metadata"]["annotations"] = {"slicewarden.dev/trust": "trusted"}
    return made


def known(cluster: Cluster, namespace: str = PLACE) -> bool:
    """Tell whether the replicas of the webhook have heard of a namespace."""
    item = honest("honest", "true", namespace)
    ask = ("create", "--dry-run=server", "--filename=-")
    return all(cluster.kubectl(*ask, stdin=json.dumps(item), user=TENANT).returncode == 0 for _ in range(5))


def test_with_us_every_way_is_shut_by_what_its_pod_saw(enforced: Cluster) -> None:
    assert eventually(lambda: known(enforced))
    found = proved(enforced, enforced.folder / "policy.yaml")
    honest = found.pop("honest pod")
    assert honest["outcome"] == "admitted", honest
    assert saw_cards(honest)
    assert {each["outcome"] for each in found.values()} == {"shut"}, found
    ran = {name for name, each in found.items() if each["seen"]}
    assert ran == {way.name for way in WAYS if way.patched}
    assert all(found[name]["message"].startswith("saw 0 of ") for name in ran)


JOB, OURS_IN = "prove-once", "--namespace=slicewarden-system"


def test_the_component_runs_in_its_own_pod_and_fails_where_a_way_was_not_shown(enforced: Cluster) -> None:
    """The bed has no node with MIG, so the pool `mig` of the policy cannot be tried."""
    assert eventually(lambda: known(enforced))
    policy = enforced.folder / "policy.yaml"
    enforced.do("create", "configmap", "slicewarden-policy", f"--from-file=policy.yaml={policy}", OURS_IN)
    for name in ("rbac.yaml", "dry-runs.yaml", "cronjob.yaml"):
        enforced.do("apply", "--filename", ROOT / "manifests/components/prove" / name)
    account = User("system:serviceaccount:slicewarden-system:slicewarden-prove")
    for verb, resource in (("list", "nodes"), ("create", "pods")):
        allowed(enforced, account, verb, resource)
    try:
        enforced.do("create", "job", JOB, "--from=cronjob/slicewarden-prove", OURS_IN)
        enforced.do("wait", f"job/{JOB}", "--for=condition=Failed", "--timeout=300s", OURS_IN)
        (made,) = enforced.get("pods", f"--selector=job-name={JOB}", OURS_IN)["items"]
        log = enforced.do("logs", f"job/{JOB}", OURS_IN)
    finally:
        for name in ("cronjob.yaml", "dry-runs.yaml", "rbac.yaml"):
            enforced.do("delete", "--filename", ROOT / "manifests/components/prove" / name)
        enforced.do("delete", "configmap", "slicewarden-policy", OURS_IN)
        enforced.do("delete", "job", JOB, "--ignore-not-found", OURS_IN)
    assert made["spec"]["nodeName"] != GPU_NODE
    assert made["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 2, log
    assert re.search(r"^pool shared, trusted, namespace \S+: \d+ shut$", log, re.MULTILINE), log
    assert "not shown  all ways: no node of the pool is known" in log
    assert " 0 open, " in log.splitlines()[-1], log


MOMENTS = (("", 0), *((state, number) for number in (1, 2, 3) for state in ("created", "placed", "started")))
"""When a run is killed: its object is there, or a pod with this number or a later one has come so far."""


def come(pod: dict[str, Any], state: str, number: int) -> bool:
    """Tell whether a pod of a run is this one or a later one, and has come so far."""
    far = {
        "created": True,
        "placed": "nodeName" in pod["spec"],
        "started": pod["status"].get("phase") in ("Running", "Succeeded", "Failed"),
    }
    return int(pod["metadata"]["name"].rpartition("-")[2]) >= number and far[state]


@in_the_night
def test_after_a_kill_at_any_of_ten_moments_the_next_run_leaves_nothing(enforced: Cluster) -> None:
    assert eventually(lambda: known(enforced))
    policy = enforced.folder / "policy.yaml"
    assert len(MOMENTS) == 10
    for state, number in MOMENTS:
        before = {each["metadata"]["uid"] for each in left(enforced)}
        with subprocess.Popen(
            command(policy), env=environment(enforced), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:

            def there(
                state: str = state,
                number: int = number,
                before: set[str] = before,
                process: "subprocess.Popen[bytes]" = process,
            ) -> bool:
                kind = "pods" if state else "configmaps"
                new = [each for each in left(enforced, kind) if each["metadata"]["uid"] not in before]
                return any(not state or come(each, state, number) for each in new) or process.poll() is not None

            assert eventually(there, pause=0.02)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL, (state, number)
        past = f"{UNTIL}=2026-01-01T00:00:00+00:00"
        for run in left(enforced, "configmaps"):  # a run that was killed at once has swept nothing
            enforced.do("annotate", "configmap", run["metadata"]["name"], past, "--overwrite", f"--namespace={PLACE}")
    assert proved(enforced, policy)["honest pod"]["outcome"] == "admitted"


# Neighbours


SLICES = 8
"""Those of the node: two cards, each shared by four."""
ONE_CARD = 'one() { [ "$(ls /dev | grep -c "^nvidia[0-9]")" = 1 ]; }; one && sleep 2 && one'
"""Ends well if the container has one card, and keeps it."""


@pytest.fixture(scope="module")
def neighbours(enforced: Cluster) -> Cluster:
    """The same with another namespace for the tenant's honest pods."""
    enforced.add_namespace(NEXT, {"slicewarden.dev/trust": "trusted"})
    enforced.do("create", "rolebinding", "prover", "--clusterrole=edit", f"--user={TENANT.name}", f"--namespace={NEXT}")
    allowed(enforced, TENANT, "create", "pods", NEXT)
    assert eventually(lambda: known(enforced) and known(enforced, NEXT))
    return enforced


class Stream:
    """Keeps some honest pods on the node: where one has ended, another starts."""

    def __init__(self, cluster: Cluster, at_once: int) -> None:
        self._api = client.connect(str(cluster.kubeconfig()))
        self._api.default_headers["Impersonate-User"] = TENANT.name
        self._path, self._at_once = f"/api/v1/namespaces/{NEXT}/pods", at_once
        self._last = threading.Event()
        self.over: list[Any] = []
        """The pods that have ended, as they were then."""

    def run(self) -> None:
        """Go on until `end`. A pod that is refused, or goes before it has ended, is an error."""
        names, started = set[str](), 0
        while names or not self._last.is_set():
            there = {each["metadata"]["name"]: each for each in client.ask(self._api, self._path)["items"]}
            assert names <= there.keys(), f"gone: {names - there.keys()}"
            for name in sorted(names):
                if there[name]["status"].get("phase") in ("Succeeded", "Failed"):
                    self.over.append(there[name])
                    names.discard(name)
                    client.ask(self._api, f"{self._path}/{name}", method="DELETE")
            while len(names) < self._at_once and not self._last.is_set():
                started += 1
                made = client.ask(self._api, self._path, method="POST", body=honest(f"honest-{started}", ONE_CARD))
                names.add(made["metadata"]["name"])
            time.sleep(0.1)

    def end(self) -> None:
        """Start no more pods."""
        self._last.set()


@in_the_night
def test_no_neighbour_is_disturbed_by_a_run(neighbours: Cluster) -> None:
    # A scheduler hears that a slice is free a moment after we do, so there is one more than all pods need.
    stream = Stream(neighbours, SLICES - 2)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(stream.run)
        try:
            assert eventually(lambda: len(stream.over) >= SLICES or running.done())
            found = proved(neighbours, neighbours.folder / "policy.yaml")
            before = len(stream.over)
            assert eventually(lambda: len(stream.over) >= before + SLICES or running.done())
        finally:
            stream.end()
        running.result()
    assert {each["outcome"] for name, each in found.items() if name != "honest pod"} == {"shut"}, found
    assert saw_cards(found["honest pod"])
    assert [each["status"] for each in stream.over if each["status"]["phase"] != "Succeeded"] == []
    events = neighbours.get("events", f"--namespace={NEXT}")["items"]
    waited = [each for each in events if each["reason"] in ("FailedScheduling", "Preempted", "Evicted")]
    assert waited == []


@in_the_night
def test_a_run_takes_no_slice_where_neighbours_hold_all(neighbours: Cluster) -> None:
    pods = [honest(f"holder-{number}", "sleep 1000") for number in range(SLICES)]
    names = [each["metadata"]["name"] for each in pods]
    create(neighbours, *pods)

    def statuses() -> list[Any]:
        return [each["status"] for each in neighbours.get("pods", *names, f"--namespace={NEXT}")["items"]]

    try:
        assert eventually(lambda: {each.get("phase") for each in statuses()} == {"Running"}), statuses()
        found = proved(neighbours, neighbours.folder / "policy.yaml")
        assert {each["phase"] for each in statuses()} == {"Running"}
        assert {each["containerStatuses"][0]["restartCount"] for each in statuses()} == {0}
    finally:
        neighbours.do("delete", "pods", *names, f"--namespace={NEXT}")
    assert found["honest pod"]["message"] == "no node of the pool has a free nvidia.com/gpu"
    assert {each["outcome"] for each in found.values()} == {"shut", "not shown"}
    assert not any(each["seen"] for each in found.values())
