"""Node selections, numbers and quantities are read as Kubernetes reads them: its own code is asked."""

import json
from typing import Any

from hypothesis import given, settings

from tests.oracles.choices import (
    amount,
    astray,
    differing_nodes,
    kubernetes_amount,
    not_read,
    number,
    numbers,
    quantities,
    selections,
    steered,
    steering,
    wrong_clashes,
)
from tests.oracles.programs import Oracle
from tests.oracles.record import ANSWERS
from tests.oracles.record import asked as asked_now
from tests.support.records import trying
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy

asked = trying(2_000)


@asked
@given(selections())
def test_a_selection_matches_as_the_scheduler_has_it(
    kubernetes: Oracle, sample_policy: Policy, case: dict[str, Any]
) -> None:
    assert differing_nodes(kubernetes, sample_policy, case) == []


@settings(asked, max_examples=600)
@given(steered())
def test_a_steered_pod_lands_in_its_pool(
    kubernetes: Oracle, sample_policy: Policy, sample_facts: Facts, case: dict[str, Any]
) -> None:
    assert astray(kubernetes, steering(sample_policy), case, sample_facts) == []
    assert list(wrong_clashes(kubernetes, sample_policy, case)) == []


@asked
@given(numbers())
def test_a_number_is_what_kubernetes_reads(kubernetes: Oracle, text: str) -> None:
    assert number(text) == kubernetes.ask({"number": text})


@asked
@given(quantities())
def test_a_quantity_is_what_kubernetes_reads(kubernetes: Oracle, text: str) -> None:
    here = amount(text)
    if here is None and not_read(text):
        return
    assert here == kubernetes_amount(kubernetes.ask({"quantity": text}))


def test_the_record_is_what_it_says(kubernetes: Oracle) -> None:
    recorded = json.loads(ANSWERS.read_text("utf-8"))["kubernetes"]
    assert asked_now("kubernetes", kubernetes) == recorded
