"""The rules against what other projects' own code said when last asked (`oracles/record.py`)."""

import pytest

from tests.oracles import compare
from tests.oracles.cases import PODS, SELECTIONS
from tests.oracles.containers import engine, findings, mutated
from tests.oracles.record import Recorded
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy


@pytest.mark.parametrize("name", compare.CASES)
def test_the_recorded_answers_of_nvidia_and_kubernetes_are_ours_too(name: str) -> None:
    assert compare.CASES[name](Recorded(name)) == {}


def test_the_cases_hold_both_verdicts(sample_policy: Policy) -> None:
    judge = engine(sample_policy)
    refused = [bool(findings(judge, mutated(judge, pod, Facts()), Facts())) for pod in PODS.values()]
    assert 10 < sum(refused) < len(refused) - 10
    answers = [Recorded("kubernetes").ask(case) for case in SELECTIONS.values()]
    assert 10 < sum(map(any, answers)) < len(answers) - 10
