"""Try what is done about a finding: the rule's action, an override by namespace or pool, an exemption with its end."""

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook import reports
from webhook.api import admission
from webhook.api.selectors import Selector
from webhook.documents import files
from webhook.documents.documents import read as documents_read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.facts.sources import Dated
from webhook.model import Action, Request, Requester, Verdict
from webhook.policy.actions import Exemption, Override
from webhook.policy.model import Policy
from webhook.policy.scopes import Requesters, Scope
from webhook.rules import walk
from webhook.scan.judge import judge
from webhook.scan.results import Judged, Report

DAY = date(2027, 3, 31)
RULE = "unsteered-pod"
VISION = Scope(frozenset({"vision"}), None, frozenset())
LABELLED = Scope(frozenset(), Selector({"slicewarden.dev/trust": "trusted"}), frozenset())


def request(namespace: str = "vision", account: str = "default", trust: str = "untrusted") -> Request:
    spec: dict[str, Any] = {
        "serviceAccountName": account,
        "containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
    }
    pod = {"metadata": {"annotations": {"slicewarden.dev/trust": trust}}, "spec": spec}
    return Request("u", "CREATE", "", "v1", "Pod", "", namespace, "x", None, False, pod, None)


def judged(policy: Policy, facts: Facts, asked: Request) -> Verdict:
    """Judge a pod as it stands, and see that what is not denied is not patched either."""
    engine = Engine(policy, walk())
    verdict = engine.validate(asked, facts)
    denied = any(result.finding.fixes for result in verdict.having(Action.DENY))
    assert bool(engine.mutate(asked, facts).patch) is denied
    return verdict


def actions(verdict: Verdict) -> set[Action]:
    return {result.action for result in verdict.results if result.rule == RULE}


def test_an_override_of_pools_does_not_apply_to_a_pod_that_belongs_to_none(
    sample_policy: Policy, sample_facts: Facts
) -> None:
    override = Override(None, frozenset({"shared"}), {"privileged-container": Action.WARN})
    containers = [{"name": "a", "securityContext": {"privileged": True}}]
    pod = {"spec": {"containers": containers, "tolerations": [{"operator": "Exists"}]}}
    verdict = Engine(replace(sample_policy, overrides=(override,)), walk()).validate(
        replace(request("visitors"), object=pod), sample_facts
    )
    assert "privileged-container" in {result.rule for result in verdict.having(Action.DENY)}


@pytest.mark.parametrize(
    ("override", "namespace", "action"),
    [
        (Override(VISION, frozenset(), {RULE: Action.AUDIT}), "vision", Action.AUDIT),
        (Override(VISION, frozenset(), {RULE: Action.AUDIT}), "visitors", Action.DENY),
        (Override(VISION, frozenset(), {"*": Action.AUDIT}), "vision", Action.AUDIT),
        (Override(VISION, frozenset(), {"*": Action.AUDIT}), "visitors", Action.DENY),
        (Override(VISION, frozenset(), {"*": Action.AUDIT, RULE: Action.WARN}), "vision", Action.WARN),
        (Override(VISION, frozenset(), {"*": Action.AUDIT, "multiple-slices": Action.DENY}), "vision", Action.AUDIT),
        (Override(VISION, frozenset(), {"multiple-slices": Action.AUDIT}), "vision", Action.DENY),
        (Override(None, frozenset({"exclusive"}), {RULE: Action.WARN}), "visitors", Action.WARN),
        (Override(None, frozenset({"shared"}), {RULE: Action.WARN}), "visitors", Action.DENY),
        (Override(VISION, frozenset({"exclusive"}), {RULE: Action.WARN}), "visitors", Action.DENY),
        (
            Override(
                LABELLED,
                frozenset(),
                {RULE: Action.WARN},
            ),
            "vision",
            Action.WARN,
        ),
    ],
)
def test_override(
    sample_policy: Policy, sample_facts: Facts, override: Override, namespace: str, action: Action
) -> None:
    policy = replace(sample_policy, overrides=(override,))
    assert actions(judged(policy, sample_facts, request(namespace))) == {action}


def test_an_override_of_every_rule_counts_over_a_rule_that_the_policy_names(
    sample_policy: Policy, sample_facts: Facts
) -> None:
    every = Override(VISION, frozenset(), {"*": Action.AUDIT})
    policy = replace(sample_policy, actions={"*": Action.DENY, RULE: Action.WARN}, overrides=(every,))
    assert actions(judged(policy, sample_facts, request())) == {Action.AUDIT}
    assert actions(judged(policy, sample_facts, request("visitors"))) == {Action.WARN}


