"""The longest stay of a pool: no pod that is let in stays longer, and none that may stay is kept out."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fixtures import engine_of
from webhook.api import admission, jsonpatch
from webhook.engine.engine import Engine
from webhook.model import Action, Request
from webhook.policy.actions import Exemption
from webhook.policy.scopes import Scope

Object = dict[str, Any]

ENGINE, FACTS = engine_of("long-stay", alone=True)
HOURS = 28_800
"""The longest stay of the pool of these pods, in seconds."""
DEADLINE, GRACE = "activeDeadlineSeconds", "terminationGracePeriodSeconds"


def pod(**spec: object) -> Object:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    metadata = {"name": "a", "namespace": "visitors"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def job(**spec: object) -> Object:
    template = {"template": {"spec": pod(restartPolicy="Never", **spec)["spec"]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "namespace": "visitors"},
        "spec": template,
    }


def request(item: Object) -> Request:
    return admission.decode(admission.wrap(item))


seconds = st.one_of(st.integers(0, 60), st.integers(HOURS - 60, HOURS + 60), st.integers(0, 2**63 - 1))


@given(st.none() | seconds, st.none() | seconds)
def test_a_pod_that_is_let_in_stays_no_longer_than_its_pool_allows(deadline: int | None, grace: int | None) -> None:
    """The deadline and the grace period above Kubernetes' default together are at most the longest stay."""
    item = pod(**{DEADLINE: deadline, GRACE: grace})
    verdict = ENGINE.judge(request(item), FACTS)
    over = max(0, (30 if grace is None else grace) - 30)
    if not verdict.allowed:
        assert (1 if deadline is None else deadline) + over > HOURS
        return
    admitted: int = jsonpatch.apply(item, verdict.patch)["spec"][DEADLINE]
    assert admitted + over <= HOURS
    assert admitted == (HOURS - over if deadline is None else deadline)
    assert bool(verdict.patch) is (deadline is None)
    again = ENGINE.judge(request(pod(**{DEADLINE: admitted, GRACE: grace})), FACTS)
    assert (again.allowed, again.patch, again.results) == (True, (), ())


@pytest.mark.parametrize("value", ["3600", True, 3600.0, [3600]])
@pytest.mark.parametrize("key", [DEADLINE, GRACE])
def test_a_deadline_that_is_no_whole_number_is_malformed_in_a_pod_and_a_parameter_in_a_template(
    key: str, value: object
) -> None:
    malformed = ENGINE.judge(request(pod(**{key: value})), FACTS).malformed
    assert str(malformed) == f"spec.{key}: must be a whole number"
    assert ENGINE.judge(request(job(**{key: value})), FACTS).results == ()


@pytest.mark.parametrize(("account", "exempted"), [("server", True), ("default", False)])
@pytest.mark.parametrize("spec", [{}, {DEADLINE: 604_800}])
def test_an_exempted_account_may_stay(account: str, exempted: bool, spec: Object) -> None:
    scope = Scope(frozenset({"visitors"}), None, frozenset({"server"}))
    exemption = Exemption("server", scope, frozenset({"long-stay"}), None)
    engine = Engine(replace(ENGINE.policy, exemptions=(exemption,)), ENGINE.rules)
    verdict = engine.judge(request(pod(serviceAccountName=account, **spec)), FACTS)
    stays = verdict.allowed and verdict.patch == ()
    assert stays is exempted
    assert [result.exemption for result in verdict.results if stays] == ["server"] * exempted


def test_a_rule_that_only_warns_writes_no_deadline() -> None:
    engine = Engine(replace(ENGINE.policy, actions={"long-stay": Action.WARN}), ENGINE.rules)
    verdict = engine.judge(request(pod()), FACTS)
    assert (verdict.allowed, verdict.patch) == (True, ())
    assert [result.finding.message for result in verdict.results] == [
        "the pod lacks the value 28800: pool hours ends a pod after 28800 s; nothing to do: Slicewarden writes it once "
        "the rule's action is Deny"
    ]
