"""The part of a policy that a floor holds, as audits and comparisons of policies say it."""

from dataclasses import replace

from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.floor.answers import RECORDED, Answer
from webhook.floor.policies import floor
from webhook.floor.standing import Changes, changes, standing
from webhook.model import Action

SAMPLE = policy_of(POLICY)
RULES = rules.walk()


def test_a_floor_by_rule_is_told_rule_by_rule() -> None:
    found = standing(SAMPLE, RULES, floor(SAMPLE, RULES, Answer.BY_RULE))
    assert (found.installed, found.differences, found.actions) == (True, [], "ByRule")
    assert set(found.recorded) == {"multiple-slices"}
    assert set(found.recorded) <= RECORDED.keys()
    assert "visible-devices" in found.denied
    assert "invalid-sharing-config" in found.alone
    assert not set(found.denied) & {*found.recorded, *found.alone}
    assert found.value["current"]
    assert next(found.lines) == "floor: current, actions: ByRule"


def test_without_a_floor_the_webhook_alone_holds_everything() -> None:
    found = standing(SAMPLE, RULES, [])
    assert (found.installed, found.denied, found.value["current"]) == (False, [], False)
    assert "visible-devices" in found.alone
    (line,) = found.lines
    assert line.startswith("floor: none that the API shows; if the registration is removed, nothing holds")


def test_a_policy_without_its_binding_holds_nothing() -> None:
    made = floor(SAMPLE, RULES)
    found = standing(SAMPLE, RULES, [each for each in made if each is not made[len(made) // 2]])
    assert found.differences == ["slicewarden-pods: its binding is missing, so it is not in force"]
    assert "device-path" in found.alone
    assert "self-granted-trust" in found.denied
    assert "floor: stale; see `slicewarden floor --check --live`, actions: Deny" in found.lines


def test_a_rule_that_is_recorded_only_in_audit_mode_is_not_denied() -> None:
    found = standing(SAMPLE, RULES, floor(SAMPLE, RULES, Answer.AUDIT))
    assert found.denied == []
    assert "device-path" in found.recorded


def test_changes_are_those_of_what_is_held_and_not_of_its_words() -> None:
    assert not changes(SAMPLE, replace(SAMPLE, name="renamed", digest="0", support="ask us"), RULES)
    eased = replace(SAMPLE, actions={"device-path": Action.WARN, "*": Action.DENY})
    assert changes(SAMPLE, eased, RULES) == Changes([], ["device-path"], [])
    assert changes(eased, SAMPLE, RULES).line == (
        "the floor now also holds device-path; where it is installed, make it again"
    )
    both = "the floor now also holds a, and holds b in another way; where it is installed, make it again"
    assert Changes(["a"], [], ["b"]).line == both
    fewer = replace(SAMPLE, pools=SAMPLE.pools[:-1])
    assert "unsteered-pod" in changes(SAMPLE, fewer, RULES).changed  # it reads the pools by a variable
