"""The essential part of a pod's spec gives the same allowances and slices as the whole spec."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.fixtures import FILES, RULES, fixture, settings
from webhook.catalog.device_variables import MEMORY_LIMIT
from webhook.cluster.decoding import decoded
from webhook.memory.admitted import admitted
from webhook.memory.essential import FIELDS, essential
from webhook.policy.model import ALL, PRIORITY_CLASS, TURNS, Contention
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


class Recorder(dict[str, Any]):
    """A map that notes which of its keys are read, by their paths."""

    def __init__(self, value: dict[str, Any], path: str, read: set[str]) -> None:
        super().__init__({key: recording(each, f"{path}{key}", read) for key, each in value.items()})
        self._path, self._read = path, read

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add(f"{self._path}{key}")
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._read.add(f"{self._path}{key}")
        return super().__getitem__(key)


def recording(value: Any, path: str, read: set[str]) -> Any:
    if isinstance(value, dict):
        return Recorder(value, f"{path}." if path else "", read)
    return [recording(each, f"{path}[]", read) for each in value] if isinstance(value, list) else value


NAMES = ("metadata.name", "metadata.namespace")
UNUSED = ("spec.affinity", "status")
"""Fields that the view of a pod reads for others, and those that `webhook.agent.observe.pods` names."""


def test_each_field_that_is_read_is_among_those_that_are_decoded() -> None:
    """Turns, probes and groups were forgotten once: containers with probes were frozen as if they had none."""
    read = set[str]()
    turns = Contention(mode=TURNS, who=ALL, order=PRIORITY_CLASS)
    for rule in RULES:
        policy, facts = settings(rule)
        pools = tuple(replace(pool, contention=turns, driver_limits=True) for pool in policy.pools)
        for pod in pods(rule):
            item = recording(pod, "", read)
            for node in facts.nodes:
                admitted(item, replace(policy, pools=pools), facts, node)
            held_by(item, policy, facts)
    known = (*NAMES, *FIELDS, *UNUSED)
    above = {
        ".".join(parts[:end]) for parts in (field.replace("[]", "").split(".") for field in known) for end in range(9)
    }
    named = {field.replace("[]", "") for field in known}
    unknown = {
        path
        for path in (each.replace("[]", "") for each in read)
        if path not in above and not any(path == field or path.startswith(f"{field}.") for field in named)
    }
    assert unknown == set()
    assert {"spec.priority", "spec.hostNetwork", "spec.containers[].livenessProbe"} <= read
