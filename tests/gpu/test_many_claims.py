"""The work on claims is linear in what a tenant sends, however much a claim and the cluster hold."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.cost import calls
from tests.support.fixtures import settings
from tests.support.objects import Object
from webhook.allowance import CLAIMED, UNITS, TooLarge, TooLate
from webhook.api.admission import decode, wrap
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Request
from webhook.policy.model import Policy
from webhook.rules import walk

POOLED, OTHER = "counted.example.com", "netdev.google.com"


@pytest.fixture(scope="module")
def pooled() -> Policy:
    """A policy with pools of device classes."""
    return settings("unsized-claim")[0]


def claim(kind: str, requests: int, device_class: str, name: str = "big", *, several: bool = False) -> Object:
    """Make a claim. With `several`, no two of its alternatives are alike."""
    made = [
        {
            "name": f"r{n}",
            "firstAvailable": [
                {"name": f"a{m}", "deviceClassName": device_class, "count": m + 1 if several else 1} for m in range(8)
            ],
        }
        for n in range(requests)
    ]
    spec: Any = {"devices": {"requests": made}}
    spec = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    metadata = {"name": name, "namespace": "lab"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def pod(*templates: str, runtime: str | None = None) -> Request:
    entries = [{"name": f"a{n}", "resourceClaimTemplateName": name} for n, name in enumerate(templates)]
    using = [{"name": "c", "resources": {"claims": [{"name": "a0"}]}}]
    spec = {"containers": using, "resourceClaims": entries, **({"runtimeClassName": runtime} if runtime else {})}
    metadata = {"name": "a", "namespace": "lab"}
    return decode(wrap({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))


def devices(count: int) -> Object:
    listed = [
        {"name": f"gpu-{n}", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
        for n in range(count)
    ]
    spec = {"driver": "gpu.example.com", "nodeName": "a", "pool": {"name": "a"}, "devices": listed}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "a"}, "spec": spec}


def cost(engine: Engine, request: Request, *known: Object) -> int:
    facts = Facts.of(known)
    return calls(lambda: (engine.mutate(request, facts), engine.validate(request, facts)))


@pytest.mark.parametrize("device_class", [POOLED, OTHER, "gpu.nvidia.com"])
@pytest.mark.parametrize("runtime", [None, "gvisor"])
def test_an_entry_for_a_claim_costs_as_much_whatever_the_claim_requests(
    pooled: Policy, sample_policy: Policy, device_class: str, runtime: str | None
) -> None:
    sandboxes = settings("sandboxed-claim")[0].forms.sandboxes
    for policy in (pooled, sample_policy):
        engine = Engine(replace(policy, forms=replace(policy.forms, sandboxes=sandboxes)), walk())

        def added(requests: int, engine: Engine = engine) -> int:
            template = claim("ResourceClaimTemplate", requests, device_class)
            few, many = (cost(engine, pod(*["big"] * n, runtime=runtime), template) for n in (50, 150))
            return many - few

        assert added(32) <= 1.05 * added(2)


@pytest.mark.parametrize("device_class", [POOLED, OTHER])
@pytest.mark.parametrize("requests", [1, 32])
def test_the_requests_of_all_claims_that_a_pod_names_are_bounded(
    pooled: Policy, sample_policy: Policy, device_class: str, requests: int
) -> None:
    """A pod of 66 kB may name 1,200 claims, and each may have 256 requests. No honest pod comes near the bound."""
    kind, most = "ResourceClaimTemplate", UNITS // (CLAIMED * 8 * requests)
    facts = Facts.of(claim(kind, requests, device_class, f"t{n}", several=True) for n in range(most + 1))
    unknown = Facts.of(())
    for policy in (pooled, sample_policy):
        engine = Engine(policy, walk())
        for names in ([f"t{n}" for n in range(10)], ["t0"] * most):
            request = pod(*names)
            assert engine.mutate(request, facts).malformed is None
            assert engine.validate(request, facts).malformed is None
        many = pod(*[f"t{n}" for n in range(most + 1)])
        if requests > 1:
            assert engine.validate(many, unknown).malformed is None
        for verdict in (engine.mutate(many, facts), engine.validate(many, facts)):
            assert isinstance(verdict.malformed, TooLarge)
            assert requests == 1 or "requests of claims" in verdict.malformed.message


@pytest.mark.parametrize("device_class", [POOLED, OTHER])
def test_the_clock_is_looked_at_before_each_claim_is_read(
    pooled: Policy, sample_policy: Policy, device_class: str
) -> None:
    names = [f"t{n}" for n in range(40)]
    templates = [claim("ResourceClaimTemplate", 1, device_class, name) for name in names]
    for policy in (pooled, sample_policy):
        engine = Engine(policy, walk())
        looks: list[int] = []

        def late(looks: list[int] = looks) -> bool:
            looks.append(1)
            return False

        engine.mutate(pod(*names), Facts.of(templates), late)
        assert len(looks) > len(names)
        for handler in (engine.mutate, engine.validate):
            with pytest.raises(TooLate):
                handler(pod(*names), Facts.of(templates), lambda: True)


def test_a_request_of_a_claim_costs_as_much_however_many_devices_the_cluster_has(pooled: Policy) -> None:
    engine = Engine(pooled, walk())

    def added(count: int) -> int:
        few, many = (
            cost(engine, decode(wrap(claim("ResourceClaim", requests, POOLED))), devices(count)) for requests in (4, 16)
        )
        return many - few

    assert added(400) <= 1.05 * added(4)
