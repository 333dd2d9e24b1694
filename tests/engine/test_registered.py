"""Compare what is registered with what the policy needs: what an installation adds counts for nothing."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.support.objects import Object
from tests.support.policies import POLICY, policy_of
from webhook.engine.registered import differences, ours
from webhook.engine.registration import MADE_FROM, configurations
from webhook.policy.model import Policy


def stored(policy: Policy) -> list[Object]:
    """The configurations as an API server gives them back: with defaults, a caBundle and metadata of its own."""
    made = [deepcopy(each) for each in configurations(policy)]
    for each in made:
        each["metadata"] |= {"uid": "u", "generation": 4, "managedFields": []}
        each["metadata"]["annotations"] = {**each["metadata"]["annotations"], "cert-manager.io/inject-ca-from": "a/b"}
        for hook in each["webhooks"]:
            hook["clientConfig"]["caBundle"] = "Y2E="
            hook.setdefault("namespaceSelector", {})
            hook["objectSelector"] = {}
            for rule in hook["rules"]:
                rule["scope"] = "*"
    return made


def test_what_the_api_server_and_the_installation_add_is_no_difference(sample_policy: Policy) -> None:
    assert differences(sample_policy, stored(sample_policy)) == []


def test_audit_mode_is_no_difference_and_one_webhook_that_ignores_is(sample_policy: Policy) -> None:
    found = stored(sample_policy)
    for hook in found[1]["webhooks"]:
        hook["failurePolicy"] = "Ignore"
    assert differences(sample_policy, found) == []
    found = stored(sample_policy)
    found[1]["webhooks"][0]["failurePolicy"] = "Ignore"
    assert differences(sample_policy, found) == [
        'pods.slicewarden.dev: failurePolicy is "Ignore", but must be "Fail"',
    ]


def test_another_guard_is_named() -> None:
    text = POLICY.read_text("utf-8")
    before, after = policy_of(text), policy_of(text.replace("slicewarden.dev/pool", "nvidia.com/gpu"))
    said = differences(after, stored(before))
    assert said[0] == (
        "MutatingWebhookConfiguration, ValidatingWebhookConfiguration: was made from policy "
        f"{before.digest}, but this policy is {after.digest}"
    )
    assert said[1].endswith('more: the condition lacks "nvidia.com/gpu" and still has "slicewarden.dev/pool"')


def test_a_policy_with_other_words_for_the_same_conditions_is_another_policy() -> None:
    text = POLICY.read_text("utf-8")
    before, after = policy_of(text), policy_of(text.replace("maxReplicas: 8", "maxReplicas: 4"))
    (said,) = differences(after, stored(before))
    assert "was made from policy" in said


Break = Callable[[list[Any]], Any]

BREAKS: list[tuple[Break, str]] = [
    (lambda found: found.pop(0), "MutatingWebhookConfiguration: is not registered"),
    (lambda found: found[1]["metadata"]["annotations"].pop(MADE_FROM), "does not say which policy it was made from"),
    (lambda found: found[1]["metadata"].pop("annotations"), "does not say which policy it was made from"),
    (lambda found: found[1]["webhooks"].pop(0), "pods.slicewarden.dev: is missing"),
    (lambda found: found[1].pop("webhooks"), "more: is missing"),
    (lambda found: found[1]["webhooks"].append({"name": "own.example.com"}), "own.example.com: is not needed"),
    (
        lambda found: found[0]["webhooks"][0].update(objectSelector={"matchLabels": {"a": "b"}}),
        "objectSelector differs",
    ),
    (lambda found: found[0]["webhooks"][0]["rules"].pop(), "mutate.slicewarden.dev: rules differs"),
    (lambda found: found[0]["webhooks"][0]["rules"][0].update(scope="Cluster"), "rules differs"),
    (lambda found: found[0]["webhooks"][0].update(timeoutSeconds=30), "timeoutSeconds is 30, but must be 3"),
    (lambda found: found[0]["webhooks"][0].update(matchConditions=None), "the condition lacks "),
    (lambda found: found[0]["webhooks"][0]["clientConfig"].update(url="https://b"), "clientConfig differs"),
    (lambda found: found[0]["webhooks"][0].update(clientConfig=1, rules=2), "clientConfig differs"),
]


@pytest.mark.parametrize(("broken", "says"), BREAKS)
def test_what_differs_is_said(sample_policy: Policy, broken: Break, says: str) -> None:
    found = stored(sample_policy)
    broken(found)
    said = differences(sample_policy, found)
    assert any(says in line for line in said), said
    assert all(len(line) < 400 for line in said)


def test_only_ours_are_compared(sample_policy: Policy) -> None:
    others: list[Object] = [
        {"kind": "MutatingWebhookConfiguration", "metadata": {"name": "cert-manager"}},
        {"kind": "Pod"},
    ]
    assert ours(others) == []
    assert differences(sample_policy, [*others, *stored(sample_policy)]) == []
