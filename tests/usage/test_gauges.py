"""What `top` reads from Prometheus: the same as from an agent's own answer, and refused where it would be wrong."""

from collections.abc import Mapping, Sequence

import pytest

from webhook.usage import gauges, scraped
from webhook.usage.counted import ChosenSeries, Sample
from webhook.usage.document import ContainerNow
from webhook.usage.gauges import NodeGauges
from webhook.usage.store import DamagedRecord

MIB = 2**20
USE = {"namespace": "team", "pod": "a", "container": "main", "gpu": "GPU-0"}
CARD = {"gpu": "GPU-0", "index": "0", "model": "NVIDIA A10"}
ANSWER = f"""# TYPE slicewarden_node_use_bytes gauge
slicewarden_node_use_bytes{{namespace="team",pod="a",container="main",gpu="GPU-0"}} {3000 * MIB}
slicewarden_node_allowance_bytes{{namespace="team",pod="a",container="main",gpu="GPU-0"}} {2500 * MIB}
slicewarden_node_sm_ratio{{namespace="team",pod="a",container="main",gpu="GPU-0"}} 0.42
slicewarden_node_state{{namespace="team",pod="a",container="main",gpu="GPU-0",state="over"}} 1.0
slicewarden_node_reported{{namespace="team",pod="a",container="main",gpu="GPU-0"}} 1.0
slicewarden_node_frozen{{namespace="team",pod="a",container="main"}} 1.0
slicewarden_node_card_used_bytes{{gpu="GPU-0",index="0",model="NVIDIA A10"}} {9000 * MIB}
slicewarden_node_card_total_bytes{{gpu="GPU-0",index="0",model="NVIDIA A10"}} {24000 * MIB}
slicewarden_node_card_unattributed_bytes{{gpu="GPU-0",index="0",model="NVIDIA A10"}} {100 * MIB}
slicewarden_node_card_busy_ratio{{gpu="GPU-0",index="0",model="NVIDIA A10"}} 0.97
slicewarden_node_card_dead{{gpu="GPU-0",index="0",model="NVIDIA A10"}} 0.0
slicewarden_node_limit_faults{{fault="missing"}} 2.0
slicewarden_node_look_age_seconds 0.5
slicewarden_node_usage_unsaved 0.0
"""


def answers(instance: str = "10.0.0.1:8080", node: str | None = "node-1") -> dict[str, list[Sample]]:
    """The answers of a Prometheus that has read this agent."""
    target = {"job": "agents", "instance": instance}
    found: dict[str, list[Sample]] = {name: [] for name in gauges.queries(ChosenSeries())}

    def add(name: str, value: float, **labels: str) -> None:
        found[name].append(Sample({**target, **labels}, value))

    for name, value in (
        ("use_bytes", 3000 * MIB),
        ("allowance_bytes", 2500 * MIB),
        ("sm_ratio", 0.42),
        ("reported", 1),
    ):
        add(f"{name} there", value, **USE)
    add("state", 1, **USE, state="over")
    add("frozen", 1, **{key: text for key, text in USE.items() if key != "gpu"})
    for name, value in (("used_bytes", 9000 * MIB), ("total_bytes", 24000 * MIB), ("unattributed_bytes", 100 * MIB)):
        add(f"card_{name}", value, **CARD)
    add("card_busy_ratio", 0.97, **CARD)
    add("card_dead", 0, **CARD)
    add("limit_faults", 2, fault="missing")
    add("look_age_seconds", 0.5)
    found["use_bytes"].append(Sample({key: text for key, text in USE.items() if key != "gpu"}, 3000 * MIB))
    if node is not None:
        add("targets", 1_780_000_000, node=node)
        found["here"].append(Sample({"node": node}, 1_780_000_000))
        now = {"node": node, "gpu": "GPU-0", "pool": "shared", "workload": "Job/a", "shared": "yes", **USE}
        for name, value in (("slices", 2), ("held_seconds", 90), ("idle_seconds", 30)):
            found[name].append(Sample(now, value))
    return found


def both(*some: Mapping[str, Sequence[Sample]]) -> dict[str, list[Sample]]:
    return {name: [each for one in some for each in one[name]] for name in some[0]}


def test_a_nodes_gauges_are_those_of_its_agents_answer() -> None:
    (found,), gone = gauges.nodes(answers())
    assert (found.node, found.scrape, gone) == ("node-1", scraped.read(ANSWER.encode()), [])
    assert found.usage is not None
    assert found.usage.now == (
        ContainerNow("team", "Job/a", "a", "main", "GPU-0", "shared", 2, 90_000, 30_000, 3000, 0, True),
    )


def test_an_agent_without_a_usage_record_is_named_after_its_instance() -> None:
    found, _ = gauges.nodes(both(answers(node=None), answers("10.0.0.2:8080", "node-2")))
    assert [(each.node, each.usage is None, each.scrape.counts) for each in found] == [
        ("10.0.0.1:8080", True, False),
        ("node-2", False, True),
    ]


def test_cards_and_containers_of_two_agents_are_not_confused() -> None:
    """The UUID of a card, and the names of a container, may be the same in two targets: anyone may write a series."""
    one, other = answers(), answers("10.0.0.2:8080", "node-2")
    other["use_bytes there"] = [each._replace(value=7.0 * MIB) for each in other["use_bytes there"]]
    found, _ = gauges.nodes(both(one, other))
    assert [[use.mib for use in each.scrape.uses] for each in found] == [[3000], [7]]


def test_an_agent_that_is_not_read_any_more_is_named() -> None:
    gone = answers()
    unread = Sample({"job": "agents", "instance": "10.0.0.9:8080"}, 1)
    gone["unread"].append(unread)
    gone["gone"].append(Sample({"node": "node-3"}, 1))
    assert gauges.nodes(gone)[1] == ["10.0.0.9:8080", "node-3"]


@pytest.mark.parametrize(
    ("name", "labels", "why"),
    [
        ("doubled", {"gpu": "GPU-0"}, "it has the GPU GPU-0 2 times"),
        ("exported", {"instance": "10.0.0.1:8080"}, "needs honor_labels"),
        ("twice", {"node": "node-1"}, "it has the node node-1 2 times"),
        ("renamed", {"node": "node-1"}, "needs honor_labels"),
    ],
)
def test_series_that_would_count_twice_or_for_others_are_refused(name: str, labels: dict[str, str], why: str) -> None:
    wrong = answers()
    wrong[name].append(Sample(labels, 2))
    with pytest.raises(DamagedRecord, match=why):
        gauges.nodes(wrong)


def test_a_namespace_is_asked_for_in_the_series_of_containers_only() -> None:
    found = gauges.queries(ChosenSeries((("job", "a"),), "team"))
    of_containers = {name for name, query in found.items() if 'namespace="team"' in query}
    assert of_containers == {
        *("use_bytes", "slices", "held_seconds", "idle_seconds", "state", "frozen"),
        *(f"{name} there" for name in ("use_bytes", "allowance_bytes", "sm_ratio", "reported")),
    }
    assert all('job="a"' in query for query in found.values())


def test_nothing_is_no_node() -> None:
    assert gauges.nodes({name: [] for name in gauges.queries(ChosenSeries())}) == ([], [])
    assert NodeGauges._fields == ("node", "scrape", "usage")
