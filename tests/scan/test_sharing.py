"""Who shares which GPUs: counts, order, memory, and nodes that no pool takes."""

from dataclasses import replace

from webhook.facts.kinds.node import Node
from webhook.facts.kinds.pod import Holder
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy
from webhook.scan.sharing import Amount, PoolUse, overview

GPU = "nvidia.com/gpu"


def pools(policy: Policy, facts: Facts) -> dict[str, PoolUse]:
    return {pool.name: pool for pool in overview(policy, facts)}


def test_every_pool_has_its_nodes_in_the_policys_order(sample_policy: Policy, sample_facts: Facts) -> None:
    found = overview(sample_policy, sample_facts)
    assert [pool.name for pool in found] == [pool.name for pool in sample_policy.pools]
    shared, mig, exclusive = found
    assert [node.name for node in shared.nodes] == ["t4-shared", "t4-shared-renamed"]
    assert shared.amounts == (Amount(GPU, 0, 4), Amount(f"{GPU}.shared", 0, 4))
    assert (mig.gpus, exclusive.gpus) == (1, 8)
    assert exclusive.trust == ("trusted", "untrusted")


def test_pods_are_counted_where_they_run(sample_policy: Policy, sample_facts: Facts) -> None:
    pods = (("vision", "b", "t4-shared"), ("vision", "a", "t4-shared"), ("lab", "c", "t4-shared"), ("lab", "d", "gone"))
    holders = tuple(Holder(namespace, name, node, {GPU: 1}) for namespace, name, node in pods)
    shared = pools(sample_policy, replace(sample_facts, holders=holders))["shared"]
    node = shared.nodes[0]
    assert node.pods == {"lab": ("c",), "vision": ("a", "b")}
    assert node.amounts == (Amount(GPU, 3, 4),)
    assert shared.mixed == 1


def test_the_nodes_with_most_namespaces_come_first(sample_policy: Policy, sample_facts: Facts) -> None:
    holders = tuple(Holder(name, "p", "t4-shared-renamed", {f"{GPU}.shared": 1}) for name in ("lab", "vision"))
    shared = pools(sample_policy, replace(sample_facts, holders=holders))["shared"]
    assert [node.name for node in shared.nodes] == ["t4-shared-renamed", "t4-shared"]


def test_memory_is_divided_where_it_is_capped(sample_policy: Policy, sample_facts: Facts) -> None:
    found = pools(sample_policy, sample_facts)
    renamed, t4 = found["shared"].divisions
    assert (t4.nodes, t4.budget.reserve, t4.budget.context, t4.budget.budget) == (1, 308, 512, 3251)
    assert renamed.budget.card.product == "Tesla-T4"
    assert found["mig"].divisions == ()
    assert found["mig"].uncapped.startswith("Each pod has its GPU or MIG device to itself")


def test_a_pool_without_nodes_has_the_gpu_that_its_policy_assumes(sample_policy: Policy) -> None:
    (division,) = pools(sample_policy, Facts())["shared"].divisions
    assert (division.nodes, division.budget.card.product) == (0, "Tesla-T4")
    unknown = replace(sample_policy, pools=tuple(replace(pool, assume=None) for pool in sample_policy.pools))
    assert "no node" in pools(unknown, Facts())["shared"].uncapped.lower()
    uncapped = replace(sample_policy, capped_sharing=frozenset[str]())
    assert "sets no memory caps" in pools(uncapped, Facts())["shared"].uncapped


def test_nodes_with_gpus_that_no_pool_takes_are_shown(sample_policy: Policy, sample_facts: Facts) -> None:
    stray = Node("stray", {}, {GPU: 2}), Node("plain", {})
    facts = replace(sample_facts, nodes=(*sample_facts.nodes, *stray))
    last = overview(sample_policy, facts)[-1]
    assert (last.name, [node.name for node in last.nodes]) == ("", ["stray"])
    assert last.nodes[0].gpus is None
