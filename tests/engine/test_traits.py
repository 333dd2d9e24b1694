"""A rule is asked only about pods with a trait that it looks at, and under policies to which it applies.

No finding is lost by that.
"""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given

from tests.support.fixtures import FOLDERS, files_of, fixture, settings
from tests.support.strategies import gpu_pods, pods, request_for
from webhook.api.objects import unpaid
from webhook.api.pods import Pod
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu.review import PodReview
from webhook.model import Malformed, Request
from webhook.policy.model import Policy
from webhook.rules import asked, review_of, walk

OF_PODS = [rule for rule in walk() if issubclass(Pod, rule.subject)]


def finds_nothing_more(request: Request, policy: Policy, facts: Facts) -> int:
    """Check that rules which are not asked find nothing, and mend nothing; return how many they were."""
    passed_over = 0
    with suppress(Malformed):  # then the traits cannot be read, and there is no verdict
        for subject in unpaid(request, request.object or {}, request.old_object, policy.workloads):
            idle = [rule for rule in walk() if rule.applies is not None and not rule.applies(policy)]
            known = review_of(subject, policy, facts)
            assert [rule.id for rule in idle if isinstance(subject, rule.subject) and [*rule.check(known)]] == []
            if isinstance(subject, Pod):
                review = PodReview(subject, policy, facts)
                applied = [rule for rule in OF_PODS if rule.applies is None or rule.applies(policy)]
                others = [rule for rule in OF_PODS if rule not in asked(applied, review.traits)]
                assert [rule.id for rule in others if [*rule.check(review)]] == []
                if not review.exposed:  # /mutate asks no rule about it
                    assert not [f for rule in OF_PODS if rule.mends for f in rule.check(review) if f.fixes]
                passed_over += len(others)
    return passed_over


@pytest.mark.parametrize("folder", FOLDERS)
def test_rules_that_are_not_asked_find_nothing_in_the_fixtures_of_others(folder: str) -> None:
    policy, facts = settings(folder)
    for file in files_of(folder):
        finds_nothing_more(fixture(file)[2], policy, facts)


@given(pods() | gpu_pods())
def test_rules_that_are_not_asked_find_nothing_in_any_pod(
    engine: Engine, sample_facts: Facts, pod: dict[str, Any]
) -> None:
    finds_nothing_more(request_for(pod), engine.policy, sample_facts)


def test_most_rules_are_not_asked_about_a_pod_without_a_gpu(engine: Engine, sample_facts: Facts) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    assert finds_nothing_more(request_for(pod), engine.policy, sample_facts) > len(OF_PODS) / 2