@pytest.mark.parametrize(("first", "second"), [(RULE, "*"), ("*", RULE)])
def test_the_first_override_counts_whether_it_names_the_rule_or_every_rule(
    sample_policy: Policy, sample_facts: Facts, first: str, second: str
) -> None:
    both = Override(VISION, frozenset(), {first: Action.WARN}), Override(VISION, frozenset(), {second: Action.AUDIT})
    assert actions(judged(replace(sample_policy, overrides=both), sample_facts, request())) == {Action.WARN}


def test_the_first_of_two_overrides_counts(sample_policy: Policy, sample_facts: Facts) -> None:
    both = (
        Override(VISION, frozenset(), {RULE: Action.WARN}),
        Override(None, frozenset({"exclusive"}), {RULE: Action.AUDIT}),
    )
    policy = replace(sample_policy, overrides=both)
    assert actions(judged(policy, sample_facts, request())) == {Action.WARN}
    assert actions(judged(policy, sample_facts, request("visitors"))) == {Action.AUDIT}


@pytest.mark.parametrize(
    ("until", "today", "action"),
    [
        (DAY, DAY, Action.AUDIT),
        (DAY, date(2027, 4, 1), Action.DENY),
        (DAY, None, Action.DENY),
        (None, None, Action.AUDIT),
    ],
)
def test_an_exemption_ends_after_its_last_day(
    sample_policy: Policy, sample_facts: Facts, until: date | None, today: date | None, action: Action
) -> None:
    policy = replace(sample_policy, exemptions=(Exemption("moving", VISION, frozenset(), until),))
    facts = replace(sample_facts, today=today)
    verdict = judged(policy, facts, request())
    assert actions(verdict) == {action}
    assert {result.exemption for result in verdict.results} == ({"moving"} if action is Action.AUDIT else {""})


def test_an_exemption_covers_only_its_rules_accounts_and_namespaces(sample_policy: Policy, sample_facts: Facts) -> None:
    agents = Scope(frozenset({"vision"}), None, frozenset({"agent"}))
    policy = replace(sample_policy, exemptions=(Exemption("agents", agents, frozenset({RULE}), None),))
    assert actions(judged(policy, sample_facts, request(account="agent"))) == {Action.AUDIT}
    assert actions(judged(policy, sample_facts, request(account="other"))) == {Action.DENY}
    assert actions(judged(policy, sample_facts, request("visitors", "agent"))) == {Action.DENY}
    unearned = judged(policy, sample_facts, request("vision", "agent", trust="high"))
    assert {result.action for result in unearned.results if result.rule == "unearned-trust"} == {Action.DENY}


def test_exempt_findings_are_recorded_by_name(sample_policy: Policy, sample_facts: Facts) -> None:
    policy = replace(sample_policy, exemptions=(Exemption("moving", VISION, frozenset(), None),))
    asked = request()
    answer = admission.encode(asked, judged(policy, sample_facts, asked)).decode()
    assert '"allowed":true' in answer
    assert f'"{RULE}":"exempted by moving: spec: ' in answer


@given(day=st.dates(), later=st.dates())
def test_dated_facts_stay_one_object_for_a_day(day: date, later: date) -> None:
    days = [day, day, later]
    facts = Facts()
    source = Dated(lambda: facts, lambda: days.pop(0))
    first, second, third = source(), source(), source()
    assert first is second
    assert first is not None
    assert third is not None
    assert (first.today, third.today) == (day, later)


def test_there_are_no_facts_before_the_first() -> None:
    assert Dated(lambda: None, date.today)() is None


@pytest.mark.parametrize(
    ("requester", "included"),
    [
        (Requester("jane", frozenset()), True),
        (Requester("joe", frozenset({"platform"})), True),
        (Requester("joe", frozenset({"jane"})), False),
        (Requester("platform", frozenset()), False),
        (Requester("", frozenset()), False),
    ],
)
def test_administrators(requester: Requester, included: bool) -> None:
    assert Requesters(frozenset({"jane"}), frozenset({"platform"})).include(requester) is included


@pytest.mark.parametrize("name", ["json", "table"])
def test_reports_name_the_exemption(sample_policy: Policy, sample_facts: Facts, name: str) -> None:
    policy = replace(sample_policy, exemptions=(Exemption("moving", VISION, frozenset(), None),))
    pod = {"apiVersion": "v1", "kind": "Pod", **(request().object or {})}
    pod["metadata"] = {**pod["metadata"], "namespace": "vision"}
    documents, problems = documents_read(json.dumps(pod), "pod.json")
    (item,), more = files.items(documents)
    assert not (*problems, *more)
    judged = judge(item, Engine(policy, walk()), sample_facts)
    assert isinstance(judged, Judged)
    report = Report((judged,), everything=True)
    assert report.count(allowed=True) == 1
    assert {"json": '"exemption": "moving"', "table": "(exempted by moving)"}[name] in reports.render(name, report)
