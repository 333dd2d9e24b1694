"""Hold all messages alike, whatever their rule: a subject first, a better way out, and why a patch is missing."""

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.support.fixtures import FILES, judged
from tests.support.policies import RULES
from tests.support.strategies import TRUST, request_for
from webhook.api import admission
from webhook.api.selectors import Selector
from webhook.engine.engine import Engine
from webhook.facts.kinds.node import Node
from webhook.facts.kinds.pod import Holder
from webhook.facts.snapshot import Facts
from webhook.gpu.selection import MAX_CHOICES, taken
from webhook.model import Action, Object
from webhook.policy.model import Policy
from webhook.rules import walk

VERB = re.compile(r"(is|are|has|have|was|would|may|can|could|and|of|stands|says|takes|lets) ")


def test_messages_begin_with_a_subject() -> None:
    """It is a noun, or the key of a sharing configuration: `sharing.mps.resources[0].replicas: is 1, and must be …`."""
    messages = {result.finding.message for file in FILES for result in judged(file).results}
    assert len(messages) > 100
    assert [message for message in messages if VERB.match(message)] == []


def pod(resource: str = "nvidia.com/gpu", *, annotations: Object | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {resource: 1}}}
    metadata = {"name": "a", "namespace": "vision", "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def said(policy: Policy, facts: Facts, item: dict[str, Any], rule: str) -> list[str]:
    verdict = Engine(policy, walk()).validate(request_for(item), facts)
    return [result.finding.message for result in verdict.results if result.rule == rule]


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (Action.DENY, "Slicewarden's mutating webhook did not run, or another webhook undid its changes"),
        (Action.WARN, "nothing to do: Slicewarden writes it once the rule's action is Deny"),
        (Action.AUDIT, "nothing to do: Slicewarden writes it once the rule's action is Deny"),
    ],
)
def test_a_patch_that_is_missing_is_blamed_on_no_author(
    sample_policy: Policy, sample_facts: Facts, action: Action, reason: str
) -> None:
    policy = replace(sample_policy, actions=dict.fromkeys(RULES, action))
    for item, rule in ((pod(), "unsteered-pod"), (pod(annotations={TRUST: "trusted"}), "uncapped-memory")):
        assert [reason in message for message in said(policy, sample_facts, item, rule)] == [True]


def test_a_node_selection_is_refused_for_the_first_label_of_the_pool_that_it_excludes(sample_policy: Policy) -> None:
    """In each process the same one, whatever its hash seed, or a message would change from one retry to the next."""
    keys = [f"example.com/{number}" for number in range(64)]
    pools = [replace(pool, nodes=Selector(dict.fromkeys(keys, "a"))) for pool in sample_policy.pools if not pool.shared]
    item = pod(nodeSelector=dict.fromkeys(reversed(keys), "b"))
    (message,) = said(replace(sample_policy, pools=tuple(pools)), Facts(), item, "unsteered-pod")
    assert "node selection example.com/0=b excludes its nodes (example.com/0=a)" in message


def test_a_node_selection_is_offered_what_its_own_nodes_have(sample_policy: Policy) -> None:
    """The H100s are MIG devices, so `nvidia.com/gpu` on an H100 can be had nowhere."""
    by_product = {"matchLabels": {"nvidia.com/gpu.product": "H100"}}
    labels = by_product["matchLabels"]
    exclusive, mig = (pool for pool in sample_policy.pools if not pool.shared)
    exclusive, mig = sorted((exclusive, mig), key=lambda pool: pool.name)
    pools = (
        replace(exclusive, nodes=replace(exclusive.nodes, labels={"nvidia.com/gpu.product": "A100"}, expressions=())),
        replace(mig, nodes=replace(mig.nodes, labels=labels, expressions=())),
    )
    policy = replace(sample_policy, pools=pools)
    node = Node("h100", labels, {"nvidia.com/mig-1g.10gb": 7, "cpu": 8})
    way = "request nvidia.com/mig-1g.10gb to stay on those nodes, or remove it"
    (message,) = said(policy, Facts(nodes=(node,)), pod(nodeSelector=labels), "unsteered-pod")
    assert message.endswith(way)
    (unknown,) = said(policy, Facts(), pod(nodeSelector=labels), "unsteered-pod")
    assert unknown.endswith("; request nvidia.com/mig-* to stay on those nodes, or remove it")
    (nowhere,) = said(policy, Facts(), pod(nodeSelector={"nvidia.com/gpu.product": "T4"}), "unsteered-pod")
    assert nowhere.endswith("; no pool that takes this pod has matching nodes; use the value A100, or remove it")


