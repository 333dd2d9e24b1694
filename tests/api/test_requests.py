"""Add up what a pod requests as Kubernetes does."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.api.quantity import Amount
from webhook.api.requests import of_spec, total

GPU, SLICE = "nvidia.com/gpu", "nvidia.com/gpu.shared"

Started = tuple[bool, Mapping[str, Amount]]
"""A container: whether it completes before the next one starts, and what it requests."""

AMOUNTS = st.dictionaries(
    st.sampled_from((GPU, SLICE, "cpu")), st.integers(0, 5) | st.fractions(0, 5, max_denominator=4), max_size=3
)


def added(containers: list[Started]) -> dict[str, Amount]:
    return total((completes, *entry) for completes, amounts in containers for entry in amounts.items())


def as_in_go(first: list[Started], containers: list[Mapping[str, Amount]]) -> dict[str, Amount]:
    """Add up as AggregateContainerRequests does (component-helpers resource/helpers.go), step by step."""
    result, sidecars, most = Counter[str](), Counter[str](), Counter[str]()
    for each in containers:
        result.update(each)
    for completes, amounts in first:
        if completes:
            together = Counter[str](sidecars)
            together.update(amounts)
        else:
            result.update(amounts)
            sidecars.update(amounts)
            together = sidecars
        most |= together
    return dict(result | most)


@given(st.lists(st.tuples(st.booleans(), AMOUNTS), max_size=5), st.lists(AMOUNTS, max_size=4))
def test_a_total_is_that_of_kubernetes(first: list[Started], containers: list[Mapping[str, Amount]]) -> None:
    assert added([*first, *((False, each) for each in containers)]) == as_in_go(first, containers)


@given(st.lists(st.tuples(st.booleans(), AMOUNTS), max_size=5), st.lists(AMOUNTS, max_size=4))
def test_a_total_names_resources_in_the_order_of_the_containers(
    first: list[Started], containers: list[Mapping[str, Amount]]
) -> None:
    started = [*first, *((False, each) for each in containers)]
    named = dict.fromkeys(name for _, amounts in started for name, amount in amounts.items() if amount)
    assert [*added(started)] == [*named]


def test_negative_amounts_count_as_none() -> None:
    assert added([(False, {GPU: 2}), (False, {GPU: -1}), (True, {SLICE: -1})]) == {GPU: 2}


def container(requests: Mapping[str, Any] | None = None, limits: Mapping[str, Any] | None = None, **more: Any) -> Any:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def test_an_init_container_runs_next_to_the_sidecars_before_it() -> None:
    sidecar, init = container({GPU: 2}, restartPolicy="Always"), container({GPU: 3})
    assert of_spec({"initContainers": [sidecar, init], "containers": [container({GPU: 1})]}) == {GPU: 5}
    assert of_spec({"initContainers": [init, sidecar], "containers": [container({GPU: 2})]}) == {GPU: 4}


def test_sums_are_exact() -> None:
    assert of_spec({"containers": [container({"cpu": "100u"})] * 10}) == {"cpu": Fraction(1, 1000)}


def test_a_request_of_zero_counts_before_a_limit_and_before_what_is_unsaid() -> None:
    spec = {"containers": [container({"cpu": 0, GPU: 0}, {GPU: 1}), container(limits={"cpu": 2})]}
    assert of_spec(spec, unsaid={"cpu": "7"}) == {"cpu": 2}


def test_only_resources_with_the_prefix_are_read() -> None:
    spec = {"containers": [container({GPU: 1, "cpu": "broken"})], "overhead": {"cpu": 1}, "resources": {}}
    assert of_spec(spec, "nvidia.com/") == {GPU: 1}


def test_a_pod_requests_cpu_and_memory_for_all_its_containers_and_overhead_comes_on_top() -> None:
    spec = {
        "containers": [container({"cpu": 1, GPU: 1})],
        "resources": {"requests": {"cpu": 4, GPU: 8}},
        "overhead": {"cpu": "250m"},
    }
    assert of_spec(spec) == {"cpu": Fraction(17, 4), GPU: 1}


@pytest.mark.parametrize("value", [None, 3, "x", [3], [{"resources": 3}], [{"resources": {"limits": {GPU: []}}}]])
def test_what_has_another_type_requests_nothing(value: Any) -> None:
    assert not of_spec({"initContainers": value, "containers": value, "overhead": value, "resources": value})
