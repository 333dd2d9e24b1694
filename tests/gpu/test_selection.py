"""The pool of a pod that selects nodes: one with a node that fits comes first."""

import gc
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import ROOT
from tests.support.cost import calls
from tests.support.policies import POLICY, RULES, policy_of
from webhook import rules
from webhook.agent.limits import taint
from webhook.allowance import FEW, TooLate
from webhook.api.admission import decode, wrap
from webhook.api.selectors import Selector
from webhook.cli import inputs
from webhook.engine.engine import Engine
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.gpu.placement import unoffered
from webhook.gpu.review import placements_for, pods_of
from webhook.gpu.selection import MAX_CHECKS, MAX_CHOICES, known_nodes, named_cards
from webhook.model import Object, Verdict
from webhook.policy import load
from webhook.policy.model import Policy
from webhook.policy.resources import ResourceNames
from webhook.scan import reduced
from webhook.starter import starter

CLUSTERS = sorted((ROOT / "tests/clusters").glob("*.yaml"))
ZONE = "topology.kubernetes.io/zone"
LABELS = {"slicewarden.dev/trust": "trusted"}
TEAM: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": LABELS}}


@cache
def cluster(file: Path) -> tuple[Policy, Facts, Engine]:
    """The policy that is made for a cluster, what is known of the cluster, and the policy's engine."""
    items = [*(item.value for item in inputs.load_objects(str(file))), TEAM]
    policy = starter.make(reduced.reduced(items, policy_of(POLICY)), "cluster.json").policy
    return policy, Facts.of(items), Engine(policy, rules.walk())


def pod(resource: str, trust: str, **more: Any) -> Object:
    metadata = {"name": "x", "namespace": "team", "annotations": {"slicewarden.dev/trust": trust}}
    container = {"name": "c", "image": "x", "resources": {"limits": {resource: 1}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **more}}


def judged(engine: Engine, facts: Facts, value: Object) -> Verdict:
    return engine.judge(decode(wrap(value)), facts)


def waits(verdict: Verdict) -> bool:
    return any("no known node of pool" in result.finding.message for result in verdict.results)


@given(st.sampled_from(CLUSTERS), st.data())
def test_a_pod_that_selects_a_node_by_any_of_its_labels_is_steered_to_a_node_that_fits(
    file: Path, data: st.DataObject
) -> None:
    policy, facts, engine = cluster(file)
    offering = [node for node in facts.nodes if any(node.resources.values())]
    assume(offering)  # a cluster whose pools have no node yet has none
    node: Node = data.draw(st.sampled_from(offering))
    pool = policy.pool_of(node.labels)
    assert pool is not None
    resource = data.draw(st.sampled_from([name for name, much in node.resources.items() if much]))
    keys = data.draw(st.sets(st.sampled_from(sorted(node.labels))))
    selector = {key: node.labels[key] for key in keys}
    value = pod(resource, "trusted" if pool.shared else "untrusted", nodeSelector=selector)
    verdict = judged(engine, facts, value)
    assume(verdict.allowed)
    assert not waits(verdict)


def nodes(zones: Mapping[str, str]) -> Facts:
    """Nodes of the sample's pool `exclusive`, each in a zone, and the sample's other nodes."""
    items = [item.value for item in inputs.load_objects(str(ROOT / "webhook/sample/facts.yaml"))]
    (one,) = (item for item in items if item["metadata"]["name"] == "a100-exclusive")
    more = [
        {**one, "metadata": {"name": name, "labels": {**one["metadata"]["labels"], ZONE: zone}}}
        for name, zone in zones.items()
    ]
    return Facts.of([*items, *more])


@pytest.mark.parametrize("by", ["selector", "affinity"])
@pytest.mark.parametrize(("zone", "waiting"), [("b", False), ("c", True)])
def test_a_pod_that_no_known_node_fits_is_warned(by: str, zone: str, waiting: bool) -> None:
    engine = Engine(policy_of(POLICY), rules.walk())
    expressions = [{"key": ZONE, "operator": "In", "values": [zone]}]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    chosen = {"nodeSelector": {ZONE: zone}} if by == "selector" else {"affinity": affinity}
    verdict = judged(engine, nodes({"first": "b"}), pod("nvidia.com/gpu", "untrusted", **chosen))
    assert verdict.allowed
    assert waits(verdict) is waiting


