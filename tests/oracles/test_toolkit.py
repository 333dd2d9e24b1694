"""No container gets a device past its request that the rules let pass: NVIDIA's container toolkit is asked."""

import json
from typing import Any

from hypothesis import given

from tests.oracles.containers import engine
from tests.oracles.needless import let_through, needless
from tests.oracles.pods import pods
from tests.oracles.programs import Oracle
from tests.oracles.record import ANSWERS
from tests.oracles.record import asked as asked_now
from tests.support.records import trying
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy

EXAMPLES = 1_500


@trying(EXAMPLES)
@given(pods())
def test_the_rules_agree_with_the_container_toolkit(
    toolkit: Oracle, sample_policy: Policy, sample_facts: Facts, pod: dict[str, Any]
) -> None:
    judge = engine(sample_policy)
    assert let_through(toolkit, judge, pod, sample_facts) == frozenset()
    assert needless(toolkit, judge, pod, sample_facts) == []


def test_the_record_is_what_it_says(toolkit: Oracle) -> None:
    recorded = json.loads(ANSWERS.read_text("utf-8"))["toolkit"]
    assert asked_now("toolkit", toolkit) == recorded
