"""The pool of a pod that selects nodes: one with a node that fits comes first."""

import gc
import tracemalloc
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import ROOT
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.api.admission import decode, wrap
from webhook.cli import inputs
from webhook.engine.engine import Engine
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.gpu.selection import MAX_CHOICES
from webhook.model import Object, Verdict
from webhook.policy.model import Policy
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
    node: Node = data.draw(st.sampled_from([node for node in facts.nodes if any(node.resources.values())]))
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


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
@pytest.mark.parametrize("by", ["labels", "a label", "values", "resources"])
def test_no_cache_keeps_the_large_selections_of_a_tenant(by: str, trust: str) -> None:
    """Otherwise a few hundred requests would fill the memory of a replica."""
    engine, facts = Engine(policy_of(POLICY), rules.walk()), nodes({})

    def large(number: int) -> Object:
        names = [f"k{number}-{place}" for place in range(3_000)]
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

    judged(engine, facts, large(0))
    tracemalloc.start()
    try:
        for number in range(1, 31):
            judged(engine, facts, large(number))
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{kept:,} bytes")
    assert kept < 30 * 3_000 * 5, "less than the names of all requests"
