"""Stored claims: rules read the same of what is kept as of the whole claim, and what is kept has a bound."""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.objects import Object
from tests.support.policies import policy_of
from webhook.api.devices import device_requests
from webhook.api.fields import MAX_NAME
from webhook.cluster.decoding import decoded
from webhook.facts import kinds
from webhook.facts.kinds import read, resource_claim
from webhook.facts.kinds.resource_claim import MAX_ALIKE, MAX_REQUESTS, ClaimedRequest
from webhook.facts.snapshot import Facts
from webhook.gpu.claims import counted

POLICY = policy_of("""
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {name: claims}
spec:
  pools:
  - name: slices
    sharing: time-slicing
    trust: [trusted]
    deviceClasses: [shared.example.com]
    maxMemory: 12Gi
    assume: {memory: 80Gi, replicas: 8}
  - {name: whole, sharing: none, trust: [trusted], deviceClasses: [whole.example.com]}
""")

CLASSES = ("shared.example.com", "whole.example.com", "net.example.com")


def template(devices: Object, name: str = "t") -> Object:
    metadata = {"name": name, "namespace": "lab"}
    spec = {"spec": {"devices": devices}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def claimed(devices: Object) -> tuple[ClaimedRequest, ...] | None:
    """What the facts know of a template, through the text that an API server sends."""
    item = json.loads(json.dumps(template(devices)))
    return Facts.of([item]).requested("ResourceClaimTemplate", "lab", "t")


def known(devices: Object) -> tuple[ClaimedRequest, ...]:
    found = claimed(devices)
    assert found is not None
    return found


def asking(device_class: str, **more: Any) -> Object:
    return {"deviceClassName": device_class, **more}


MEMORIES = st.sampled_from(("memory", "gpu.example.com/memory", "cores"))
AMOUNTS = st.sampled_from(("0", "4Gi", "1500M", "-1", "much", 7))
ASKED = st.fixed_dictionaries(
    {"deviceClassName": st.sampled_from(CLASSES)},
    optional={
        "count": st.integers(1, 3),
        "adminAccess": st.booleans(),
        "allocationMode": st.sampled_from(("All", "ExactCount")),
        "selectors": st.just([{"cel": {"expression": "true"}}]),
        "tolerations": st.just([{"operator": "Exists"}]),
        "capacity": st.dictionaries(MEMORIES, AMOUNTS).map(lambda amounts: {"requests": amounts}),
    },
)

REQUESTS = st.lists(
    st.one_of(
        ASKED.map(lambda one: {"exactly": one}),
        st.lists(ASKED, min_size=1, max_size=4).map(lambda some: {"firstAvailable": some}),
    ),
    max_size=4,
).map(lambda requests: [{"name": f"r{number}", **one} for number, one in enumerate(requests)])

DEVICES = st.fixed_dictionaries(
    {"requests": REQUESTS},
    optional={
        "constraints": st.lists(
            st.lists(st.sampled_from(["r0", "r1", "r2", "r3"]), max_size=2).map(
                lambda names: {"requests": names, "distinctAttribute": "gpu.example.com/uuid"}
            ),
            max_size=3,
        )
    },
)


@given(DEVICES)
def test_what_is_kept_of_a_claim_says_the_same_to_rules(devices: Object) -> None:
    whole = [one for one in device_requests(devices, ()) if one.device_class]
    kept = known(devices)
    event("fewer" if len(kept) < len(whole) else "as many")
    assert counted(kept, POLICY) == counted(whole, POLICY)
    assert list(dict.fromkeys(one.device_class for one in kept)) == list(dict.fromkeys(w.device_class for w in whole))
    assert smallest(kept) == smallest(whole)


@given(DEVICES)
def test_an_audit_and_a_file_in_git_know_of_a_claim_what_the_webhook_knows(devices: Object) -> None:
    for kind, spec in (("ResourceClaim", {"devices": devices}), ("ResourceClaimTemplate", template(devices)["spec"])):
        item = {**template(devices), "kind": kind, "spec": spec}
        small = kinds.kept(item)
        assert small is not None
        fields = ("apiVersion", "kind", "metadata.name", "metadata.namespace", *resource_claim.FIELDS)
        assert read(small) == read(decoded(json.dumps(item).encode(), fields)) == read(item)
        assert kinds.kept(small) == small


def test_an_audit_keeps_nothing_of_a_claim_that_a_tenant_may_make_large() -> None:
    """40 templates with 1.4 MB of labels took the 512 MiB of an audit, and selectors take as much."""
    one = asking(CLASSES[0], count=2, capacity={"requests": {"memory": "4Gi", **{f"c{i}": "1" for i in range(9_000)}}})
    one["selectors"] = [{"cel": {"expression": f"device.driver == '{'x' * 9_000}'"}}] * 32
    one["tolerations"] = [{"operator": "Exists"}] * 16
    one["derivedAttributes"] = [{"name": "a", "expression": "x" * 9_000}]
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": {"text": "x" * 9_000}}}]
    item = template(
        {"requests": [{"name": "r", "exactly": one}, {"name": "s", "firstAvailable": [one]}], "config": config}
    )
    item["spec"]["metadata"] = {"labels": {f"label-{i}": "" for i in range(9_000)}}
    small = kinds.kept(item)
    assert len(json.dumps(small)) < 1_000 < 300_000 < len(json.dumps(item))
    assert small is not None
    assert read(small) == read(item)


def smallest(requests: Any) -> dict[str, int]:
    """The smallest memory (MiB) of each class."""
    found: dict[str, int] = {}
    for one in requests:
        if one.mib is not None:
            found[one.device_class] = min(one.mib, found.get(one.device_class, one.mib))
    return found


def selecting(number: int) -> Object:
    """A claim of over a megabyte, nearly all of it selectors."""
    selectors = [{"cel": {"expression": f"true // {number}{one}" + "x" * 9000}} for one in range(4)]
    return {"requests": [{"name": f"r{one}", "exactly": asking("c", selectors=selectors)} for one in range(32)]}


def alternatives(number: int) -> Object:
    """A claim with the most requests, all of them the same but for what no rule reads."""
    tolerations = [{"operator": "Exists", "key": f"k{number}"}]
    some = [{"name": f"a{one}", **asking("c", tolerations=tolerations)} for one in range(8)]
    return {"requests": [{"name": f"r{one}", "firstAvailable": some} for one in range(32)]}


def largest(number: int) -> Object:
    """A claim with the most requests, the longest names and an amount of memory for each."""

    def one(place: int, alternative: int) -> Object:
        name = f"{number}-{place}-{alternative}".ljust(MAX_NAME, "x")
        amount = f"{1 + number * 1000 + place * 8 + alternative}Gi"
        capacity = {"requests": {"memory": amount}}
        return {"name": f"a{alternative}", **asking(name, count=1000 + place, capacity=capacity)}

    requests = [{"name": f"r{p}", "firstAvailable": [one(p, each) for each in range(8)]} for p in range(32)]
    return {"requests": requests}


@pytest.mark.parametrize(
    ("devices", "most"), [(selecting, 16_000), (alternatives, 16_000), (largest, 768 * MAX_REQUESTS)]
)
def test_a_stored_claim_keeps_few_bytes(devices: Callable[[int], Object], most: int) -> None:
    texts = [json.dumps(template(devices(number), f"t{number}")) for number in range(4)]
    read(json.loads(texts[0]))  # what is remembered once
    tracemalloc.start()
    try:
        facts = [read(json.loads(text)) for text in texts[1:]]
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert all(fact and fact.value for fact in facts)
    assert kept <= most * len(facts)


def test_equal_requests_are_kept_once() -> None:
    devices = alternatives(0)
    assert len(list(device_requests(devices, ()))) > 256
    assert [one.place for one in known(devices)] == [*range(32)]
    names = {id(one.device_class) for one in known(devices)}
    assert len(names) == 1, "requests for one class share its name"


@pytest.mark.parametrize("number", [MAX_ALIKE, MAX_ALIKE + 1])
def test_small_claims_share_what_is_read_of_them(number: int) -> None:
    devices = {"requests": [{"name": f"r{one}", "exactly": asking("c")} for one in range(number)]}
    assert (known(devices) is known(devices)) is (number <= MAX_ALIKE)


def too_many() -> Iterator[Object]:
    for place in range(33):
        yield {"name": f"r{place}", "firstAvailable": [{"name": f"a{n}", **asking("c", count=1 + n)} for n in range(8)]}


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        ([*too_many()][:32], [*too_many()]),
        (
            [{"name": "r", "exactly": asking("x" * MAX_NAME)}],
            [{"name": "r", "exactly": asking("x" * (MAX_NAME + 1))}],
        ),
    ],
    ids=["requests", "name"],
)
def test_a_claim_that_no_api_server_stores_is_unknown(within: list[Object], beyond: list[Object]) -> None:
    assert claimed({"requests": within})
    assert claimed({"requests": beyond}) is None
