"""A pool that allows `hostIPC` to its pods, as GKE's MPS needs, and nothing else. A hostPath `/dev/shm` is the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support import shared_memory
from tests.support.objects import Object
from tests.support.shared_memory import (
    CARD,
    GPU_SHARING,
    MEMORY,
    MPS,
    PATHS,
    TIME_SHARING,
    TOLERANT,
    gke,
    mounting,
    pod,
    pods,
)
from webhook import rules
from webhook.api import jsonpatch
from webhook.api.admission import decode, wrap
from webhook.engine.engine import Engine
from webhook.model import Action
from webhook.policy import load

ENGINE = Engine(gke()[0], rules.walk())


def denied(value: Object, *, mutated: bool = True) -> set[str]:
    request, facts = decode(wrap(value)), gke()[1]
    verdict = ENGINE.judge(request, facts) if mutated else ENGINE.validate(request, facts)
    return {result.rule for result in verdict.having(Action.DENY)}


def test_only_the_pool_of_mps_allows_it() -> None:
    assert [pool.name for pool in gke()[0].pools if pool.host_ipc] == ["mps"]


@pytest.mark.parametrize("one", [pod(MPS, hostIPC=True), mounting(MEMORY, MPS)], ids=["hostIPC", "hostPath"])
def test_a_pod_of_the_pool_passes_and_so_does_its_workload(one: Object) -> None:
    assert denied(one) == set()
    template = {"metadata": one["metadata"], "spec": one["spec"]}
    metadata = {"name": "w", "namespace": "team"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    assert denied(job) == set()


@pytest.mark.parametrize(
    "other",
    [
        pod(TIME_SHARING, hostIPC=True),
        pod({}, hostIPC=True),
        pod(MPS, hostPID=True, hostIPC=True),
        pod(MPS, gpus=0, hostIPC=True, tolerations=TOLERANT),
        mounting(MEMORY, MPS, gpus=0, tolerations=TOLERANT),
        mounting(MEMORY, {}, gpus=0, tolerations=TOLERANT),
    ],
    ids=[
        "another pool",
        "any pool",
        "hostPID too",
        "no GPU",
        "no GPU, by hostPath",
        "no GPU and any node, by hostPath",
    ],
)
def test_nothing_else_passes(other: Object) -> None:
    assert "host-namespaces" in denied(other)


@pytest.mark.parametrize("one", [pod(MPS, hostIPC=True), mounting(MEMORY, MPS)], ids=["hostIPC", "hostPath"])
def test_a_pod_that_nothing_restricts_to_the_pool_is_refused(one: Object) -> None:
    """Where the patch was not made, `unsteered-pod` may be a warning."""
    assert "host-namespaces" in denied(one, mutated=False)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_memory.a_node(tmp_path_factory.mktemp("root"))


@given(path=PATHS)
def test_every_path_that_leads_to_the_shared_memory_counts_and_no_other(node: Path, path: str) -> None:
    """By what the kernel makes of it, links included. A folder above it is refused as a way to all devices."""
    found = denied(mounting(path, {}, gpus=0, tolerations=TOLERANT))
    assert ("host-namespaces" in found) == shared_memory.in_memory(node, path)
    assert not shared_memory.above_memory(node, path) or not found.isdisjoint(("host-namespaces", "device-path"))


@given(one=pods(st.just(MEMORY)))
@example(mounting(MEMORY, {**MPS, CARD: "nvidia-tesla-t4"}, gpus=0, tolerations=TOLERANT))
def test_who_may_mount_it_on_a_node_of_mps_may_have_host_ipc(one: Object) -> None:
    """A pod that passes, and fits a node whose MPS is in the node's namespaces, may have `hostIPC` there too."""
    if denied(one):
        return
    request, (policy, facts) = decode(wrap(one)), gke()
    made: Any = jsonpatch.apply(one, ENGINE.mutate(request, facts).patch)
    (pool,) = [each for each in policy.pools if each.host_ipc]
    nodes = [each for each in facts.nodes if pool.nodes.matches(each.labels)]
    assert nodes
    if made["spec"].get("tolerations") and any(fits(made["spec"], each.labels) for each in nodes):
        assert denied({**one, "spec": {**one["spec"], "hostIPC": True, "volumes": []}}) == set()


