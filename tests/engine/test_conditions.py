"""Every rule is asked about what it judges: each fixture, against the registration made from its policy.

A fixture whose request an API server never sends says why, in a last line of its own: `# not sent: ...`. Of one that it
refuses before it asks anybody, it is `# refused: ...`, and tests/evaluator asks whether it does.
"""

import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import Object, receivers, request_of
from tests.support.fixtures import FILES, REFUSED, RULES, fixture, settings, verb
from webhook.api.admission import decode, wrap
from webhook.engine.engine import Engine
from webhook.engine.registration import configurations
from webhook.policy.model import Policy

NOT_SENT = re.compile(r"^# not sent: .+\n\Z", re.MULTILINE)
SPOKEN_OF = [file for file in FILES if verb(file) != "allow"]


@cache
def webhooks(rule: str, half: str) -> Sequence[Object]:
    """The webhooks of a half, as they are registered for the policy of a rule's fixtures."""
    return _half(settings(rule)[0], half)


def _half(policy: Policy, half: str) -> Sequence[Object]:
    return [hook for each in configurations(policy) if each["kind"].startswith(half) for hook in each["webhooks"]]


@pytest.mark.parametrize("rule", RULES)
def test_the_conditions_send_every_fixture_that_a_rule_flags(rule: str) -> None:
    for file in SPOKEN_OF:
        if file.parent.name == rule:
            is_sent(file)


def is_sent(file: Path) -> None:
    document, _, _ = fixture(file)
    half = "Mutating" if verb(file) == "patch" else "Validating"
    heard = receivers(webhooks(file.parent.name, half), request_of(document.value))
    if REFUSED.search(file.read_text("utf-8")):
        return
    if NOT_SENT.search(file.read_text("utf-8")):
        assert heard == [], f"{file.stem} is sent: remove the comment"
    else:
        assert len(heard) == 1, f"{file.stem}, {half}: webhook/engine/conditions.py does not let it through"


@pytest.mark.parametrize("rule", RULES)
def test_where_nothing_guards_the_nodes_pods_that_tolerate_nothing_are_sent_too(rule: str) -> None:
    policy, facts = settings(rule)
    policy = replace(policy, guard=None)
    hooks, engine = _half(policy, "Validating"), Engine(policy, [RULES[rule]])
    for file in SPOKEN_OF:
        item = deepcopy(fixture(file)[0].value)
        if file.parent.name == rule and verb(file) == "deny" and item["kind"] == "Pod":
            item["spec"].pop("tolerations", None)
            verdict = engine.judge(decode(wrap(item)), facts)
            assert verdict.malformed or verdict.allowed or receivers(hooks, request_of(item)), file.stem


@pytest.mark.parametrize("rule", RULES)
def test_the_conditions_send_a_fixture_of_every_rule(rule: str) -> None:
    sent = [file for file in SPOKEN_OF if file.parent.name == rule and not NOT_SENT.search(file.read_text("utf-8"))]
    assert sent


def pod(namespace: str = "vision", **spec: Any) -> Object:
    metadata = {"name": "a", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "a"}], **spec}}


ASKS: Object = {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}


@pytest.mark.parametrize(
    ("item", "heard"),
    [
        (pod(**ASKS), ["pods.slicewarden.dev"]),
        (pod(), []),
        (pod("kube-system", **ASKS), []),
        (pod("gpu-operator", **ASKS), []),
        ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "nvidia.com/gpu"}}, []),
    ],
)
def test_the_conditions_do_not_send_plain_objects(sample_policy: Policy, item: Object, heard: list[str]) -> None:
    assert receivers(_half(sample_policy, "Validating"), request_of(item)) == heard


def test_a_config_map_of_kube_system_is_sent_if_the_policy_names_it(sample_policy: Policy) -> None:
    def heard(policy: Policy, name: str) -> list[str]:
        metadata = {"name": name, "namespace": "kube-system"}
        item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "sharing: {}"}}
        return receivers(_half(policy, "Validating"), request_of(item))

    named = replace(sample_policy, config_maps=frozenset({("kube-system", "nvidia-plugin-configs")}))
    assert heard(named, "nvidia-plugin-configs") == ["named-configmaps.slicewarden.dev"]
    assert heard(named, "coredns") == []
    assert heard(sample_policy, "nvidia-plugin-configs") == []


def test_a_schedulers_binding_and_a_deletion_are_not_sent(sample_policy: Policy) -> None:
    hooks = _half(sample_policy, "Validating")
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a", "namespace": "vision"}, "target": {}}
    scheduler = {"username": "system:kube-scheduler", "groups": []}
    assert receivers(hooks, request_of(binding)) == ["bindings.slicewarden.dev"]
    assert receivers(hooks, {**request_of(binding), "userInfo": scheduler}) == []
    assert receivers(hooks, {**request_of(pod(**ASKS)), "operation": "DELETE"}) == []


@pytest.mark.parametrize(("policy", "heard"), [("Fail", ["mine"]), ("Ignore", [])])
def test_a_condition_that_breaks_refuses_where_the_webhook_is_required(policy: str, heard: list[str]) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    conditions = [{"name": "breaks", "expression": "object.spec.nothing == 1"}]
    hook = {"name": "mine", "rules": [rule], "matchConditions": conditions, "failurePolicy": policy}
    assert receivers([hook], request_of(pod())) == heard
