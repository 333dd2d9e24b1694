"""The essential part of a pod's spec gives the same allowances and slices as the whole spec."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fixtures import FILES, RULES, fixture, settings
from webhook.catalog.device_variables import MEMORY_LIMIT
from webhook.cluster.decoding import decoded
from webhook.memory.admitted import admitted
from webhook.memory.essential import FIELDS, essential
from webhook.usage.held import held_by

TERMS: list[dict[str, Any]] = [{}] * 200_000


def pods(rule: str) -> Iterator[Any]:
    for file in FILES:
        if file.parent.name == rule:
            for document in fixture(file):
                value = getattr(document, "value", None)
                item = value.get("request", {}).get("object", value) if isinstance(value, dict) else None
                if isinstance(item, dict) and item.get("kind") == "Pod" and isinstance(item.get("spec"), dict):
                    yield item


def inflated(pod: Any) -> Any:
    """A pod with as much as a tenant may write next to what counts."""
    large = json.loads(json.dumps(pod))
    large["spec"]["affinity"] = {"nodeAffinity": {"preferred": TERMS}}
    large["spec"]["volumes"] = [{"name": f"v{number}", "emptyDir": {}} for number in range(1_000)]
    for container in large["spec"].get("containers") or ():
        if isinstance(container, dict) and isinstance(container.get("env", []), list):
            others = [{"name": f"A{number}", "value": "x"} for number in range(1_000)]
            container["env"] = [*others, *container.get("env", [])]
            container["args"] = ["x"] * 10_000
    return large


@pytest.mark.parametrize("rule", RULES)
def test_the_essential_part_gives_the_same_allowances_and_slices(rule: str) -> None:
    policy, facts = settings(rule)
    for pod in pods(rule):
        large = inflated(pod)
        cut = decoded(json.dumps(large).encode(), ("metadata.name", "metadata.namespace", *FIELDS))
        cut["spec"] = essential(cut["spec"])
        assert len(json.dumps(cut)) < len(json.dumps(pod)) + 1_000
        for node in facts.nodes:
            assert admitted(cut, policy, facts, node) == admitted(large, policy, facts, node)
        assert held_by(cut, policy, facts) == held_by(large, policy, facts)


def test_the_last_of_many_variables_of_one_name_counts_as_it_does_for_the_kubelet() -> None:
    env = [{"name": MEMORY_LIMIT, "value": str(number)} for number in range(9)]
    (container,) = essential({"containers": [{"name": "a", "env": env}]})["containers"]
    assert container == {"name": "a", "env": [{"name": MEMORY_LIMIT, "value": "8"}]}
