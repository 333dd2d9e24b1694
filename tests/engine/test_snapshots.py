"""The cost of the first review after a change in the cluster."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.support.cost import calls
from tests.support.policies import FACTS
from tests.support.strategies import request_for
from webhook.cli.inputs import load_facts
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts, joined
from webhook.gpu.selection import known_nodes
from webhook.policy.model import Policy
from webhook.rules import walk


def pod(spec: dict[str, Any], resource: str = "nvidia.com/gpu") -> dict[str, Any]:
    container = {"name": "a", "image": "b", "resources": {"limits": {resource: 1}}}
    metadata = {"name": "a", "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


PODS = {
    "plain": pod({}),
    "selecting": pod({"nodeSelector": {"zone": "a"}}),
    "tolerating": pod({"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}]}),
    "on-a-node": pod({"nodeName": "a"}, "cpu"),
    "of-another-name": pod({}, "nvidia.com/gpu.unknown"),
}


@pytest.mark.parametrize("name", PODS)
def test_a_change_of_another_object_has_no_node_looked_at_again(sample_policy: Policy, name: str) -> None:
    """Any tenant may change a claim ten times a second."""
    costs = [_after_a_change(nodes, sample_policy, PODS[name]) for nodes in (_nodes(10), _nodes(100))]
    assert costs[0] == costs[1]


def test_a_snapshot_with_other_nodes_has_only_those(sample_policy: Policy) -> None:
    """The agent's test of a card that changes failed while a copy kept the snapshot of the nodes before."""
    both = joined([Facts.of([{"kind": "Namespace", "metadata": {"name": "a"}}]), _nodes(1)])
    assert both.of_nodes is not both
    assert [*both.named.values()] == [*both.nodes]
    fewer = replace(both, nodes=both.nodes[1:])
    assert fewer.of_nodes is fewer
    assert [*fewer.named.values()] == [*fewer.nodes]
    shared = next(pool for pool in sample_policy.pools if pool.shared)
    assert known_nodes(shared, both)
    assert known_nodes(shared, replace(both, nodes=())) == ()


def _nodes(times: int) -> Facts:
    """Return the sample nodes, each several times."""
    objects = [each.value for each in load_facts([str(FACTS)])]
    nodes = [each for each in objects if each["kind"] == "Node"]
    named = [copy.deepcopy(node) for node in nodes for _ in range(times)]
    for number, node in enumerate(named):
        node["metadata"]["name"] += f"-{number}"
    return Facts.of(named)


def _after_a_change(nodes: Facts, policy: Policy, item: dict[str, Any]) -> int:
    """Return the calls of a review after a change of a namespace. The same pod was reviewed before it."""
    engine, request = Engine(policy, walk()), request_for(item)
    spaces = [each.value for each in load_facts([str(FACTS)]) if each.value["kind"] == "Namespace"]
    before, after = (joined([Facts.of(spaces), nodes]) for _ in range(2))
    engine.mutate(request, before)
    engine.validate(request, before)
    return calls(lambda: (engine.mutate(request, after), engine.validate(request, after)))
