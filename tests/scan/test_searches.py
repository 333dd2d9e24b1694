"""Count what one object costs under `check`: its pod templates are searched for once by each judgement that they get.

A second judgement follows a finding that `/mutate` might repair, and that of a pod is made in two halves.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.objects import Object, pod
from webhook.api import admission, objects, pods, templates
from webhook.documents.files import alone
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu import placement
from webhook.model import Action
from webhook.scan.judge import judge
from webhook.scan.results import Judged

Calls = Counter[str]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Count the searches for each place, the views of pods, and the placements."""
    counted = Calls()

    def counting(act: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def counts(*given: Any, **named: Any) -> Any:
            counted[name(*given)] += 1
            return act(*given, **named)

        return counts

    monkeypatch.setattr(templates, "found", counting(templates.found, lambda _item, _path, place: f"find {place}"))
    monkeypatch.setattr(placement, "place", counting(placement.place, lambda *_: "place"))
    view = counting(pods.pod_of, lambda *_: "view")
    for module in (objects, templates):
        monkeypatch.setattr(module, "pod_of", view)
    return counted


def workload(api: str, kind: str, spec: Object) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "w", "namespace": "vision"}, "spec": spec}


def template(**spec: Any) -> Object:
    made = pod(**spec)
    return {"metadata": {"annotations": made["metadata"]["annotations"]}, "spec": made["spec"]}


def checked(item: Object, engine: Engine, facts: Facts) -> Judged:
    judged = judge(alone(item), engine, facts)
    assert isinstance(judged, Judged)
    assert len(judged.landings) == len({landing.path for landing in judged.landings}) > 0
    return judged


def test_a_template_is_searched_for_and_placed_once(engine: Engine, sample_facts: Facts, calls: Calls) -> None:
    judged = checked(workload("apps/v1", "Deployment", {"template": template()}), engine, sample_facts)
    assert not judged.verdict.results
    assert calls == {"find spec.template": 1, "find metadata": 1, "find spec": 1, "view": 1, "place": 1}


@pytest.mark.parametrize(("action", "judgements"), [(Action.DENY, 1), (Action.WARN, 2)])
def test_a_template_with_a_finding_is_searched_for_once_in_each_judgement(
    engine: Engine, sample_facts: Facts, calls: Calls, action: Action, judgements: int
) -> None:
    policy = replace(engine.policy, actions={rule.id: action for rule in engine.rules})
    item = workload("apps/v1", "Deployment", {"template": template(hostPID=True)})
    judged = checked(item, Engine(policy, engine.rules), sample_facts)
    assert judged.verdict.having(action)
    assert calls["find spec.template"] == calls["view"] == judgements


def test_each_of_two_templates_is_viewed_and_placed_once(engine: Engine, sample_facts: Facts, calls: Calls) -> None:
    jobs = [{"name": name, "template": {"spec": {"template": template()}}} for name in "ab"]
    judged = checked(workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs}), engine, sample_facts)
    assert len(judged.landings) == 2
    assert not judged.verdict.results
    assert calls["find spec.replicatedJobs.[].template.spec.template"] == 1
    assert (calls["view"], calls["place"]) == (2, 2)


def test_a_pod_is_viewed_and_placed_once_in_each_half(engine: Engine, sample_facts: Facts, calls: Calls) -> None:
    judged = checked(pod(), engine, sample_facts)
    assert judged.verdict.patch
    assert not judged.verdict.results
    assert calls == {"view": 2, "place": 2}


def test_what_is_not_paid_for_is_not_viewed(engine: Engine, sample_facts: Facts, calls: Calls) -> None:
    jobs: list[Object] = [{"template": {"spec": {"template": {}}}}] * 2_000
    item = workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})
    request = admission.decode(admission.wrap(item))
    for half in (engine.mutate, engine.validate, engine.judge):
        assert "pod templates" in str(half(request, sample_facts).malformed)
    assert calls == {"find spec.replicatedJobs.[].template.spec.template": 3}
