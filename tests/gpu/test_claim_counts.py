"""A claim counts with all it can take of a pool, whichever of the pool's classes it names."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects import Object
from tests.support.policies import policy_of
from webhook.api.admission import decode, wrap
from webhook.api.devices import device_requests
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu.claims import counted_by_pool
from webhook.model import Action
from webhook.rules import walk

CARDS, SLICES = ("card.example.com", "large-card.example.com"), ("slice.example.com", "large-slice.example.com")
POLICY = policy_of(f"""
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {{name: claims}}
spec:
  trust: {{grants: [{{namespaces: [vision]}}]}}
  pools:
  - {{name: slices, sharing: time-slicing, trust: [trusted], deviceClasses: {list(SLICES)}, assume: {{memory: 80Gi}}}}
  - {{name: cards, sharing: none, trust: [trusted, untrusted], deviceClasses: {list(CARDS)}, maxRequest: 2}}
""")


def of_class(name: str, count: int = 1) -> Object:
    return {"deviceClassName": name, "count": count, "capacity": {"requests": {"memory": "4Gi"}}}


@st.composite
def requests(draw: st.DrawFn) -> Object:
    wanted = st.builds(of_class, st.sampled_from((*CARDS, *SLICES, "netdev.google.com")), st.integers(1, 4))
    if draw(st.booleans()):
        return {"exactly": draw(wanted)}
    alternatives = draw(st.lists(wanted, min_size=1, max_size=4))
    return {"firstAvailable": [{"name": f"a{n}", **each} for n, each in enumerate(alternatives)]}


@given(st.lists(requests(), min_size=1, max_size=4))
def test_a_claim_counts_with_the_most_that_the_scheduler_may_take_of_a_pool(made: list[Object]) -> None:
    devices = {"requests": [{"name": f"r{n}", **each} for n, each in enumerate(made)]}
    found = {each.pool.name: each.number for each in counted_by_pool(device_requests(devices, ()), POLICY)}
    choices = [each.get("firstAvailable") or [each["exactly"]] for each in made]
    for pool, classes in (("cards", CARDS), ("slices", SLICES)):
        most = max(
            sum(one["count"] for one in chosen if one["deviceClassName"] in classes) for chosen in product(*choices)
        )
        assert found.get(pool, 0) == most


def claim(*made: Object, **more: Any) -> Object:
    spec: Any = {"devices": {"requests": [{"name": f"r{n}", **each} for n, each in enumerate(made)], **more}}
    metadata = {"name": "c", "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted"}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def either(*names: str) -> Object:
    return {"firstAvailable": [{"name": f"a{n}", **of_class(name)} for n, name in enumerate(names)]}


@pytest.mark.parametrize(
    ("item", "rule"),
    [
        (claim(*({"exactly": of_class(name)} for name in SLICES)), "multiple-slices"),
        (claim({"exactly": of_class(CARDS[0], 2)}, {"exactly": of_class(CARDS[1])}), "claimed-gpu"),
        (claim(*({"exactly": of_class(name)} for name in CARDS)), ""),
        (claim(either(*SLICES)), ""),
        (claim(either(*CARDS), either(*CARDS)), ""),
    ],
)
def test_a_claim_and_its_pod_are_refused_for_what_they_take_together(item: Object, rule: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {k: v for k, v in item["metadata"].items() if k != "name"} | {"name": "p"},
        "spec": {
            "resourceClaims": [{"name": "a", "resourceClaimName": "c"}],
            "containers": [{"name": "a", "image": "i", "resources": {"claims": [{"name": "a"}]}}],
        },
    }
    engine, facts = Engine(POLICY, walk()), Facts.of([item])
    refused = {result.rule for result in engine.judge(decode(wrap(item)), facts).having(Action.DENY)}
    assert refused == ({rule} if rule else set())
    assert engine.judge(decode(wrap(pod)), facts).allowed is not bool(rule)


MIXED = policy_of("""
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {name: mixed}
spec:
  pools:
  - {name: shared, sharing: time-slicing, trust: [trusted], deviceClasses: [gpu.example.com], assume: {memory: 80Gi}}
  - {name: whole, sharing: none, trust: [trusted, untrusted], deviceClasses: [gpu.example.com], maxRequest: 2}
""")
APART = [{"distinctAttribute": "gpu.example.com/uuid"}]


@pytest.mark.parametrize(("counts", "allowed"), [((2,), True), ((1, 1), True), ((2, 2), False), ((1, 1, 1), False)])
def test_the_claims_of_a_pod_count_with_the_whole_cards_that_they_may_get(
    counts: tuple[int, ...], allowed: bool
) -> None:
    """One class is in a shared pool and in another: a constraint makes no single slice of several whole cards."""
    engine, claims = Engine(MIXED, walk()), []
    for number, count in enumerate(counts):
        item = claim({"exactly": of_class("gpu.example.com", count)}, constraints=APART)
        item["metadata"] = {"name": f"c{number}", "namespace": "vision"}
        claims.append(item)
    assert all(engine.judge(decode(wrap(item)), Facts()).allowed for item in claims)
    entries = [{"name": item["metadata"]["name"], "resourceClaimName": item["metadata"]["name"]} for item in claims]
    container = {"name": "a", "image": "i", "resources": {"claims": [{"name": each["name"]} for each in entries]}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "vision"},
        "spec": {"resourceClaims": entries, "containers": [container]},
    }
    assert engine.judge(decode(wrap(pod)), Facts.of(claims)).allowed is allowed
