"""Audit mode: everything is let through unchanged, and what the policy would have done is said."""

from typing import Any

import orjson
import pytest
from hypothesis import given

from tests.support import strategies
from tests.support.objects import untrusted_pod
from tests.support.policies import RULES
from webhook.api import admission
from webhook.engine.audit_mode import AuditMode
from webhook.engine.engine import Engine, RuleBroke
from webhook.facts.snapshot import Facts
from webhook.model import Action, Malformed, Mode, Request, Verdict, Would
from webhook.rules import Rule, walk


def asked(pod: Any) -> Request:
    return admission.decode(admission.wrap(pod))


def greedy() -> Any:
    """A pod that no patch puts right."""
    pod = untrusted_pod()
    pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    return pod


def response(verdict: Verdict, request: Request) -> dict[str, Any]:
    answer: dict[str, Any] = orjson.loads(admission.encode(request, verdict, "0123"))["response"]
    return answer


def test_a_pod_that_would_be_denied_is_let_through_and_recorded(engine: Engine, sample_facts: Facts) -> None:
    request = asked(greedy())
    assert not engine.validate(request, sample_facts).allowed
    verdict = AuditMode(engine).validate(request, sample_facts)
    assert (verdict.allowed, verdict.would) == (True, Would.DENY)
    answer = response(verdict, request)
    assert answer.keys() == {"uid", "allowed", "auditAnnotations"}
    assert answer["allowed"] is True
    annotations = answer["auditAnnotations"]
    assert (annotations["policy"], annotations["mode"], annotations["would"]) == ("0123", "audit", "deny")
    assert "visible-devices" in annotations


def test_a_pod_that_would_be_patched_is_left_as_it_is(engine: Engine, sample_facts: Facts) -> None:
    request, audit = asked(untrusted_pod()), AuditMode(engine)
    assert engine.mutate(request, sample_facts).patch
    assert not engine.validate(request, sample_facts).allowed  # without the patch it would be denied
    mutated, validated = audit.mutate(request, sample_facts), audit.validate(request, sample_facts)
    assert (mutated.patch, mutated.would, validated.would) == ((), Would.PATCH, Would.PATCH)
    assert {result.action for result in validated.results} == {Action.AUDIT}
    assert all(result.repaired for result in validated.results)
    annotations = response(validated, request)["auditAnnotations"]
    assert annotations["unsteered-pod"].startswith("would be repaired: spec: ")
    assert "patch" not in response(mutated, request)


def test_a_plain_pod_would_be_allowed(engine: Engine, sample_facts: Facts) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"containers": [{"name": "a", "image": "i"}]},
    }
    verdict = AuditMode(engine).validate(asked(pod), sample_facts)
    assert (verdict.would, verdict.results) == (Would.ALLOW, ())


@pytest.mark.parametrize("half", ["mutate", "validate"])
def test_what_is_too_large_is_let_through_with_the_reason(engine: Engine, sample_facts: Facts, half: str) -> None:
    pod = untrusted_pod()
    pod["spec"]["containers"][0]["env"] = [{"name": f"A{number}", "value": "x"} for number in range(90_000)]
    request = asked(pod)
    refused = getattr(engine, half)(request, sample_facts)
    assert isinstance(refused.malformed, Malformed)
    assert not refused.allowed
    verdict = getattr(AuditMode(engine), half)(request, sample_facts)
    assert (verdict.allowed, verdict.would) == (True, Would.DENY)
    answer = response(verdict, request)
    assert answer["allowed"] is True
    assert "status" not in answer
    assert answer["auditAnnotations"]["unjudged"] == str(refused.malformed)


@pytest.mark.parametrize("half", ["mutate", "validate"])
def test_a_rule_that_breaks_decides_nothing(engine: Engine, sample_facts: Facts, half: str) -> None:
    def check(review: Any) -> Any:
        raise RuntimeError(review)

    pod = next(rule for rule in walk() if rule.mends)
    audit = AuditMode(Engine(engine.policy, [Rule("broken", pod.subject, check, "", mends=True)]))
    with pytest.raises(RuleBroke):
        getattr(audit, half)(asked(untrusted_pod()), sample_facts)


@given(pod=strategies.pods())
def test_it_says_what_enforcing_does(engine: Engine, sample_facts: Facts, pod: dict[str, Any]) -> None:
    """The API server asks for a patch, applies it, and has the outcome judged."""
    request, audit = strategies.request_for(pod), AuditMode(engine)
    both = engine.judge(request, sample_facts)
    mutated, validated = audit.mutate(request, sample_facts), audit.validate(request, sample_facts)
    assert mutated.allowed
    assert validated.allowed
    assert not mutated.patch
    assert {result.action for result in validated.results} <= {Action.AUDIT}
    assert (validated.would is Would.DENY) is not both.allowed
    if both.allowed:
        assert (mutated.would is Would.PATCH) is bool(both.patch)


def test_no_rule_has_the_name_of_an_annotation() -> None:
    assert set(RULES).isdisjoint({admission.POLICY, admission.MODE, admission.WOULD, admission.UNJUDGED})


def test_each_says_its_mode(engine: Engine) -> None:
    assert (engine.mode, AuditMode(engine).mode) == (Mode.ENFORCE, Mode.AUDIT)
    assert AuditMode(engine).policy is engine.policy
