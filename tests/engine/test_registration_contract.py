"""The registration against the contract with the API server, and every line of that contract against a breach."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.support.manifests import REGISTRATION, read
from tests.support.objects import Object
from tests.support.registration_contract import LINES, broken
from webhook.engine.registration import configurations
from webhook.policy.model import Policy

RULE: Object = {"apiVersions": ["v1"], "operations": ["CREATE"]}
# One breach of every line: done to the first webhook of the validating half, but where a line speaks of another.
BREACHES: dict[int, Callable[[Object, Object], Any]] = {
    45: lambda _, hook: hook.update(name="pods"),
    46: lambda _, hook: hook.update(sideEffects="Some"),
    47: lambda _, hook: hook.update(admissionReviewVersions=["v1", "v1beta1"]),
    48: lambda _, hook: hook.pop("timeoutSeconds"),
    49: lambda mutate, _: mutate.update(timeoutSeconds=10),
    50: lambda _, hook: hook.pop("failurePolicy"),
    51: lambda _, hook: hook.update(matchPolicy="Exact"),
    52: lambda _, hook: hook["matchConditions"].append({"name": "labels", "expression": "namespaceObject.metadata"}),
    53: lambda mutate, _: mutate.update(matchConditions=[{"name": "mine", "expression": "true"}]),
    54: lambda _, hook: hook.update(objectSelector={"matchLabels": {"judge": "me"}}),
    55: lambda _, hook: hook.pop("namespaceSelector"),
    56: lambda _, hook: hook["rules"].append({**RULE, "apiGroups": [""], "resources": ["pods/*"]}),
    57: lambda _, hook: hook["rules"][0]["resources"].remove("pods/resize"),
    58: lambda _, hook: hook["rules"].append(
        {**RULE, "apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations"]}
    ),
    59: lambda _, hook: hook["rules"].append(
        {**RULE, "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"]}
    ),
    60: lambda _, hook: hook["clientConfig"]["service"].pop("path"),
}


def test_the_registration_of_the_sample_keeps_the_contract() -> None:
    assert broken(read(REGISTRATION)) == []


def test_every_line_of_the_contract_has_a_breach_in_the_tests() -> None:
    assert [*LINES] == [*BREACHES] == [*range(45, 61)]


@pytest.mark.parametrize("line", BREACHES)
def test_a_breach_is_found(sample_policy: Policy, line: int) -> None:
    found = deepcopy([*configurations(sample_policy)])
    BREACHES[line](found[0]["webhooks"][0], found[1]["webhooks"][0])
    assert str(line) in {each.partition(":")[0] for each in broken(found)}


def test_one_of_the_two_configurations_breaks_the_contract(sample_policy: Policy) -> None:
    assert broken(configurations(sample_policy)[:1]) != []