def test_a_selection_of_more_conditions_than_any_pod_needs_is_not_evaluated() -> None:
    engine = Engine(policy_of(POLICY), rules.walk())
    chosen = {"key": ZONE, "operator": "In", "values": ["z"]}
    for others, waiting in ((MAX_CHOICES - 1, True), (MAX_CHOICES, False)):
        absent = [{"key": f"example.com/{place}", "operator": "DoesNotExist"} for place in range(others)]
        required = {"nodeSelectorTerms": [{"matchExpressions": [chosen, *absent]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        verdict = judged(engine, nodes({}), pod("nvidia.com/gpu", "untrusted", affinity=affinity))
        assert verdict.allowed
        assert waits(verdict) is waiting


@given(st.sampled_from(CLUSTERS), st.data())
def test_the_known_nodes_of_a_pool_are_those_that_its_selector_matches(file: Path, data: st.DataObject) -> None:
    policy, facts, _ = cluster(file)
    pool = data.draw(st.sampled_from(policy.pools))
    labels = data.draw(st.sampled_from(facts.nodes)).labels
    chosen = data.draw(st.lists(st.sampled_from(sorted(labels.items())), max_size=3).map(dict))
    absent = data.draw(st.dictionaries(st.sampled_from([*labels, "nope"]), st.just("nope"), max_size=1))
    expressions = data.draw(st.sampled_from([pool.nodes.expressions, ()]))
    one = replace(pool, nodes=Selector({**chosen, **absent}, expressions))
    assert known_nodes(one, facts) == tuple(node for node in facts.nodes if one.nodes.matches(node.labels))


def many_pools(pools: int, *conditions: Object) -> Engine:
    """An engine for pools that differ by the value of one label, and have some conditions in common."""
    spec = yaml.safe_load(POLICY.read_text("utf-8"))
    (whole,) = (pool for pool in spec["spec"]["pools"] if pool["name"] == "exclusive")
    tolerations = [{"key": "slicewarden.dev/pool", "operator": "Exists", "effect": "NoSchedule"}]
    names = [f"p{place}" for place in range(pools)]
    nodes = [{"matchLabels": {"pool": name}, "matchExpressions": [*conditions]} for name in names]
    spec["spec"]["pools"] = [
        {**whole, "name": name, "nodes": own, "tolerations": tolerations}
        for name, own in zip(names, nodes, strict=True)
    ]
    return Engine(load.of_object(spec, RULES), rules.walk())


def of_names(pools: int, names: list[str]) -> int:
    """The cost of a pod that requests these resources, where each pool offers one of its own and all MIG devices."""
    engine = many_pools(pools)
    own = [
        replace(pool, resources=ResourceNames((f"example.com/{pool.name}", "nvidia.com/mig-*"), shares=False))
        for pool in engine.policy.pools
    ]
    engine = Engine(replace(engine.policy, pools=tuple(own)), rules.walk())
    value = pod("example.com/p0", "untrusted")
    value["spec"]["containers"][0]["resources"]["limits"] |= dict.fromkeys(names, 1)
    return calls(partial(judged, engine, Facts.of(()), value))


@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.{}gb", "amd.com/gpu{}", "example.com/p{}"])
def test_the_resources_of_a_pod_are_not_compared_with_those_of_each_pool(name: str) -> None:
    """200 pools times 2,000 names took 1.1 seconds, in a pod of 56 kB."""
    few, many = (
        of_names(200, names) - of_names(20, names)
        for names in ([name.format(n) for n in range(count)] for count in (30, 60))
    )
    assert many < 1.2 * few


PATTERNS = st.sampled_from(["a.example.com/x", "a.example.com/*", "nvidia.com/gpu", "nvidia.com/mig-*", "nvidia.com/*"])
ASKED = st.sampled_from(["a.example.com/x", "a.example.com/y", "nvidia.com/gpu", "nvidia.com/gpu.shared", "b/c"])


@given(st.lists(st.tuples(st.lists(PATTERNS, max_size=3), st.booleans()), min_size=1, max_size=5), st.sets(ASKED))
def test_a_pool_offers_what_its_exact_names_and_prefixes_do(
    sample_policy: Policy, offered: list[tuple[list[str], bool]], asked: set[str]
) -> None:
    """As many pools have the same prefixes, these are compared once, and the exact names for each pool."""
    sets = [ResourceNames(patterns, shares=shares) for patterns, shares in offered]
    policy = replace(sample_policy, pools=tuple(replace(sample_policy.pools[0], resources=names) for names in sets))
    for names in sets:
        beyond = [name for name in asked if name not in names.wide]
        assert names.exact.issuperset(beyond) is all(name in names for name in asked)
    assert unoffered(asked, policy) == [name for name in asked if not any(name in names for names in sets)]


def nodes_of(pools: int, count: int, **labels: str) -> Facts:
    """That many nodes of many pools, each of one pool."""
    names = [(f"n{place}", {"pool": f"p{place % pools}", **labels}) for place in range(count)]
    return Facts.of(
        [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": own}} for name, own in names]
    )


def of_many_pools(pools: int) -> int:
    """The cost of a pod that selects no node of many pools, when the nodes have just become known."""
    engine, value = many_pools(pools), pod("nvidia.com/gpu", "untrusted", nodeSelector={ZONE: "z"})
    return calls(partial(judged, engine, nodes_of(pools, 2_000), value))


def of_terms(*terms: list[Object]) -> Object:
    """A pod with node selector terms that have these conditions."""
    required = {"nodeSelectorTerms": [{"matchExpressions": conditions} for conditions in terms]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return pod("nvidia.com/gpu", "untrusted", affinity=affinity)


def of_other_pools(terms: int, conditions: int, values: int = 1) -> Object:
    """A pod with node selector terms that exclude the nodes of all of many pools."""
    others: list[Object] = [{"key": f"example.com/{place}", "operator": "Exists"} for place in range(conditions)]
    chosen = [[f"other{place}-{number}" for number in range(values)] for place in range(terms)]
    return of_terms(*([*others, {"key": "pool", "operator": "In", "values": each}] for each in chosen))


def test_the_conditions_of_a_pod_are_not_read_again_for_each_pool() -> None:
    """A policy may have 250 pools, and a term thousands of conditions on labels that no pool selects by."""
    facts, value = nodes({}), of_other_pools(1, 500)
    few, many = (calls(partial(judged, many_pools(pools), facts, value)) for pools in (20, 200))
    assert many < 4 * few


NUMBERS = [str(number) for number in range(10_000)]


@pytest.mark.parametrize(
    "conditions",
    [
        [
            {"key": "size", "operator": "Gt", "values": ["3"]},
            {"key": "size", "operator": "NotIn", "values": NUMBERS},
            {"key": "tier", "operator": "In", "values": ["b"]},
        ],
        [{"key": ZONE, "operator": "NotIn", "values": [*NUMBERS, "-"]}],
    ],
    ids=["excluded", "unreadable"],
)
def test_the_values_of_a_pod_are_not_read_again_for_each_pool(conditions: list[Object]) -> None:
    """A policy may have 250 pools: 200 of them times 7,000 values took 3.6 seconds."""
    common: list[Object] = [
        {"key": "size", "operator": "Exists"},
        {"key": "tier", "operator": "In", "values": ["a"]},
    ]
    value = of_terms(conditions)
    few, many = (
        calls(partial(judged, many_pools(pools, *common), nodes_of(pools, pools, size="5000", tier="a"), value))
        for pools in (20, 200)
    )
    assert many < 4 * few


@pytest.mark.parametrize(("terms", "conditions", "values"), [(1, 500, 1), (200, 0, 1), (1, 0, 500)])
def test_each_pool_that_a_pod_excludes_looks_at_the_clock(terms: int, conditions: int, values: int) -> None:
    """The nodes of a pool are excluded only after all terms: 250 pools times 2,000 terms took 17 seconds."""
    engine, looks = many_pools(40), 0
    request = decode(wrap(of_other_pools(terms, conditions, values)))

    def late(most: int) -> bool:
        nonlocal looks
        looks += 1
        return looks > most

    engine.validate(request, nodes({}), partial(late, 10**9))
    assert looks > 40 * (1 + terms // FEW)
    for most in (looks // 4, looks // 2):
        looks = 0
        with pytest.raises(TooLate):
            engine.validate(request, nodes({}), partial(late, most))


def test_the_nodes_are_not_searched_again_for_each_pool() -> None:
    """A policy may have 250 pools, and a cluster ten thousand nodes."""
    assert of_many_pools(200) < 3 * of_many_pools(20)


def test_the_nodes_of_all_pools_bound_the_conditions_that_are_evaluated() -> None:
    """Otherwise a pod could have each pool of a thousand nodes searched in full."""
    engine = Engine(policy_of(POLICY), rules.walk())
    facts = nodes({f"n{place}": "b" for place in range(1_000)})
    most = MAX_CHECKS // len(facts.nodes)
    assert most < MAX_CHOICES
    for others, waiting in ((most - 1, True), (most, False)):
        absent = [{"key": f"example.com/{place}", "operator": "DoesNotExist"} for place in range(others)]
        chosen = {"key": ZONE, "operator": "In", "values": ["z"]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [*absent, chosen]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        assert waits(judged(engine, facts, pod("nvidia.com/gpu", "untrusted", affinity=affinity))) is waiting


NAMES = 4_000
"""In a request: more than a cache may keep, in number and in letters."""


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
@pytest.mark.parametrize("by", ["labels", "a label", "values", "resources"])
def test_no_cache_keeps_the_large_selections_of_a_tenant(by: str, trust: str) -> None:
    """Otherwise a few hundred requests would fill the memory of a replica."""
    engine, facts = Engine(policy_of(POLICY), rules.walk()), nodes({})

    def large(number: int) -> Object:
        names = [f"k{number}-{place}" for place in range(NAMES)]
        if by == "resources":
            value = pod("nvidia.com/mig-1g.5gb", trust, nodeSelector={ZONE: "b"})
            limits = value["spec"]["containers"][0]["resources"]["limits"]
            limits |= {f"nvidia.com/mig-{name}": 1 for name in names}
            return value
        required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": names}]}]}
        chosen: dict[str, Object] = {
            "labels": {"nodeSelector": dict.fromkeys(names, "v")},
            "a label": {"nodeSelector": {ZONE: "".join(names)}},
            "values": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}},
        }
        return pod("nvidia.com/gpu", trust, **chosen[by])

    kept = list[int]()
    tracemalloc.start()
    try:
        judged(engine, facts, large(0))  # what is remembered once
        for start in (1, 3, 5):  # other code of this process may allocate something in one of them
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            for number in (start, start + 1):
                judged(engine, facts, large(number))
            gc.collect()
            kept.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    print(f"{kept} bytes")
    assert min(kept) < 2 * NAMES * 5, "less than the names of all requests"


CARD, FAMILY = "karpenter.k8s.aws/instance-gpu-name", "karpenter.k8s.aws/instance-family"


def condition(key: str, *values: str, operator: str = "In") -> Object:
    return {"key": key, "operator": operator, "values": [*values]}


@pytest.mark.parametrize(
    ("terms", "wanted"),
    [
        ([[condition(CARD, "t4", "a10g")]], {"t4", "a10g"}),
        ([[condition(CARD, "t4")], [condition(FAMILY, "p5")]], {"t4", "h100"}),
        ([[condition(CARD, "t4", "a10g"), condition(FAMILY, "g5", "p5")]], {"a10g"}),
        ([[condition(CARD, "t4"), condition(FAMILY, "x1")]], {"t4"}),
        ([[condition(CARD, "t4")], [condition(ZONE, "b")]], set()),  # the second leaves any card
        ([[condition(CARD, "t4", "new")]], set()),
        ([[condition(CARD, "t4", operator="NotIn")]], set()),
        ([[condition(CARD, *["t4"] * MAX_CHOICES)]], {"t4"}),
        ([[condition(CARD, *(f"t4-{place}" for place in range(MAX_CHOICES + 1)))]], set()),
        ([[condition(CARD, f"t4{'-' * 64}")]], set()),  # no label has such a value
        ([[condition(CARD, "t4")]] * (MAX_CHOICES + 1), set()),
        ([], set()),
    ],
)
def test_the_cards_that_a_pod_names_are_those_that_all_its_terms_leave(terms: list[Any], wanted: set[str]) -> None:
    selecting = pod("nvidia.com/gpu", "trusted", nodeSelector={CARD: "l4", FAMILY: "x1"})
    for value, cards in ((of_terms(*terms), wanted), (selecting, {"l4"})):
        request = decode(wrap(value))
        (review,) = pods_of(request, value, policy_of(POLICY), Facts.of(()))
        assert named_cards(review.subject) == cards


QUEUED: Object = {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NoSchedule"}
GIVEN: Object = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TOLERATED: Object = {"key": "cloud.google.com/gke-queued", "operator": "Exists"}


def reserved(**more: Any) -> tuple[str, Verdict]:
    """The pool of an untrusted pod on GKE where the node of whole cards has a taint of its own, and the verdict."""
    items: list[Any] = [item.value for item in inputs.load_objects(str(ROOT / "tests/clusters/gke.yaml"))]
    (whole,) = (item for item in items if item["metadata"]["name"] == "gke-whole-1")
    whole["spec"] = {"taints": [*whole["spec"]["taints"], QUEUED]}
    policy = starter.make(reduced.reduced(items, policy_of(POLICY)), "cluster.json").policy
    facts, request = Facts.of(items), decode(wrap(pod("nvidia.com/gpu", "untrusted", **more)))
    (pool,) = (each.pool for each in placements_for(request, policy, facts))
    assert pool is not None
    return pool.name, Engine(policy, rules.walk()).judge(request, facts)


def test_a_pool_whose_nodes_have_a_taint_that_the_pod_does_not_tolerate_comes_after_one_that_takes_it() -> None:
    name, verdict = reserved(tolerations=[GIVEN])
    assert name.endswith("mig")
    assert not waits(verdict)
    name, verdict = reserved(tolerations=[GIVEN, TOLERATED])
    assert name == "whole"
    assert not waits(verdict)


def test_a_pod_that_only_a_taint_keeps_off_its_pool_is_warned_with_the_taint() -> None:
    chosen = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    name, verdict = reserved(nodeSelector=chosen, tolerations=[GIVEN])
    assert name == "whole"
    (result,) = (each for each in verdict.results if "no known node" in each.finding.message)
    assert result.finding.path == ("spec", "tolerations")
    assert "is without the taint cloud.google.com/gke-queued, so it waits" in result.finding.message
    assert not waits(reserved(nodeSelector=chosen, tolerations=[GIVEN, TOLERATED])[1])


@pytest.mark.parametrize("key", ["node.kubernetes.io/unschedulable", taint.KEY])
def test_a_taint_that_comes_and_goes_with_a_nodes_health_changes_no_pool(key: str) -> None:
    items: list[Any] = [item.value for item in inputs.load_objects(str(ROOT / "tests/clusters/gke.yaml"))]
    policy = starter.make(reduced.reduced(items, policy_of(POLICY)), "cluster.json").policy
    (whole,) = (item for item in items if item["metadata"]["name"] == "gke-whole-1")
    whole["spec"] = {"taints": [{"key": key, "effect": "NoSchedule"}]}
    request = decode(wrap(pod("nvidia.com/gpu", "untrusted", tolerations=[GIVEN])))
    assert [each.pool and each.pool.name for each in placements_for(request, policy, Facts.of(items))] == ["whole"]


def test_a_message_names_no_card_whose_nodes_the_pod_does_not_tolerate() -> None:
    chosen = {"cloud.google.com/gke-accelerator": "nvidia-tesla-p100"}
    for tolerations, named in (([GIVEN], False), ([GIVEN, TOLERATED], True)):
        _, verdict = reserved(nodeSelector=chosen, tolerations=tolerations)
        (message,) = (each.finding.message for each in verdict.results if each.rule == "unsteered-pod")
        assert ("nvidia-l4" in message.partition("; ")[2]) is named


def test_tolerations_are_read_once_however_many_pools_have_taints() -> None:
    known = nodes_of(200, 200)
    facts = Facts(nodes=tuple(replace(each, taints={"own": frozenset({"NoSchedule"})}) for each in known.nodes))
    tolerations: list[Object] = [{"key": f"k{place}", "operator": "Exists"} for place in range(500)]
    request = decode(wrap(pod("nvidia.com/gpu", "untrusted", tolerations=tolerations)))

    def cost(pools: int) -> int:
        policy = many_pools(pools).policy
        return calls(lambda: [each.waits for each in placements_for(request, policy, facts)])

    assert cost(200) - cost(100) < 100 * len(tolerations)
