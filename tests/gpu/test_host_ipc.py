"""A pool that allows `hostIPC` to its pods, as GKE's MPS needs, and nothing else."""

from typing import Any

import pytest

from tests import ROOT
from webhook import rules
from webhook.api.admission import decode, wrap
from webhook.cli import inputs
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Object
from webhook.policy.model import Policy
from webhook.starter import starter

LABELS = {"slicewarden.dev/trust": "trusted"}
TEAM: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": LABELS}}
MPS = {"cloud.google.com/gke-gpu-sharing-strategy": "mps"}
TIME_SHARING = {"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}


@pytest.fixture(scope="module")
def gke() -> tuple[Policy, Facts]:
    items = [*(item.value for item in inputs.load_objects(str(ROOT / "tests/clusters/gke.yaml"))), TEAM]
    return starter.make(items, "gke.yaml").policy, Facts.of(items)


def pod(selector: dict[str, str], gpus: int = 1, **more: Any) -> Object:
    metadata = {"name": "x", "namespace": "team", "annotations": {"slicewarden.dev/trust": "trusted"}}
    limits = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    spec = {"containers": [{"name": "c", "image": "x", "resources": limits}], "nodeSelector": selector, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def denied(value: Object, gke: tuple[Policy, Facts], *, mutated: bool = True) -> set[str]:
    policy, facts = gke
    engine, request = Engine(policy, rules.walk()), decode(wrap(value))
    verdict = engine.judge(request, facts) if mutated else engine.validate(request, facts)
    return {result.rule for result in verdict.having(Action.DENY)}


def test_only_the_pool_of_mps_allows_it(gke: tuple[Policy, Facts]) -> None:
    assert [pool.name for pool in gke[0].pools if pool.host_ipc] == ["mps"]


def test_a_pod_of_the_pool_passes_and_so_does_its_workload(gke: tuple[Policy, Facts]) -> None:
    one = pod(MPS, hostIPC=True)
    assert denied(one, gke) == set()
    template = {"metadata": one["metadata"], "spec": one["spec"]}
    metadata = {"name": "w", "namespace": "team"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    assert denied(job, gke) == set()


@pytest.mark.parametrize(
    "other",
    [
        pod(TIME_SHARING, hostIPC=True),
        pod({}, hostIPC=True),
        pod(MPS, hostPID=True, hostIPC=True),
        pod(MPS, gpus=0, hostIPC=True, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]),
    ],
    ids=["another pool", "any pool", "hostPID too", "no GPU"],
)
def test_nothing_else_passes(other: Object, gke: tuple[Policy, Facts]) -> None:
    assert "host-namespaces" in denied(other, gke)


def test_a_pod_that_nothing_restricts_to_the_pool_is_refused(gke: tuple[Policy, Facts]) -> None:
    """Where the patch was not made, `unsteered-pod` may be a warning."""
    assert "host-namespaces" in denied(pod(MPS, hostIPC=True), gke, mutated=False)
