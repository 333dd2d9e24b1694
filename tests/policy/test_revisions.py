"""Policies in ConfigMaps: only what is the policy of its label is read."""

import json
from typing import Any

import pytest

from tests.support.policies import POLICY, RULES, policy_of
from webhook.model import Unusable
from webhook.policy import revisions

SAMPLE = policy_of(POLICY)
SPACE = "slicewarden-system"


def read(item: Any) -> str:
    return revisions.read(item, RULES).digest


def test_a_revision_is_read_as_the_policy_that_it_was_made_from() -> None:
    made = revisions.revision(SAMPLE, SPACE)
    assert made["immutable"] is True
    assert made["metadata"]["name"] == f"slicewarden-policy-{SAMPLE.digest}"
    assert revisions.read(made, RULES).written == SAMPLE.written
    assert read(made) == SAMPLE.digest


def test_a_policy_under_another_label_is_refused() -> None:
    made = revisions.revision(SAMPLE, SPACE)
    made["metadata"]["labels"][revisions.LABEL] = "0" * 16
    with pytest.raises(Unusable, match=f"its label is {'0' * 16}, but its content is policy {SAMPLE.digest}"):
        read(made)


@pytest.mark.parametrize("data", [None, {}, {"policy.json": "{"}, {"policy.yaml": "a: 1"}])
def test_a_revision_without_a_policy_is_refused(data: Any) -> None:
    with pytest.raises(Unusable, match=r"has no policy in JSON under policy\.json"):
        read({**revisions.revision(SAMPLE, SPACE), "data": data})


@pytest.mark.parametrize("value", [[], 1, {}, {"kind": "GPUSharingPolicy"}, {**json.loads(SAMPLE.written), "spec": {}}])
def test_a_revision_that_is_no_usable_policy_is_refused(value: Any) -> None:
    made = {**revisions.revision(SAMPLE, SPACE), "data": {"policy.json": json.dumps(value)}}
    with pytest.raises(Unusable):
        read(made)


def test_the_admitted_releases_are_those_that_were_written() -> None:
    made = revisions.releases(["0.2.0", "0.1.0"], SPACE)
    assert revisions.label_of(made) == revisions.RELEASES
    assert revisions.admitted(made) == {"0.1.0", "0.2.0"}
    assert revisions.admitted({**made, "data": {}}) == frozenset()
