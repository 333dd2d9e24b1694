"""The part of a policy that a fallback holds, as audits and comparisons of policies say it."""

from dataclasses import replace
from typing import Any

from manifests import make_fallback
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.controller import fallback as controller
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.fallback.answers import RECORDED, ValidationActions
from webhook.fallback.mutations import mutating
from webhook.fallback.policies import fallback
from webhook.fallback.status import Changes, changes, standing
from webhook.model import Action
from webhook.policy.model import Policy

SAMPLE = policy_of(POLICY)
RULES = rules.walk()


def test_a_fallback_by_rule_is_told_rule_by_rule() -> None:
    found = standing(SAMPLE, RULES, fallback(SAMPLE, RULES, ValidationActions.BY_RULE))
    assert (found.installed, found.differences, found.actions) == (True, [], "ByRule")
    assert set(found.recorded) == {"multiple-slices"}
    assert set(found.recorded) <= RECORDED.keys()
    assert "visible-devices" in found.denied
    assert "invalid-sharing-config" in found.alone
    assert not set(found.denied) & {*found.recorded, *found.alone}
    assert found.value["current"]
    assert next(found.lines) == "fallback: current, actions: ByRule"


def test_without_a_fallback_the_webhook_alone_holds_everything() -> None:
    found = standing(SAMPLE, RULES, [])
    assert (found.installed, found.denied, found.value["current"]) == (False, [], False)
    assert "visible-devices" in found.alone
    (line,) = found.lines
    assert line.startswith(
        "fallback: none that the API shows; if the registration is removed, nothing enforces the policy"
    )


def test_a_policy_without_its_binding_holds_nothing() -> None:
    made = fallback(SAMPLE, RULES)
    found = standing(SAMPLE, RULES, [each for each in made if each is not made[len(made) // 2]])
    assert found.differences == ["slicewarden-pods: its binding is missing, so it is not in force"]
    assert "multiple-slices" in found.alone
    assert "self-granted-trust" in found.denied
    assert "fallback: stale; see `slicewarden fallback --check --live`, actions: Deny" in found.lines


def installed(policy: Policy | None) -> list[dict[str, Any]]:
    """The fallback of the installation: empty, or as the controller fills it."""
    wanted = controller.made(policy) if policy else {}
    objects = [{**each, "metadata": {**each["metadata"], "resourceVersion": "1"}} for each in make_fallback.made()]
    written = {each["metadata"]["name"]: each for each in controller.changes(objects[: len(controller.NAMES)], wanted)}
    for each in objects[: len(controller.NAMES)]:
        if applied := written.get(each["metadata"]["name"]):
            each["metadata"] = {**each["metadata"], **applied["metadata"]}
            each["spec"] = {**each["spec"], **applied["spec"]}
    return objects


def test_what_the_controller_fills_is_current() -> None:
    found = standing(SAMPLE, RULES, installed(SAMPLE))
    assert (found.differences, found.actions, found.value["empty"]) == ([], "ByRule", False)
    assert found.denied == standing(SAMPLE, RULES, fallback(SAMPLE, RULES, ValidationActions.BY_RULE)).denied


def test_what_the_controller_has_not_filled_waits() -> None:
    found = standing(SAMPLE, RULES, installed(None))
    assert (found.installed, found.waits, found.differences, found.denied) == (True, True, (), [])
    assert (found.value["current"], found.value["empty"]) == (False, True)
    (line,) = found.lines
    assert line.startswith("fallback: empty, so only the webhook enforces the policy")


def test_what_the_controller_filled_for_another_policy_is_stale() -> None:
    eased = replace(SAMPLE, actions={"device-path": Action.WARN, "*": Action.DENY})
    found = standing(SAMPLE, RULES, installed(eased))
    assert any("its validations differ" in line for line in found.differences)
    assert not any("of its own" in line or "null" in line for line in found.differences)
    weaker = installed(SAMPLE)
    weaker[-1]["spec"]["validationActions"] = ["Audit"]
    assert standing(SAMPLE, RULES, weaker).differences == ["slicewarden-devices: actions are Audit, not Deny and Audit"]


def test_a_rule_that_is_recorded_only_in_audit_mode_is_not_denied() -> None:
    found = standing(SAMPLE, RULES, fallback(SAMPLE, RULES, ValidationActions.AUDIT))
    assert found.denied == []
    assert "device-path" in found.recorded


def test_changes_are_those_of_what_is_held_and_not_of_its_words() -> None:
    assert not changes(
        SAMPLE, replace(SAMPLE, name="renamed", written='{"spec": {"support": "ask us"}}', support="ask us"), RULES
    )
    eased = replace(SAMPLE, actions={"device-path": Action.WARN, "*": Action.DENY})
    assert changes(SAMPLE, eased, RULES) == Changes([], ["device-path"], [], [])
    assert changes(eased, SAMPLE, RULES).line == (
        "a cluster's fallback, if it has one, now also enforces device-path; the controller renews it; where none "
        "runs, apply what `slicewarden fallback` writes"
    )
    both = "a cluster's fallback, if it has one, now also enforces a, and enforces b in another way; "
    assert Changes(["a"], [], ["b"]).line.startswith(both)
    fewer = replace(SAMPLE, pools=SAMPLE.pools[:-1])
    assert "unsteered-pod" in changes(SAMPLE, fewer, RULES).changed  # it reads the pools by a variable


def test_a_change_of_what_is_written_without_a_webhook_is_told_by_the_rule_whose_fix_it_is() -> None:
    larger = [replace(pool, assume=pool.assume and pool.assume._replace(memory=24576)) for pool in SAMPLE.pools]
    found = changes(SAMPLE, replace(SAMPLE, pools=tuple(larger)), RULES)
    assert (found.written, found.value["written"]) == (["uncapped-memory"], ["uncapped-memory"])
    assert "writes the fixes of uncapped-memory in another way if it was made with --mutate" in found.line


def test_mutations_of_a_cluster_are_compared_with_the_cards_of_its_nodes() -> None:
    labels = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.product": "Tesla-T4"}
    small, large = (
        Facts(nodes=(Node("a", {**labels, "nvidia.com/gpu.memory": memory, "nvidia.com/gpu.replicas": "2"}),))
        for memory in ("15360", "24576")
    )
    found = [*fallback(SAMPLE, RULES), *mutating(SAMPLE, RULES, small)]
    assert standing(SAMPLE, RULES, found, small).differences == []
    assert standing(SAMPLE, RULES, found).differences == []
    said = standing(SAMPLE, RULES, found, large).differences
    assert said[0].startswith("MutatingAdmissionPolicy slicewarden-pods: its caps are those of other cards")
    assert said[1] == "MutatingAdmissionPolicy slicewarden-pods: its mutations differ"
