"""A pod with a claim may do what the policy allows in pools that the claim may bring it into, and nothing else."""

import json
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.evaluator.evaluator import Evaluator, Object, request_for
from tests.support.policies import policy_of
from webhook import rules
from webhook.api import admission, jsonpatch
from webhook.catalog.gpu_requests import IMPLICIT
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.fallback.policies import fallback
from webhook.model import Action
from webhook.policy.model import Policy

GPU, NIC = "gpu.example.com", "dra.net"
"""The device classes; each claim has the name of its class."""

IPC, PID, ROOTED = "hostIPC", "hostPID", "privileged"
NODES = {"example.com/pool": "own"}


def pool(**more: Any) -> Object:
    """Return a pool whose nodes the pods below select."""
    tolerations = [{"key": "slicewarden.dev/pool", "operator": "Equal", "value": "own", "effect": "NoSchedule"}]
    nodes = {"matchLabels": NODES}
    levels = ["trusted", "untrusted"]
    return {"name": "own", "sharing": "none", "trust": levels, "nodes": nodes, "tolerations": tolerations, **more}


OF_RESOURCE = pool(resources=["example.com/gpu"])
OF_CLASS = pool(deviceClasses=[GPU])
OF_NAME = pool(resources=[IMPLICIT + GPU])
"""A claim for the class brings a pod into this pool too, if another pool has the class."""
OF_NAMES = pool(resources=[f"{IMPLICIT}*"])
OTHER: Object = {"name": "other", "sharing": "none", "trust": ["trusted", "untrusted"], "deviceClasses": [GPU]}
OTHER["tolerations"] = [{"key": "slicewarden.dev/pool", "operator": "Exists"}]


def policy_with(*pools: Object, free: bool = False) -> Policy:
    """Return the sample policy with other pools, the first of which allows what pods with GPUs may not do.

    If it is `free`, the namespace may claim any device.
    """
    document = yaml.safe_load((ROOT / "policies" / "sample.yaml").read_text("utf-8"))
    spec = document["spec"]
    spec["pools"] = [{**pools[0], "hostIPC": True}, *pools[1:]]
    spec["overrides"] = [{"pools": ["own"], "rules": {"privileged-container": "Warn"}}]
    spec["gpus"] = {"claims": [{"namespaces": ["visitors"]}]} if free else {}
    return policy_of(yaml.safe_dump(document))


def known(*classes: str) -> Facts:
    claims = (
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": each, "namespace": "visitors"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": each}}]}},
        }
        for each in classes
    )
    return Facts.of([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "visitors"}}, *claims])


def requests(claimed: str, way: str) -> list[Object]:
    """Return the requests for a new pod, and for one that waits until an update adds a toleration."""
    container: Object = {"name": "c", "image": "i"}
    spec: Object = {"containers": [container], "nodeSelector": NODES}
    if claimed:
        spec["resourceClaims"] = [{"name": "a", "resourceClaimName": claimed}]
    if way == ROOTED:
        container["securityContext"] = {"privileged": True}
    else:
        spec[way] = True
    old = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "visitors"}, "spec": spec}
    new = {**old, "spec": {**spec, "tolerations": [{"key": "slicewarden.dev/pool", "operator": "Exists"}]}}
    return [request_for(new), request_for(new, operation="UPDATE", oldObject=old)]


def denied(evaluator: Evaluator, policy: Policy, facts: Facts, request: Object, way: str) -> tuple[bool, bool]:
    """Return whether the engine denies what a pod does, and whether the fallback does."""
    rule = "privileged-container" if way == ROOTED else "host-namespaces"
    settled = evaluator.settled(request)
    assert settled is not None
    review = {"apiVersion": admission.API_VERSION, "kind": "AdmissionReview", "request": settled}
    verdict = Engine(policy, rules.walk()).judge(admission.decode(json.dumps(review).encode()), facts)
    if verdict.patch:
        settled = {**settled, "object": jsonpatch.apply(settled["object"], verdict.patch)}
    found = evaluator.judge(evaluator.compiled(fallback(policy, rules.walk())), settled, facts)
    assert found.errors == []
    return rule in {each.rule for each in verdict.having(Action.DENY)}, rule in found.rules


@pytest.mark.parametrize("way", [IPC, PID, ROOTED])
@pytest.mark.parametrize(
    ("policy", "claimed"),
    [
        (policy_with(OF_RESOURCE), NIC),
        (policy_with(OF_RESOURCE, free=True), NIC),
        (policy_with(OF_RESOURCE, OTHER), NIC),
        (policy_with(OF_RESOURCE, OTHER), GPU),
        (policy_with(OF_NAME), NIC),
        (policy_with(OF_CLASS, free=True), NIC),
        (policy_with(OF_CLASS, free=True), GPU),
        (policy_with(OF_CLASS), ""),
    ],
)
def test_a_claim_gives_a_pod_nothing_of_a_pool_that_it_cannot_bring_it_into(
    evaluator: Evaluator, policy: Policy, claimed: str, way: str
) -> None:
    for facts in (known(NIC, GPU), known()):
        for request in requests(claimed, way):
            assert denied(evaluator, policy, facts, request, way) == (True, True)


@pytest.mark.parametrize("way", [IPC, ROOTED])
@pytest.mark.parametrize("pools", [[OF_CLASS], [OF_NAME, OTHER], [OF_NAMES, OTHER]], ids=["class", "name", "names"])
def test_a_claim_for_a_class_gives_a_pod_what_its_pool_allows(
    evaluator: Evaluator, pools: list[Object], way: str
) -> None:
    policy = policy_with(*pools)
    for request in requests(GPU, way):
        assert denied(evaluator, policy, known(GPU), request, way) == (False, False)
        assert denied(evaluator, policy, known(), request, way) == (True, False), "the fallback knows no claims"
