"""`invalid-sharing-config` against what NVIDIA's device plugin said when last asked (`conformance/record.py`)."""

import pytest

from tests.conformance.cases import cases
from tests.conformance.record import recorded
from tests.conformance.rule import UNREAD, engine, findings
from webhook.policy.model import Policy

VERDICTS = recorded()


@pytest.mark.parametrize("group", VERDICTS)
def test_the_rule_agrees_with_the_recorded_verdict_of_the_device_plugin(sample_policy: Policy, group: str) -> None:
    judge = engine(sample_policy)
    wrong = []
    for text, refusal in VERDICTS[group].items():
        said = findings(judge, text)
        if bool(said) != bool(refusal) and not any(UNREAD in message for message in said):
            wrong.append((text, refusal, said))
    assert wrong == []


def test_every_case_is_recorded() -> None:
    known = {(group, text) for group, texts in VERDICTS.items() for text in texts}
    assert set(cases()) == known, "python -m tests.conformance.record"


def test_few_texts_that_the_device_plugin_reads_are_left_unread(sample_policy: Policy) -> None:
    judge = engine(sample_policy)
    texts = [text for texts in VERDICTS.values() for text in texts]
    unread = [text for text in texts if any(UNREAD in message for message in findings(judge, text))]
    assert len(unread) < len(texts) / 100


def test_the_record_holds_both_verdicts() -> None:
    refused = [bool(refusal) for texts in VERDICTS.values() for refusal in texts.values()]
    assert 300 < sum(refused) < len(refused) - 300
