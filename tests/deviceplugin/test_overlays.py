"""Overlays for Karpenter: what nodes offer, never more, and nothing where their cards say the same."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.support.policies import policy_of
from webhook.cli import inputs
from webhook.cli import main as cli
from webhook.deviceplugin.overlays import overlays
from webhook.facts.snapshot import Facts

NODE_POOL, MACHINE = "karpenter.sh/nodepool", "node.kubernetes.io/instance-type"
COUNT = "karpenter.k8s.aws/instance-gpu-count"
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


POLICY = policy_of(ROOT / "tests/e2e/karpenter/policy.yaml")


def node(name: str, node_pool: str, machine: str, cards: int | None, **offered: int) -> dict[str, Any]:
    labels = {NODE_POOL: node_pool, MACHINE: machine} | ({COUNT: str(cards)} if cards else {})
    amounts = {{"gpu": GPU, "mig": MIG}[key]: str(count) for key, count in offered.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }


def written(*nodes: dict[str, Any]) -> dict[str, dict[str, str]]:
    made = overlays(POLICY, Facts.of(nodes))
    return {each["metadata"]["name"]: each["spec"]["capacity"] for each in made.objects}


def test_slices_and_mig_devices_are_written_and_whole_cards_are_known_to_karpenter() -> None:
    found = written(
        node("a", "slices", "g4dn.xlarge", 1, gpu=4),
        node("b", "whole", "p4d.24xlarge", 8, gpu=8),
        node("c", "parts", "Standard_NC24ads_A100_v4", 1, gpu=0, mig=7),
    )
    assert found == {
        "slicewarden-slices-g4dn.xlarge": {GPU: "4"},
        "slicewarden-parts-standard-nc24ads-a100-v4": {GPU: "0", MIG: "7"},
    }


def test_the_least_that_a_node_of_the_kind_offers_counts_and_one_without_a_plugin_says_nothing() -> None:
    nodes = [node("a", "slices", "g4dn.xlarge", 1, gpu=4), node("b", "slices", "g4dn.xlarge", 1, gpu=3)]
    assert written(*nodes, node("c", "slices", "g4dn.xlarge", 1, gpu=0)) == {
        "slicewarden-slices-g4dn.xlarge": {GPU: "3"}
    }
    assert written(*nodes, node("d", "slices", "g4dn.xlarge", 1, gpu=1)) == {}


def test_an_unhealthy_card_is_not_written_where_karpenter_counts_the_cards() -> None:
    """Karpenter would otherwise make no node for a pod that wants all cards of the machine."""
    assert written(node("a", "whole", "g5.12xlarge", 4, gpu=3), node("b", "whole", "g5.12xlarge", None, gpu=4)) == {}
    assert written(node("a", "whole", "g5.12xlarge", None, gpu=3), node("b", "whole", "g5.12xlarge", 4, gpu=4)) == {}


def test_nodes_of_one_machine_that_offer_different_resources_get_a_note_and_no_overlay() -> None:
    nodes = [node("a", "parts", "h100", 8, mig=56), node("b", "parts", "h100", 8, gpu=8)]
    made = overlays(POLICY, Facts.of(nodes))
    assert made.objects == ()
    assert any("no overlay is written for h100 of NodePool parts: give each kind" in note for note in made.notes)
    alone = overlays(POLICY, Facts.of(nodes[:1]))
    assert [each["spec"]["capacity"] for each in alone.objects] == [{GPU: "0", MIG: "56"}]
    assert not any("different GPUs" in note for note in alone.notes)


def test_a_pool_without_a_known_node_of_karpenter_is_named() -> None:
    labels = {"metadata": {"name": "by-hand", "labels": {NODE_POOL: "slices"}}}
    made = overlays(POLICY, Facts.of([node("a", "whole", "p4d.24xlarge", 8, gpu=8), {"kind": "Node", **labels}]))
    (note,) = made.notes
    assert note.startswith("no node of Karpenter in pool slices, parts offers GPUs")
    assert made.objects == ()


def test_a_node_of_no_pool_is_not_written_and_counts_for_its_kind() -> None:
    assert written(node("a", "elsewhere", "g4dn.xlarge", 1, gpu=4)) == {}


KINDS = st.tuples(st.sampled_from(("slices", "whole", "parts", "elsewhere")), st.sampled_from(("small", "large")))
NODES = st.lists(
    st.tuples(KINDS, st.none() | st.integers(1, 8), st.integers(0, 9), st.integers(0, 9)), max_size=12
).map(
    lambda drawn: [node(f"n{at}", *kind, cards, gpu=gpu, mig=mig) for at, (kind, cards, gpu, mig) in enumerate(drawn)]
)


@given(NODES)
def test_no_overlay_exceeds_what_any_offering_node_of_its_kind_offers_and_none_meet(nodes: list[Any]) -> None:
    """More than a node offers makes nodes without end, and two of one machine conflict."""
    seen = set()
    for each in overlays(POLICY, Facts.of(nodes)).objects:
        wanted = {of["key"]: of["values"] for of in each["spec"]["requirements"]}
        ((node_pool,), (machine,)) = wanted[NODE_POOL], wanted[MACHINE]
        assert (node_pool, machine) not in seen
        seen.add((node_pool, machine))
        for known in nodes:
            labels, offered = known["metadata"]["labels"], known["status"]["allocatable"]
            if (labels[NODE_POOL], labels[MACHINE]) == (node_pool, machine) and any(map(int, offered.values())):
                for name, amount in each["spec"]["capacity"].items():
                    assert int(amount) <= int(offered[name])


@given(NODES)
def test_an_overlay_leaves_a_machine_all_resources_that_its_nodes_offer(nodes: list[Any]) -> None:
    """Karpenter makes no node for a resource of which it expects none, nor for more whole cards than it expects."""
    for each in overlays(POLICY, Facts.of(nodes)).objects:
        wanted = {of["key"]: of["values"] for of in each["spec"]["requirements"]}
        capacity = {name: int(amount) for name, amount in each["spec"]["capacity"].items()}
        same = [known for known in nodes if all([known["metadata"]["labels"][key]] == wanted[key] for key in wanted)]
        counted = [int(known["metadata"]["labels"].get(COUNT, 0)) for known in same if any_offered(known)]
        offered = [{name for name, count in any_offered(known).items()} for known in same if any_offered(known)]
        assert all(names == {name for name, amount in capacity.items() if amount} for names in offered)
        assert any(capacity.values())
        if capacity.keys() == {GPU}:
            assert capacity[GPU] > max(counted)


def any_offered(known: Any) -> dict[str, int]:
    return {name: int(count) for name, count in known["status"]["allocatable"].items() if int(count)}


def test_the_command_writes_the_overlays_of_a_cluster(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    facts, own = str(ROOT / "tests/clusters/eks.yaml"), tmp_path / "policy.yaml"
    assert cli.main(["policy", "init", "--facts", facts]) == 0
    own.write_text(capsys.readouterr().out)
    assert cli.main(["policy", "export", "--as", "nodeoverlay", "--policy", str(own), "--facts", facts]) == 0
    (tmp_path / "overlays.yaml").write_text(capsys.readouterr().out)
    made = [item.value for item in inputs.load_objects(str(tmp_path / "overlays.yaml"))]
    assert [(each["metadata"]["name"], each["spec"]["capacity"]) for each in made] == [
        ("slicewarden-plain-g6.2xlarge", {GPU: "4"}),
        ("slicewarden-shared-g4dn.xlarge", {GPU: "0", "nvidia.com/gpu.shared": "4"}),
    ]


def test_the_command_needs_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "export", "--as", "nodeoverlay"]) == 2
    assert "add it" in capsys.readouterr().err