@pytest.mark.parametrize(
    ("selected", "there"),
    [
        (
            {"product": "X", "zone": "2"},
            "; no pool that takes this pod has matching nodes; use the value B, or remove it",
        ),
        (
            {"product": "A", "zone": "2"},
            "; no pool that takes this pod has matching nodes; use the value 1, or remove it",
        ),
        ({"product": "X", "zone": "9"}, "; remove it"),
    ],
    ids=["another product", "another zone", "neither"],
)
def test_a_value_is_offered_only_if_the_rest_of_the_selection_leads_to_its_nodes(
    sample_policy: Policy, selected: dict[str, str], there: str
) -> None:
    whole = next(pool for pool in sample_policy.pools if "nvidia.com/gpu" in pool.resources and not pool.shared)
    pools = tuple(
        replace(whole, name=name, nodes=Selector({"product": product, "zone": zone}))
        for name, product, zone in (("a", "A", "1"), ("b", "B", "2"))
    )
    (message,) = said(replace(sample_policy, pools=pools), Facts(), pod(nodeSelector=selected), "unsteered-pod")
    assert message.endswith(there)


@pytest.mark.parametrize(("terms", "offered"), [(MAX_CHOICES, True), (MAX_CHOICES + 1, False)])
def test_no_value_is_searched_for_a_pod_with_too_many_terms(sample_policy: Policy, terms: int, offered: bool) -> None:
    """Each pool would be tried with each term."""
    whole = next(pool for pool in sample_policy.pools if "nvidia.com/gpu" in pool.resources and not pool.shared)
    pools = (replace(whole, nodes=Selector({"product": "A"})),)
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    required = {"nodeSelectorTerms": [field] * terms}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    item = pod(nodeSelector={"product": "X"}, affinity=affinity)
    (message,) = said(replace(sample_policy, pools=pools), Facts(), item, "unsteered-pod")
    assert ("use the value A" in message) is offered


def test_a_node_selection_is_told_which_pool_has_what_it_selects(sample_policy: Policy, sample_facts: Facts) -> None:
    item = pod(nodeSelector={"nvidia.com/gpu.sharing-strategy": "time-slicing"})
    item["metadata"]["namespace"] = "visitors"
    (message,) = said(sample_policy, sample_facts, item, "unsteered-pod")
    assert message.endswith("; it selects nodes of pool shared, but pool shared takes no untrusted pods; remove it")
    item["metadata"]["namespace"] = "vision"
    (message,) = said(sample_policy, sample_facts, item, "unsteered-pod")
    granted = "set the annotation slicewarden.dev/trust: trusted, which is granted to this pod"
    assert message.endswith(f"; {granted}, or remove it")


@pytest.mark.parametrize(
    ("sharing", "one", "two"),
    [
        ("none", "the only GPU of pool p is in use now", "all 2 GPUs of pool p are in use now"),
        ("mig", "the only MIG device of pool p is in use now", "all 2 MIG devices of pool p are in use now"),
        ("time-slicing", "the only slice of pool p is in use now", "all 2 slices of pool p are in use now"),
        ("mps", "the only slice of pool p is in use now", "all 2 slices of pool p are in use now"),
    ],
)
def test_a_message_counts_in_what_the_pool_offers(sample_policy: Policy, sharing: str, one: str, two: str) -> None:
    pool = replace(sample_policy.pools[0], name="p", sharing=sharing, nodes=Selector({"p": "p"}))
    name = pool.resources.patterns[0]
    for count, text in ((1, one), (2, two)):
        node = Node("n", {"p": "p"}, {name: count})
        assert taken(pool, Facts(nodes=(node,), holders=(Holder("team", "h", "n", {name: count}),))) == text


