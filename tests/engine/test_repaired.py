"""Findings that `/mutate` would repair are told from those that will be refused."""

from dataclasses import replace

import pytest

from tests.support import fixtures
from webhook.api import admission
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Request, Verdict
from webhook.policy.actions import EVERY_RULE, Exemption
from webhook.policy.scopes import Scope

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}


def auditing(engine: Engine, action: Action = Action.AUDIT) -> Engine:
    return Engine(replace(engine.policy, actions={EVERY_RULE: action}, overrides=()), engine.rules)


def request(kind: str = "Pod", **spec: object) -> Request:
    pod = {"containers": [{"name": "c", **GPU}], **spec}
    body = pod if kind == "Pod" else {"template": {"spec": pod}}
    version = "v1" if kind == "Pod" else "apps/v1"
    value = {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "red"}, "spec": body}
    return admission.decode(admission.wrap(value))


def judged(engine: Engine, asked: Request, facts: Facts) -> Verdict:
    return engine.marked(asked, facts, engine.judge(asked, facts))


@pytest.mark.parametrize("action", [Action.AUDIT, Action.WARN])
@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_an_honest_pod_would_be_repaired(engine: Engine, sample_facts: Facts, kind: str, action: Action) -> None:
    verdict = judged(auditing(engine, action), request(kind), sample_facts)
    assert [(result.rule, result.action) for result in verdict.results] == [
        ("unguarded-container", action),
        ("unsteered-pod", action),
    ]
    assert all(result.repaired and result.remark == "would be repaired" for result in verdict.results)


def test_what_will_be_refused_is_not_marked(engine: Engine, sample_facts: Facts) -> None:
    verdict = judged(auditing(engine), request(hostPID=True), sample_facts)
    marks = {result.rule: result.repaired for result in verdict.results}
    assert marks == {"host-namespaces": False, "unguarded-container": True, "unsteered-pod": True}


def test_what_is_exempted_stays_as_it_is(engine: Engine, sample_facts: Facts) -> None:
    scope = Scope(frozenset(("red",)), None, frozenset())
    exemption = Exemption("e", scope, frozenset(("unsteered-pod",)), None)
    exempting = Engine(replace(engine.policy, exemptions=(exemption,)), engine.rules)
    verdict = judged(exempting, request(), sample_facts)
    assert [(result.exemption, result.repaired) for result in verdict.results] == [("e", False)]


@pytest.mark.parametrize("rule", fixtures.FOLDERS)
def test_a_finding_that_would_be_repaired_is_one_with_fixes(rule: str) -> None:
    engine, facts = fixtures.engine_of(rule, alone=False)
    for file in fixtures.files_of(rule):
        asked = fixtures.fixture(file)[2]
        if asked.operation != "CREATE" or asked.subresource or "mirror" in file.name:
            continue  # of which less or nothing is patched
        for result in judged(auditing(engine), asked, facts).results:
            if not (result.exemption or result.finding.advice):
                assert result.repaired is bool(result.finding.fixes), (file.name, result.text)