def required(*conditions: Object) -> Object:
    terms = [{"matchExpressions": [each]} for each in conditions]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


NOT_MPS = {"key": GPU_SHARING, "operator": "NotIn", "values": ["mps"]}


@pytest.mark.parametrize(
    ("selector", "affinity", "may"),
    [
        (TIME_SHARING, {}, True),
        ({}, required(NOT_MPS), True),
        ({}, required(NOT_MPS, {"key": GPU_SHARING, "operator": "DoesNotExist"}), True),
        ({}, required(NOT_MPS, {"key": CARD, "operator": "Exists"}), False),
        ({}, required({"key": GPU_SHARING, "operator": "NotIn", "values": ["other"]}), False),
        ({"team": "a"}, {}, False),
    ],
    ids=["selector", "affinity", "both terms", "one of two terms", "another value", "another label"],
)
def test_a_pod_that_excludes_every_pool_of_mps_may_mount_it(selector: Any, affinity: Object, may: bool) -> None:
    one = mounting(MEMORY, selector, gpus=0, tolerations=TOLERANT, affinity=affinity)
    assert ("host-namespaces" not in denied(one)) == may


def listing(path: str, *, writable: bool) -> Engine:
    """The engine of the policy that lists a path of nodes."""
    value = json.loads(gke()[0].written)
    gpus = {"hostPaths": [{"path": path, "writable": writable}]}
    return Engine(load.of_object({**value, "spec": {**value["spec"], "gpus": gpus}}, rules.releases()), rules.walk())


@pytest.mark.parametrize("path", ["/dev", "/run", "/var/run"])
@pytest.mark.parametrize(
    ("writable", "mount", "may"),
    [
        (False, {"readOnly": True}, False),
        (False, {"readOnly": True, "recursiveReadOnly": "Enabled"}, True),
        (True, {"readOnly": True}, True),
        (True, {}, True),
    ],
)
def test_a_listed_folder_above_it_leaves_it_writable(path: str, writable: bool, mount: Object, may: bool) -> None:
    """`readOnly` leaves the mounts below a folder writable (KEP-3857)."""
    one = mounting(path, {}, gpus=0, tolerations=TOLERANT)
    one["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/x", **mount}]
    verdict = listing(path, writable=writable).judge(decode(wrap(one)), gke()[1])
    found = [each for each in verdict.having(Action.DENY) if each.rule == "host-namespaces"]
    assert bool(found) != may
    assert all("set recursiveReadOnly: Enabled on every mount of" in each.finding.message for each in found)


@pytest.mark.parametrize("path", [MEMORY, "/run/shm", "/var/run/shm/a"])
@pytest.mark.parametrize("listed", [MEMORY, "/run/shm", "/var/run/shm"])
def test_a_policy_lists_it_by_either_name(path: str, listed: str) -> None:
    one = mounting(path, {}, gpus=0, tolerations=TOLERANT)
    one["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/x"}]
    verdict = listing(listed, writable=True).judge(decode(wrap(one)), gke()[1])
    assert {each.rule for each in verdict.having(Action.DENY)} == set()


def fits(spec: Any, labels: Any) -> bool:
    """Whether a pod's node selector and required affinity let it onto a node with these labels."""
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(
        all(holds(each, labels) for each in term["matchExpressions"]) for term in required["nodeSelectorTerms"]
    )


def holds(condition: Any, labels: Any) -> bool:
    if condition["operator"] == "DoesNotExist":
        return condition["key"] not in labels
    if condition["operator"] == "NotIn":
        return labels.get(condition["key"]) not in condition["values"]
    assert condition["operator"] == "In"
    return labels.get(condition["key"]) in condition["values"]