def test_a_message_says_when_all_of_a_pool_are_taken(sample_policy: Policy, sample_facts: Facts) -> None:
    whole = next(pool for pool in sample_policy.pools if pool.sharing == "none")
    nodes = [node for node in sample_facts.nodes if whole.nodes.matches(node.labels)]
    holders = [
        Holder("team", node.name, node.name, {"nvidia.com/gpu": node.resources["nvidia.com/gpu"]}) for node in nodes
    ]
    count = sum(node.resources["nvidia.com/gpu"] for node in nodes)
    assert count
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    asking = pod(nodeSelector={"nvidia.com/gpu.sharing-strategy": "time-slicing"})
    opening = pod("cpu", containers=[{"name": "c", "env": [variable]}])
    for item in (asking, opening):
        item["metadata"]["namespace"] = "visitors"
    full = f"(all {count} GPUs of pool {whole.name} are in use now)"
    for running, last in ((holders, True), (holders[1:], False), ([], False)):
        facts = replace(sample_facts, holders=tuple(running))
        for item, rule in ((asking, "unsteered-pod"), (opening, "visible-devices")):
            (message,) = said(sample_policy, facts, item, rule)
            assert message.endswith(full) is last


@pytest.mark.parametrize("more", [0, 40], ids=["few", "more than an answer shows"])
def test_an_answer_blames_the_mutating_webhook_once(sample_policy: Policy, sample_facts: Facts, more: int) -> None:
    containers = [
        {"name": name, "resources": {"limits": {"nvidia.com/gpu": amount}} if amount else {}}
        for name, amount in (("c", 1), ("other", 0), ("third", 0), *((f"c{number}", 0) for number in range(more)))
    ]
    item = pod(containers=containers, hostPID=True)
    verdict = Engine(sample_policy, walk()).validate(request_for(item), sample_facts)
    reasons = admission.reasons(verdict)
    assert len([each for each in verdict.having(Action.DENY) if each.finding.left_out]) > 1
    assert sum("mutating webhook did not run" in reason for reason in reasons) == 1
    assert admission.message_of(verdict).count("mutating webhook did not run") == 1
    assert "hostPID" in reasons[0]
    for result in verdict.having(Action.DENY):
        assert any(reason in result.text for reason in reasons)


def test_memory_beyond_a_slice_is_offered_a_whole_gpu(sample_policy: Policy, sample_facts: Facts) -> None:
    item = pod(annotations={TRUST: "trusted", "slicewarden.dev/gpu-memory": "10Gi"})
    (message,) = said(sample_policy, sample_facts, item, "uncapped-memory")
    assert message.endswith("or remove the annotation slicewarden.dev/trust for a whole GPU")
    slices = pod("nvidia.com/gpu.shared", annotations={TRUST: "trusted", "slicewarden.dev/gpu-memory": "10Gi"})
    (message,) = said(sample_policy, sample_facts, slices, "uncapped-memory")
    assert message.endswith("use slicewarden.dev/gpu-memory: 3251Mi or less")
    trusting = replace(sample_policy, default_trust="trusted")
    item["metadata"]["annotations"].pop(TRUST)
    (message,) = said(trusting, sample_facts, item, "uncapped-memory")
    assert message.endswith("or set the annotation slicewarden.dev/trust: untrusted for a whole GPU")


def test_what_no_pool_offers_is_to_be_removed_and_the_rest_kept(sample_policy: Policy, sample_facts: Facts) -> None:
    item = pod()
    item["spec"]["containers"][0]["resources"]["limits"] |= {"nvidia.com/gpucores": 30, "nvidia.com/gpumem": 1024}
    (message,) = said(sample_policy, sample_facts, item, "unsteered-pod")
    assert message == "no pool offers nvidia.com/gpucores, nvidia.com/gpumem; remove them, and keep nvidia.com/gpu"
