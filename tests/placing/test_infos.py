"""Count what pods ask for and nodes have, as the scheduler does."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.placing.scheduling.infos import UNSAID, NodeInfo, asked, node_info, pod_info

GPU = "nvidia.com/gpu"


def container(requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **more: Any) -> Any:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def test_containers_add_up_and_an_init_container_counts_where_it_asks_for_more() -> None:
    spec = {
        "initContainers": [container({"cpu": "3"}), container({"cpu": "500m"}, restartPolicy="Always")],
        "containers": [container({"cpu": "1"}), container({"cpu": "1"})],
    }
    assert asked(spec, {}) == {"cpu": 3000}
    spec["initContainers"].reverse()
    assert asked(spec, {}) == {"cpu": 3500}


def test_a_request_that_is_missing_is_the_limit() -> None:
    assert asked({"containers": [container(limits={GPU: 2}), container({"cpu": "1"}, {"cpu": "4"})]}, {}) == {
        GPU: 2,
        "cpu": 1000,
    }


def test_overhead_and_what_the_whole_pod_requests_count() -> None:
    spec = {
        "containers": [container({"cpu": "1", GPU: 1})],
        "resources": {"requests": {"cpu": "4"}},
        "overhead": {"cpu": "250m", "memory": "1Gi"},
    }
    assert asked(spec, {}) == {"cpu": 4250, GPU: 1, "memory": 2**30}


def test_a_container_without_a_request_has_a_weight() -> None:
    assert asked({"containers": [container(), container({"cpu": "2"})]}, UNSAID) == {"cpu": 2100, "memory": 400 * 2**20}


@pytest.mark.parametrize("spec", [{}, {"containers": 3}, {"containers": [{"resources": {"limits": {GPU: []}}}]}])
def test_a_wrong_type_asks_for_nothing(spec: Any) -> None:
    assert not any(asked(spec, {}).values())


def test_a_node_has_enough_of_what_it_does_not_list_but_for_extended_resources() -> None:
    node = NodeInfo("n", {}, (), {})
    pod = pod_info({"spec": {"containers": [container({"cpu": "64", GPU: 1})]}}, "p")
    assert [*node.lacks(pod)] == [GPU]


def test_a_node_offers_what_is_allocatable() -> None:
    status = {"capacity": {"cpu": "8", GPU: "4"}, "allocatable": {"cpu": "7500m"}}
    node = node_info({"metadata": {"name": "n"}, "spec": {"unschedulable": True}, "status": status})
    assert (node.allocatable, node.unschedulable) == ({"cpu": 7500, GPU: 4}, True)


def test_a_priority_is_that_of_the_pod_or_of_its_class_or_the_default() -> None:
    classes = {"high": (100, False), "": (7, True)}
    assert pod_info({"spec": {"priorityClassName": "high"}}, "p", classes).priority == 100
    assert not pod_info({"spec": {"priorityClassName": "high"}}, "p", classes).preempts
    assert pod_info({"spec": {"priorityClassName": "high", "priority": 3}}, "p", classes).priority == 3
    assert pod_info({"spec": {}}, "p", classes).priority == 7


@given(st.lists(st.dictionaries(st.sampled_from(["cpu", "memory", GPU]), st.integers(0, 9)), max_size=6))
def test_a_node_is_as_before_when_all_pods_have_gone(requests: list[dict[str, int]]) -> None:
    node = NodeInfo("n", {}, (), {})
    pods = [pod_info({"spec": {"containers": [container(each)]}}, "p") for each in requests]
    for pod in pods:
        node.add(pod)
    for pod in pods:
        node.remove(pod)
    assert (node.pods, +node.used, +node.weight) == ([], Counter(), Counter())
