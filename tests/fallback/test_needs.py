"""The functions by which an API server is asked whether it can have a fallback."""

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.fallback.answers import ValidationActions
from webhook.fallback.needs import CALLS, calling
from webhook.fallback.params import Params
from webhook.fallback.policies import fallback

BEFORE = frozenset(
    re.findall(
        r"\w+",
        "all allowed asInteger authorizer check contains endsWith exists filter group has hasValue int isQuantity join"
        " lowerAscii map matches max none of ofNonZeroValue optMap orValue quantity replace resource serviceAccount"
        " sign size split startsWith string sum trim type upperAscii",
    )
)
"""Functions that expressions call and that Kubernetes 1.30 has: `make versions` runs policies on it that call them."""
POLICIES = (POLICY, *sorted((ROOT / "policies").glob("*/policy.yaml")))


def called(expression: str) -> set[str]:
    """The functions of an expression; one with two variables, such as `all(i, v,`, ends with a 2."""
    bare = re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", "''", expression)
    two = re.compile(r"\w+, \w+, ")
    return {
        each[1] + ("2" if each[1] in ("all", "exists") and two.match(bare, each.end()) else "")
        for each in re.finditer(r"\b([a-zA-Z]\w*)\(", bare)
    }


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: str(file.relative_to(ROOT)))
def test_an_api_server_is_asked_for_every_function_that_the_oldest_one_lacks(file: Path) -> None:
    newer = set[str]()
    for params in (None, Params.of("fallback")):
        for made in fallback(policy_of(file), rules.walk(), ValidationActions.BY_RULE, params):
            spec = made.get("spec", {})
            parts = [*spec.get("variables", ()), *spec.get("validations", ()), *spec.get("matchConditions", ())]
            for each in parts:
                newer |= called(each["expression"]) | called(each.get("messageExpression", ""))
    assert newer - BEFORE == called(CALLS) - BEFORE


def test_what_is_applied_has_the_name_of_the_policy_and_no_version() -> None:
    asked = calling({"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "a", "resourceVersion": "1"}})
    assert asked["metadata"] == {"name": "a"}
    assert asked["spec"] == {"validations": [{"expression": CALLS}]}
