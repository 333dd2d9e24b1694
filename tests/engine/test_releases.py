"""Rules that are newer than the policy says it knows: they record until the policy speaks of them."""

import copy
import tomllib

import pytest
import yaml

from tests import ROOT
from tests.support.objects import untrusted_pod
from tests.support.policies import POLICY, RULES
from webhook.api import admission
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Unusable
from webhook.policy.actions import release
from webhook.policy.load import load
from webhook.policy.model import Policy
from webhook.rules import Rule, releases, walk

NEW = "visible-devices"

PRODUCT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
"""The release that this tree becomes."""


@pytest.mark.parametrize("rule", walk(), ids=lambda rule: rule.id)
def test_no_rule_is_newer_than_the_release(rule: Rule) -> None:
    assert rule.since <= release(PRODUCT.rpartition(".")[0]), f"{rule.id}: SINCE is after {PRODUCT}"


def policy_as_of(known: str | None, brought: tuple[int, int] = (0, 2), **spec: object) -> Policy:
    """The sample, as if NEW had come with a later release than all others."""
    value = copy.deepcopy(yaml.safe_load(POLICY.read_text("utf-8")))
    value["spec"] |= spec | ({"rulesAsOf": known} if known is not None else {})
    documents, problems = read(yaml.safe_dump(value), "p.yaml")
    assert problems == []
    return load(documents, {**releases(), NEW: brought}, "p.yaml")


def action(policy: Policy, facts: Facts) -> set[Action]:
    """Return what is done about a pod that the rule flags."""
    pod = untrusted_pod()
    pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    verdict = Engine(policy, walk()).judge(admission.decode(admission.wrap(pod)), facts)
    return {result.action for result in verdict.results if result.rule == NEW}


@pytest.mark.parametrize(
    ("known", "rules", "overrides", "done"),
    [
        (None, {"*": "Deny"}, [], Action.DENY),
        ("0.1", {"*": "Deny"}, [], Action.AUDIT),
        ("0.1", {}, [], Action.AUDIT),
        ("0.1", {"*": "Warn"}, [], Action.AUDIT),
        ("0.1", {"*": "Audit", NEW: "Deny"}, [], Action.DENY),
        ("0.1", {NEW: "Warn"}, [], Action.WARN),
        ("0.2", {"*": "Deny"}, [], Action.DENY),
        ("0.10", {"*": "Deny"}, [], Action.DENY),
        ("1.0", {"*": "Deny"}, [], Action.DENY),
        ("0.1", {}, [{"namespaces": ["vision"], "rules": {"*": "Deny"}}], Action.AUDIT),
        ("0.1", {}, [{"namespaces": ["vision"], "rules": {NEW: "Deny"}}], Action.DENY),
    ],
)
def test_a_newer_rule_records_until_it_is_named(
    sample_facts: Facts,
    known: str | None,
    rules: dict[str, str],
    overrides: list[object],
    done: Action,
) -> None:
    assert action(policy_as_of(known, rules=rules, overrides=overrides), sample_facts) == {done}


def test_other_rules_do_what_they_did(sample_facts: Facts) -> None:
    pod = untrusted_pod()
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 99
    request = admission.decode(admission.wrap(pod))
    plain, dated = (Engine(policy_as_of(known), walk()).judge(request, sample_facts) for known in (None, "0.1"))
    assert not plain.allowed
    assert plain == dated


@pytest.mark.parametrize("known", ["0", "0.1.0", "v0.1", "01.1", "", 0.1, "0.99999"])
def test_what_names_no_release_is_an_error(known: object) -> None:
    with pytest.raises(Unusable, match=r"spec\.rulesAsOf: must be"):
        policy_as_of(known)  # type: ignore[arg-type]


def test_every_rule_says_the_release_that_brought_it() -> None:
    assert releases().keys() == set(RULES)
    assert min(releases().values()) >= (0, 1)
    for rule in RULES:
        source = (ROOT / "webhook" / "rules" / f"{rule.replace('-', '_')}.py").read_text("utf-8")
        assert "\nSINCE = " in source, rule


def test_releases_are_ordered_by_their_numbers() -> None:
    assert release("0.2") < release("0.10") < release("1.0")
