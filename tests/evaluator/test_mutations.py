"""The API server writes by itself the same as the engine, as the API server's own code has it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests import ROOT
from tests.evaluator import generated
from tests.evaluator.evaluator import Changed, Evaluator, request_for
from tests.evaluator.generated import POLICIES
from tests.support.fixtures import FOLDERS, files_of, fixture
from tests.support.fixtures import settings as of_folder
from tests.support.policies import FACTS, facts_of, policy_of
from tests.support.records import trying
from webhook import rules
from webhook.api import admission, jsonpatch
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.fallback.mutations import REQUIRED, cappings, mutating
from webhook.fallback.policies import fallback
from webhook.memory import environment
from webhook.memory.annotation import KEY
from webhook.policy.model import Policy

Object = dict[str, Any]
PODS = 400


class Both:
    """The engine, and the policies of the API server that stand for its /mutate and its /validate."""

    def __init__(self, evaluator: Evaluator, policy: Policy, facts: Facts) -> None:
        known = rules.walk()
        self.engine, self.facts, self.policy, self._evaluator = Engine(policy, known), facts, policy, evaluator
        self._fallback = evaluator.compiled(fallback(policy, known))
        self._by = evaluator.changing(mutating(policy, known, facts))
        self.capped = cappings(policy, facts)
        self.judged = self.allowed = self.changed = self.alike = self.most = 0

    def add(self, request: Object) -> None:
        """Compare both on one pod that is created."""
        settled = self._evaluator.settled(request)
        if settled is None:
            return
        self.judged += 1
        decoded = admission.decode(json.dumps(wrapped(settled)).encode())
        verdict = self.engine.judge(decoded, self.facts)
        made = self._changed(settled)
        assert made.errors == [] or not verdict.allowed
        self.most = max(self.most, made.cost)
        self.changed += made.object != settled["object"]
        again = self._changed({**settled, "object": made.object})
        assert again.object == made.object, "a second application changes something"
        if not verdict.allowed:
            return
        self.allowed += 1
        wanted = jsonpatch.apply(settled["object"], verdict.patch) if verdict.patch else settled["object"]
        after = admission.decode(json.dumps(wrapped({**settled, "object": made.object})).encode())
        behind = self.engine.judge(after, self.facts)
        assert behind.allowed
        both = jsonpatch.apply(made.object, behind.patch) if behind.patch else made.object
        assert differences(plain(both), plain(wanted)) == [], "the webhook behind it makes another pod"
        sized = _pool((wanted["metadata"].get("annotations") or {}).get(KEY, "{}")) in (None, *self.capped)
        if made.patched and sized and self._claimed(settled["object"]) and alone(wanted) == alone(made.object):
            self.alike += 1
            assert differences(plain(made.object, record=False), plain(wanted, record=False)) == []
            verdict_of = self._evaluator.judge(self._fallback, {**settled, "object": made.object}, self.facts)
            assert not verdict_of.denies, verdict_of

    def _changed(self, request: Object) -> Changed:
        return self._evaluator.changed(self._by, request, self.facts)

    def _claimed(self, pod: Object) -> bool:
        """Tell whether all of the pod is written that the engine writes, but for the record of the caps."""
        spec, annotations = pod["spec"], pod["metadata"].get("annotations") or {}
        containers = [*(spec.get("initContainers") or []), *spec["containers"]]
        names = {each["name"] for container in containers for each in container.get("env") or []}
        node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        return (
            REQUIRED not in node
            and not self.policy.shim
            and not spec.get("resourceClaims")
            and not any(container.get("envFrom") for container in containers)
            and names.isdisjoint(environment.KNOWN)
            and not any(key.startswith("slicewarden.dev/") for key in annotations if key != self.policy.annotation)
            and "text-generation-inference" not in "".join(container["image"] for container in containers)
        )


def _pool(record: str) -> Any:
    """The pool of a record of caps; None if it names none, as where a tenant wrote it."""
    try:
        said = json.loads(record)
    except ValueError:
        return None
    return said.get("pool") if isinstance(said, dict) else None


def alone(pod: Mapping[str, Any]) -> list[Any]:
    """What only the engine changes in a container: it appends arguments, and makes mounts read-only."""
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or []), *spec["containers"]]
    return [(each.get("args"), each.get("volumeMounts")) for each in containers]


def wrapped(request: Object) -> Object:
    return {"apiVersion": admission.API_VERSION, "kind": "AdmissionReview", "request": request}


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """The places where two values of JSON differ, each with both sides."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted({*one, *other})
        return [each for key in keys for each in differences(one.get(key), other.get(key), f"{path}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            text for at, both in enumerate(zip(one, other, strict=True)) for text in differences(*both, f"{path}[{at}]")
        ]
    return [] if one == other else [f"{path}: {one} and {other}"]


def plain(pod: Mapping[str, Any], *, record: bool = True) -> Object:
    """A pod without what says nothing: empty values, and the order of variables."""
    copy: Object = json.loads(json.dumps(pod))
    spec, annotations = copy["spec"], copy["metadata"].get("annotations") or {}
    if not record:
        annotations.pop(KEY, None)
    copy["metadata"]["annotations"] = annotations
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        variables = [{**each, "value": each.get("value", "")} for each in container.get("env") or []]
        container["env"] = sorted(variables, key=lambda each: str(each["name"]))
    return copy


@pytest.mark.parametrize("name", POLICIES)
def test_generated_pods_are_changed_as_the_engine_changes_them(evaluator: Evaluator, name: str) -> None:
    file = ROOT / "policies" / name
    policy, facts = policy_of(file), facts_of(file.parent / "facts.yaml" if "/" in name else FACTS)
    both = Both(evaluator, policy, facts)

    @trying(PODS)
    @given(generated.pods(policy, facts))
    def created(pod: Any) -> None:
        both.add(request_for(pod))

    created()
    print(
        f"\n{both.judged} judged, {both.allowed} allowed, {both.changed} changed, {both.alike} whole, {both.most} units"
    )
    assert both.changed > 100
    assert both.alike > 10 or policy.shim


def test_pods_of_the_fixtures_are_changed_as_the_engine_changes_them(evaluator: Evaluator) -> None:
    judged = changed = 0
    for rule in FOLDERS:
        both = Both(evaluator, *of_folder(rule))
        for file in files_of(rule):
            item = fixture(file)[0].value
            if item.get("kind") == "Pod":
                both.add(request_for(item))
        judged, changed = judged + both.judged, changed + both.changed
    print(f"\n{judged} judged, {changed} changed")
    assert changed > 100


def test_caps_are_written_where_all_cards_of_a_pool_are_of_one_size(evaluator: Evaluator) -> None:
    policy = policy_of(ROOT / "policies" / "sample.yaml")
    assert set(cappings(policy, Facts())) == {"shared"}
    _same_where_no_node_is_known(evaluator, policy)


def test_deadlines_are_written_in_pools_that_need_node_affinity_too(evaluator: Evaluator) -> None:
    sample = policy_of(ROOT / "policies" / "sample.yaml")
    policy = replace(sample, pools=tuple(replace(pool, max_active_deadline=3600) for pool in sample.pools))
    assert any(pool.nodes.expressions for pool in policy.pools)
    _same_where_no_node_is_known(evaluator, policy)


def _same_where_no_node_is_known(evaluator: Evaluator, policy: Policy) -> None:
    both = Both(evaluator, policy, replace(facts_of(FACTS), nodes=()))

    @trying(PODS)
    @given(generated.pods(policy, both.facts))
    def created(pod: Any) -> None:
        both.add(request_for(pod))

    created()
    print(f"\n{both.alike} whole")
    assert both.alike > 10
