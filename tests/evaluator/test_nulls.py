"""A null is no value, to the rules and to the conditions under which an API server asks about an object.

A condition that fails refuses an honest object where the webhook is required, and sends nothing where it is not. Charts
write nulls, and kinds with `x-kubernetes-preserve-unknown-fields` keep them. In Kubernetes' own kinds an API server
writes some itself, such as for the requests of a claim that has none.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.evaluator.evaluator import Evaluator
from tests.support.conditions import Object, request_of
from tests.support.fixtures import settings
from webhook.api import admission
from webhook.engine.engine import Engine
from webhook.engine.registration import Webhook, webhooks
from webhook.facts.snapshot import Facts
from webhook.fallback.policies import fallback
from webhook.policy.model import Policy
from webhook.rules import walk

KINDS = {
    file.stem: yaml.safe_load(file.read_text("utf-8")) for file in sorted((ROOT / "tests" / "kinds").glob("*.yaml"))
}
POLICY, FACTS = settings("unsteered-pod")
FIELDS = (
    *("nodeName", "runtimeClassName", "resourceClaims", "tolerations", "hostPID", "hostIPC", "volumes", "nodeSelector"),
    *("securityContext", "containers", "initContainers", "ephemeralContainers", "metadata", "annotations", "labels"),
)
OF_CONTAINERS = ("resources", "env", "envFrom", "volumeMounts", "volumeDevices", "securityContext", "command", "args")


def with_nulls(value: Any) -> Iterator[Any]:
    """Yield a value with a null at one place of it: in place of a part, as one more entry, or for a field of pods."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield {**value, key: None}
            yield from ({**value, key: one} for one in with_nulls(each))
        if "containers" in value:
            yield from ({**value, name: None} for name in FIELDS if name not in value)
            yield {**value, "tolerations": [{"key": None, "operator": "Exists"}, None]}
        if "image" in value or "resources" in value:
            yield from ({**value, name: None} for name in OF_CONTAINERS if name not in value)
            empty = {"limits": None, "requests": None, "claims": None}
            yield {**value, "env": [None, {"name": None}], "volumeMounts": [{"mountPath": None}], "resources": empty}
    elif isinstance(value, list):
        yield [*value, None]
        for index, each in enumerate(value):
            yield from ([*value[:index], one, *value[index + 1 :]] for one in with_nulls(each))


def whole(item: Object) -> Iterator[Object]:
    """Yield an object with a null at one place, except where an API server needs a value."""
    yield item
    for part in item.keys() - {"apiVersion", "kind", "metadata"}:
        yield from ({**item, part: each} for each in (None, *with_nulls(item[part])))
    metadata = item["metadata"]
    for each in with_nulls(metadata):
        if each.get("name") and each.get("namespace") == metadata.get("namespace"):
            yield {**item, "metadata": each}


def asked(hook: Webhook) -> Object:
    """A policy that finds what a webhook is asked about: it denies those objects, and fails as the condition does."""
    rules = [
        {"apiGroups": [group], "apiVersions": ["*"], "resources": [*resources], "operations": [*operations]}
        for group, resources, operations in hook.rules
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": hook.name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": f"!({hook.condition[1]})", "message": "asked"}],
        },
    }


@pytest.fixture(scope="module", params=["guarded", "unguarded"])
def policy(request: pytest.FixtureRequest) -> Policy:
    """The sample policy, and one without a guard, which has more conditions."""
    return POLICY if request.param == "guarded" else replace(POLICY, guard=None)


@pytest.fixture(scope="module")
def conditions(evaluator: Evaluator, policy: Policy) -> str:
    """The conditions of the registration, compiled by the API server's own code."""
    return evaluator.compiled([*map(asked, webhooks(policy))])


def judged(evaluator: Evaluator, conditions: str, policy: Policy, item: Object) -> bool:
    """Whether a creation is asked about. No condition fails, and none leaves out what the engine denies."""
    request = request_of(item)
    settled = evaluator.settled(request)
    if settled is None:
        return True
    found = evaluator.judge(conditions, settled, Facts())
    assert found.errors == [], item
    review = {"apiVersion": admission.API_VERSION, "kind": "AdmissionReview", "request": settled}
    verdict = Engine(policy, walk()).validate(admission.decode(json.dumps(review).encode()), FACTS)
    assert found.denied or verdict.allowed or verdict.malformed, item
    return bool(found.denied)


@pytest.mark.parametrize("kind", KINDS)
def test_no_null_breaks_a_condition(evaluator: Evaluator, conditions: str, policy: Policy, kind: str) -> None:
    answers = [judged(evaluator, conditions, policy, each) for each in whole(KINDS[kind])]
    assert any(answers)


CONFIGURES = {"opaque": {"driver": "gpu.nvidia.com", "parameters": {}}}


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_a_claim_without_requests_breaks_nothing(
    evaluator: Evaluator, conditions: str, policy: Policy, kind: str
) -> None:
    """Neither a condition, nor the fallback, which a claim reaches that configures a driver."""
    by = evaluator.compiled(fallback(policy, walk()))
    for part, sent in ((None, False), ([], False), ([CONFIGURES], True)):
        spec = {"devices": {} if part is None else {"config": part}}
        inner = spec if kind == "ResourceClaim" else {"spec": spec}
        metadata = {"name": "x", "namespace": "vision"}
        item = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": inner}
        assert judged(evaluator, conditions, policy, item) is sent
        settled = evaluator.settled(request_of(item))
        assert settled is not None
        answer = evaluator.judge(by, settled, FACTS)
        assert (bool(answer.asked), answer.errors) == (sent, [])
