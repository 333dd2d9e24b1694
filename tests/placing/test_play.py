"""Where pods land, whom they evict and why they wait. tests/e2e/test_place.py asks the real scheduler as well."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from webhook.api.taints import Taint, Toleration
from webhook.placing.scheduling.infos import NodeInfo, PodInfo
from webhook.placing.scheduling.play import SchedulingResult, play, queued, victims_on
from webhook.placing.scheduling.scores import Strategy
from webhook.placing.scheduling.stage import ClusterState

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int = 4, cpu: int = 8000, taints: tuple[Taint, ...] = ()) -> NodeInfo:
    return NodeInfo(name, {}, taints, {GPU: gpus, "cpu": cpu, "memory": 2**35, "pods": 110})


def pod(name: str, gpus: int = 1, priority: int = 0, *, preempts: bool = True) -> PodInfo:
    asks = {GPU: gpus, "cpu": 1000, "pods": 1}
    return PodInfo(name, asks, {"cpu": 1000, "memory": 2**30}, priority=priority, preempts=preempts)


def landed(outcomes: Iterable[SchedulingResult]) -> list[str]:
    return [outcome.node for outcome in outcomes]


def test_pods_spread_over_nodes_by_default_and_pack_by_gpus_if_told() -> None:
    pods = [pod("a"), pod("b"), pod("c")]
    assert landed(play(pods, ClusterState([node("1"), node("2")]))) == ["1", "2", "1"]
    assert landed(play(pods, ClusterState([node("1"), node("2")]), Strategy.PACK)) == ["1", "1", "1"]


def test_nodes_that_are_as_good_are_named() -> None:
    (outcome,) = play([pod("a")], ClusterState([node("1"), node("2"), node("3", cpu=4000)]))
    assert (outcome.node, outcome.others) == ("1", ("2",))


def test_a_pod_waits_for_the_reasons_of_each_node() -> None:
    closed = node("3", taints=(Taint("pool", "x", "NoSchedule"),))
    (outcome,) = play([pod("a", gpus=3)], ClusterState([node("1", gpus=2), node("2", gpus=1), closed]))
    assert not outcome.node
    assert outcome.reasons == {f"Insufficient {GPU}": 2, "node(s) had untolerated taint pool=x:NoSchedule": 1}


def test_a_pod_of_a_higher_priority_evicts_as_few_as_it_can() -> None:
    pods = [pod("low", 1), pod("middle", 2, 5), pod("also-low", 1), pod("high", 1, 10)]
    outcomes = play(pods, ClusterState([node("1")]))
    assert landed(outcomes) == ["1", "1", "", "1"]
    assert [each.name for each in outcomes[3].evicted] == ["also-low"]
    assert outcomes[2].evictor == "high"


def test_an_evicted_pod_finds_another_node_if_there_is_one() -> None:
    nodes = [node("1", gpus=1), node("2", gpus=1, taints=(Taint("own", "", "NoSchedule"),))]
    tolerant = PodInfo("low", {GPU: 1}, {}, tolerations=(Toleration("", "Exists", "", ""),))
    outcomes = play([tolerant, pod("high", 1, 10)], ClusterState(nodes))
    assert landed(outcomes) == ["2", "1"]
    assert outcomes[0].evictor == "high"


def test_a_pod_that_does_not_preempt_waits() -> None:
    outcomes = play([pod("low", 4), pod("high", 1, 10, preempts=False)], ClusterState([node("1")]))
    assert landed(outcomes) == ["1", ""]


def test_pods_that_arrive_at_once_are_taken_by_priority() -> None:
    assert [each.name for each in queued([pod("a"), pod("b", priority=2), pod("c", priority=2)])] == ["b", "c", "a"]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 5])), max_size=12), st.sampled_from(Strategy))
def test_no_node_holds_more_than_it_offers(asks: list[tuple[int, int]], strategy: Strategy) -> None:
    nodes = [node("1", gpus=2), node("2", gpus=3, cpu=3000)]
    pods = [pod(str(number), gpus, priority) for number, (gpus, priority) in enumerate(asks)]
    stage = ClusterState(nodes)
    outcomes = play(pods, stage, strategy)
    for each in nodes:
        assert all(each.used[name] <= bound for name, bound in each.allocatable.items())
        assert {one.name for one in each.pods} == {one.pod.name for one in outcomes if one.node == each.name}
    for outcome in outcomes:
        if not outcome.node:  # it neither fits, nor could it take the place of a lower one
            assert all([*each.lacks(outcome.pod)] and victims_on(outcome.pod, each, stage) is None for each in nodes)
