"""The fallback's policies: their scopes, their conditions, and where a policy eases a rule."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.support.conditions import compiled, receivers, request_of
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.cel.clauses import RequestKind
from webhook.engine.registration import configurations
from webhook.fallback import variables
from webhook.fallback.answers import ValidationActions
from webhook.fallback.policies import SOURCES, fallback, static
from webhook.memory import frameworks
from webhook.model import Action
from webhook.policy import load
from webhook.policy.actions import Exemption, Override
from webhook.policy.model import Policy
from webhook.policy.scopes import Scope

Made = dict[str, Any]
SAMPLE = policy_of(POLICY)
GUARD = "slicewarden-guard.static.k8s.io"


def made(policy: Policy = SAMPLE, answer: ValidationActions = ValidationActions.DENY) -> dict[str, Made]:
    return {
        each["metadata"]["name"]: each
        for each in fallback(policy, rules.walk(), answer)
        if each["kind"] == "ValidatingAdmissionPolicy"
    }


def messages(policy: Made) -> set[str]:
    return {each["message"].partition(":")[0] for each in policy["spec"]["validations"]}


def pod(namespace: str, **spec: Any) -> Made:
    metadata = {"name": "a", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "a"}], **spec}}


ASKS: Made = {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}


@pytest.mark.parametrize("asked", RequestKind)
def test_a_policy_is_asked_about_what_the_registration_asks(asked: RequestKind) -> None:
    source = SOURCES[asked]
    (hook,) = (
        each for each in configurations(SAMPLE)[1]["webhooks"] if each["name"] == f"{source.webhook}.slicewarden.dev"
    )
    spec = made()[f"slicewarden-{asked}"]["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert [rule["resources"] for rule in spec["matchConstraints"]["resourceRules"]] == [
        rule["resources"] for rule in hook["rules"]
    ]
    *elsewhere, condition = spec["matchConditions"]
    assert condition == hook["matchConditions"][0]
    excluded = hook.get("namespaceSelector", {}).get("matchExpressions", [{"values": []}])[0]["values"]
    assert bool(elsewhere) is bool(excluded)
    for name in excluded:
        assert f"'{name}'" in elsewhere[0]["expression"]


@pytest.mark.parametrize(
    ("item", "asked"),
    [
        (pod("vision", **ASKS), True),
        (pod("vision"), False),
        (pod("kube-system", **ASKS), False),
        (pod("gpu-operator", **ASKS), False),
    ],
)
def test_plain_pods_and_namespaces_left_alone_are_passed_by(item: Made, asked: bool) -> None:
    request = request_of(item)
    spec = made()["slicewarden-pods"]["spec"]
    values = {"object": item, "oldObject": None, "request": request}
    answers = [compiled(each["expression"]).eval(data=values).plain_value() for each in spec["matchConditions"]]
    assert all(answers) is asked
    webhooks = configurations(SAMPLE)[1]["webhooks"]
    assert bool(receivers(webhooks, request)) is asked


@pytest.mark.parametrize(
    ("item", "asked"),
    [
        (pod("vision", **ASKS), True),
        (pod("vision", nodeName="a"), False),
        (pod("vision", containers=[{"name": "a", "resources": {"limits": {"cpu": 1}}}], nodeName="a"), False),
        (pod("vision", initContainers=ASKS["containers"]), True),
        (pod("vision", containers=[{"name": "a", "resources": {"limits": {"example.com/fpga": 1}}}]), False),
        (pod("kube-system", **ASKS), False),
    ],
)
def test_a_policy_that_only_records_is_asked_about_pods_that_ask_for_a_gpu_alone(item: Made, asked: bool) -> None:
    (part,) = (
        each
        for each in fallback(SAMPLE, rules.walk(), ValidationActions.BY_RULE)
        if each["metadata"]["name"] == "slicewarden-pods-audited" and "validations" in each["spec"]
    )
    values = {"object": item, "oldObject": None, "request": request_of(item)}
    conditions = part["spec"]["matchConditions"]
    assert all(compiled(each["expression"]).eval(data=values).plain_value() for each in conditions) is asked


def test_a_rule_that_the_policy_does_not_deny_is_left_out() -> None:
    assert "chosen-node" in messages(made()["slicewarden-pods"])
    warned = replace(SAMPLE, actions={"chosen-node": Action.WARN, "*": Action.DENY})
    assert "chosen-node" not in messages(made(warned)["slicewarden-pods"])
    assert made(replace(SAMPLE, actions={"*": Action.AUDIT})) == {}


def test_rules_that_lean_on_steering_are_left_out_where_it_is_not_denied() -> None:
    warned = replace(SAMPLE, actions={"unsteered-pod": Action.WARN, "*": Action.DENY})
    assert messages(made(warned)["slicewarden-pods"]).isdisjoint(
        {"unsteered-pod", "multiple-slices", "uncapped-memory", "lifted-limit"}
    )


def eased(policy: Policy, rule: str, asked: RequestKind = RequestKind.PODS) -> str:
    spec = made(policy)[f"slicewarden-{asked}"]["spec"]
    named = {each["name"]: each["expression"] for each in spec["variables"]}
    (found,) = {
        each["expression"].partition(" || ")[0].lstrip("(").removeprefix("variables.")
        for each in spec["validations"]
        if each["message"].startswith(f"{rule}:")
    }
    return str(named.get(found, ""))


def test_an_exemption_holds_where_it_says() -> None:
    scope = Scope(frozenset({"tools"}), None, frozenset({"agent-*"}))
    exempt = replace(SAMPLE, exemptions=(Exemption("tools", scope, frozenset({"chosen-node"}), None),))
    expression = eased(exempt, "chosen-node")
    assert "variables.space in ['tools']" in expression
    assert "'agent-'" in expression
    assert eased(exempt, "host-namespaces") == ""


def test_an_exemption_from_all_rules_is_none_for_labels_that_would_outlast_it() -> None:
    scope = Scope(frozenset({"tools"}), None, frozenset())
    exempt = replace(SAMPLE, exemptions=(Exemption("tools", scope, frozenset(), None),))
    assert "'tools'" in eased(exempt, "chosen-node")
    assert eased(exempt, "self-granted-trust", RequestKind.NAMESPACES) == ""


def test_an_override_of_all_rules_in_a_namespace_is_none_for_labels_of_nodes() -> None:
    scope = Scope(frozenset({"tools"}), None, frozenset())
    eases = replace(SAMPLE, exemptions=(), overrides=(Override(scope, frozenset(), {"*": Action.WARN}),))
    assert "'tools'" in eased(eases, "chosen-node")
    assert eased(eases, "relabelled-node", RequestKind.NODE_FEATURES) == ""
    named = replace(eases, overrides=(Override(scope, frozenset(), {"relabelled-node": Action.WARN}),))
    assert "'tools'" in eased(named, "relabelled-node", RequestKind.NODE_FEATURES)


def test_overrides_count_in_their_order() -> None:
    def here(name: str, action: Action, *pools: str) -> Override:
        scope = Scope(frozenset({name}), None, frozenset())
        return Override(scope, frozenset(pools), {"chosen-node": action})

    policy = replace(SAMPLE, exemptions=(), overrides=(here("strict", Action.DENY), here("soft", Action.WARN)))
    expression = eased(policy, "chosen-node")
    assert expression == "(!(variables.space in ['strict']) && variables.space in ['soft'])"
    pools = replace(SAMPLE, exemptions=(), overrides=(here("soft", Action.WARN, "shared"),))
    assert "variables.willing.exists(p, p in ['shared'])" in eased(pools, "chosen-node")
    labels = replace(pools, overrides=(Override(None, frozenset({"shared"}), {"relabelled-node": Action.WARN}),))
    assert eased(labels, "relabelled-node", RequestKind.NODE_FEATURES) == ""
    unsure = replace(SAMPLE, exemptions=(), overrides=(here("strict", Action.DENY, "shared"),))
    assert eased(unsure, "chosen-node") == ""


@pytest.mark.parametrize("asked", RequestKind)
def test_a_variable_reads_only_those_before_it(asked: RequestKind) -> None:
    known: set[str] = set()
    for name, expression in variables.of(asked, SAMPLE):
        assert name not in known
        read = {part.partition("variables.")[2] for part in expression.replace("variables.", " variables.").split(" ")}
        names = {"".join(letter if letter.isalnum() or letter == "_" else " " for letter in each) for each in read}
        assert {each.split()[0] for each in names if each.split()} <= known, name
        known.add(name)


def test_a_binding_says_what_comes_of_a_denial() -> None:
    for answer, actions in (
        (ValidationActions.DENY, ["Deny", "Audit"]),
        (ValidationActions.WARN, ["Warn", "Audit"]),
        (ValidationActions.AUDIT, ["Audit"]),
    ):
        bindings = [each for each in fallback(SAMPLE, rules.walk(), answer) if each["kind"].endswith("Binding")]
        assert {tuple(each["spec"]["validationActions"]) for each in bindings} == {tuple(actions)}


def test_help_ends_every_message() -> None:
    helped = replace(SAMPLE, support="GPU team, #gpu-help")
    for policy in made(helped).values():
        for each in policy["spec"]["validations"]:
            assert each["message"].endswith("(GPU team, #gpu-help)")
            assert "\n" not in each["message"]


def test_files_have_names_of_their_own_and_guard_themselves() -> None:
    files = static(fallback(SAMPLE, rules.walk()), SAMPLE)
    names = {each["metadata"]["name"] for each in files}
    assert all(name.endswith(".static.k8s.io") for name in names)
    assert {each["spec"]["policyName"] for each in files if "policyName" in each["spec"]} == names
    (guard,) = (each for each in files if each["metadata"]["name"] == GUARD and "validations" in each["spec"])
    assert "validatingadmissionpolicies" in guard["spec"]["matchConstraints"]["resourceRules"][0]["resources"]


def test_the_order_of_labels_in_a_selector_changes_nothing() -> None:
    """The API server writes the keys of a map in order; a policy's file has them as its author wrote them."""
    labels = {"nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.product": "A100", "a.example.com/b": "c"}
    value = yaml.safe_load(POLICY.read_text("utf-8"))
    value["spec"]["pools"] = [{**value["spec"]["pools"][0], "nodes": {"matchLabels": labels}}]
    turned = deepcopy(value)
    turned["spec"]["pools"][0]["nodes"]["matchLabels"] = dict(reversed(labels.items()))
    one, other = (load.of_object(each, rules.releases(), frameworks=frameworks.names()) for each in (value, turned))
    assert one.digest == other.digest
    assert fallback(one, rules.walk()) == fallback(other, rules.walk())
