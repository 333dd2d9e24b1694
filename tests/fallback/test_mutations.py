"""The output of `slicewarden fallback --mutate`, and the parts that it says are missing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.policies import FACTS, POLICY, facts_of, policy_of
from webhook import rules
from webhook.cel.clauses import RequestKind
from webhook.cli import main as cli
from webhook.engine.registration import configurations
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.fallback.current import differences
from webhook.fallback.mutations import CARDS, again, cappings, literal, mutating, recorded, unwritten
from webhook.fallback.policies import fallback
from webhook.memory.budget import nodes
from webhook.model import Action
from webhook.policy.resources import ResourceNames
from webhook.policy.scopes import Requesters

SAMPLE = policy_of(POLICY)


def card(name: str, memory: int, replicas: int) -> Node:
    labels = {
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
        "nvidia.com/gpu.product": "Tesla-T4",
        "nvidia.com/gpu.memory": str(memory),
        "nvidia.com/gpu.replicas": str(replicas),
    }
    return Node(name, labels)


GPU_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "a", "labels": card("a", 24576, 2).labels},
}


def test_it_is_asked_about_new_pods_that_the_registration_sends() -> None:
    made, binding = mutating(SAMPLE, rules.walk(), Facts())
    (hook,) = configurations(SAMPLE)[0]["webhooks"]
    (rule,) = made["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
    assert hook["matchConditions"][0] in made["spec"]["matchConditions"]
    (same,) = (
        each
        for each in fallback(SAMPLE, rules.walk())
        if each["metadata"]["name"] == f"slicewarden-{RequestKind.PODS}" and "validations" in each["spec"]
    )
    assert made["spec"]["matchConditions"][:2] == same["spec"]["matchConditions"]
    assert binding["spec"]["policyName"] == made["metadata"]["name"]


def test_a_pod_is_steered_last_because_no_pool_is_chosen_for_one_with_node_affinity() -> None:
    limited = replace(SAMPLE, pools=tuple(replace(pool, max_active_deadline=3600) for pool in SAMPLE.pools))
    *_, deadline, steering = (
        each["jsonPatch"]["expression"] for each in mutating(limited, rules.walk(), Facts())[0]["spec"]["mutations"]
    )
    assert "activeDeadlineSeconds" in deadline
    assert "nodeAffinity" in steering


def test_caps_follow_the_cards_that_are_known_if_they_have_one_size() -> None:
    assert "Tesla-T4, 15360 MiB in 4 slices" in cappings(SAMPLE, Facts())["shared"].words
    one = Facts(nodes=(card("a", 24576, 2), card("b", 24576, 2)))
    assert "24576 MiB in 2 slices" in cappings(SAMPLE, one)["shared"].words
    two = Facts(nodes=(card("a", 24576, 2), card("b", 24576, 4)))
    assert cappings(SAMPLE, two) == {}
    assert any("have no caps: shared" in line for line in unwritten(SAMPLE, rules.walk(), {}))


def test_cards_of_the_same_caps_are_capped_whatever_they_are_called() -> None:
    known = facts_of(FACTS)
    (pool,) = (each for each in SAMPLE.pools if each.name == "shared")
    assert {c.product for _, c in nodes(pool, known) if c} == {"Tesla-T4", "Tesla-T4-SHARED"}
    assert cappings(SAMPLE, known) == cappings(SAMPLE, Facts())
    reserved = replace(SAMPLE, reserve_mib={"Tesla-T4-SHARED": 2048})
    assert cappings(reserved, known) == {}


def test_pools_of_claims_alone_are_not_said_to_have_caps() -> None:
    pools = [replace(p, resources=ResourceNames((), shares=p.shared)) for p in SAMPLE.pools]
    claims = replace(SAMPLE, pools=tuple(pools))
    for policy, whether in (SAMPLE, True), (claims, False):
        capped = cappings(policy, Facts())
        assert "shared" in capped
        assert any("caps of pool shared" in line for line in unwritten(policy, rules.walk(), capped)) is whether
        assert any("have no caps: shared" in line for line in unwritten(policy, rules.walk(), {})) is whether


def test_nothing_is_written_that_the_policy_does_not_deny() -> None:
    warned = replace(SAMPLE, actions={"*": Action.WARN})
    assert mutating(warned, rules.walk(), Facts()) == []
    steered = replace(SAMPLE, actions={"*": Action.WARN, "unsteered-pod": Action.DENY})
    (mutation,) = mutating(steered, rules.walk(), Facts())[0]["spec"]["mutations"]
    assert "env" not in mutation["jsonPatch"]["expression"]


def test_no_line_is_printed_for_rules_of_which_there_are_none() -> None:
    steered = replace(SAMPLE, actions={"*": Action.WARN, "host-namespaces": Action.DENY})
    lines = [*unwritten(steered, rules.walk(), {})]
    assert not [line for line in lines if line.startswith("rules that") or line.endswith(": ")]


@pytest.mark.parametrize("users", [frozenset[str](), frozenset({"ada"})])
def test_a_grant_that_needs_the_webhook_is_named(users: frozenset[str]) -> None:
    grants = (replace(SAMPLE.grants[0], requesters=Requesters(users) if users else None),)
    lines = [*unwritten(replace(SAMPLE, grants=grants), rules.walk(), {})]
    assert any("grants that name users" in line for line in lines) is bool(users)


def test_a_value_is_written_as_the_api_server_types_it() -> None:
    value = {"key": "it's", "seconds": 5, "on": True, "values": ["a"]}
    assert literal("Object.spec.t", value) == "Object.spec.t{key: 'it\\'s', seconds: 5, on: true, values: ['a']}"


@pytest.fixture
def whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert cli.main(["fallback", "--policy", str(POLICY), "--mutate"]) == 0
    file = tmp_path / "fallback.yaml"
    file.write_text(capsys.readouterr().out, "utf-8")
    return file


CHECK = ["fallback", "--policy", str(POLICY), "--check"]


@pytest.mark.parametrize(
    ("text", "other", "said"),
    [
        ("reinvocationPolicy: IfNeeded", "reinvocationPolicy: Never", "its reinvocationPolicy differs"),
        ("op: ''add''", "op: ''remove''", "its mutations differ"),
        ("!(k in variables.selector)", "false", "its mutations differ"),
        ('"Tesla-T4", 15360', '"Tesla-T4", 99999', "its mutations differ"),
        ("slicewarden.dev/cards", "slicewarden.dev/other", "its caps are those of other cards"),
        ("slicewarden.dev/cards: ", "slicewarden.dev/cards: no JSON #", "its caps are those of other cards"),
    ],
)
def test_a_mutation_that_was_changed_is_stale_and_the_hint_makes_it_again(
    text: str, other: str, said: str, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = whole.read_text("utf-8")
    assert cli.main([*CHECK, str(whole)]) == 0
    assert capsys.readouterr().err == ""
    assert text in fresh
    start, mark, mutation = fresh.partition("kind: MutatingAdmissionPolicy\n")
    whole.write_text(start + mark + mutation.replace(text, other), "utf-8")
    assert cli.main([*CHECK, str(whole)]) == 1
    shown = capsys.readouterr()
    assert f"MutatingAdmissionPolicy slicewarden-pods: {said}" in shown.out
    assert f"slicewarden fallback --policy {POLICY} --mutate" in shown.err


def test_a_mutation_without_its_binding_is_not_in_force(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *kept, _ = whole.read_text("utf-8").split("---\n")
    whole.write_text("---\n".join(kept), "utf-8")
    assert cli.main([*CHECK, str(whole)]) == 1
    said = "MutatingAdmissionPolicy slicewarden-pods: its binding is missing, so it is not in force\n"
    assert capsys.readouterr().out.endswith(said)


def test_mutations_that_are_not_there_are_missed_only_if_they_are_wanted(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *kept, _, _ = whole.read_text("utf-8").split("---\n")
    whole.write_text("---\n".join(kept), "utf-8")
    assert cli.main([*CHECK, str(whole)]) == 0
    assert cli.main([*CHECK, "--mutate", str(whole)]) == 1
    assert "MutatingAdmissionPolicy slicewarden-pods: is missing\n" in capsys.readouterr().out


def test_caps_are_compared_with_the_cards_in_facts(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "facts.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [GPU_NODE]}), "utf-8")
    facts = ["--facts", str(tmp_path / "facts.json")]
    assert cli.main([*CHECK, *facts, str(whole)]) == 1
    assert "its caps are those of other cards" in capsys.readouterr().out
    assert cli.main(["fallback", "--policy", str(POLICY), "--mutate", *facts]) == 0
    whole.write_text(capsys.readouterr().out, "utf-8")
    for check in [*CHECK, *facts], CHECK:
        assert cli.main([*check, str(whole)]) == 0
    whole.write_text(whole.read_text("utf-8").replace("IfNeeded", "Never"), "utf-8")
    assert cli.main([*CHECK, str(whole)]) == 1
    assert f"slicewarden fallback --policy {POLICY} --mutate --facts FACTS >" in capsys.readouterr().err


def test_a_mutation_of_another_policy_is_to_be_deleted() -> None:
    warned = replace(SAMPLE, actions={"*": Action.WARN})
    found = mutating(SAMPLE, rules.walk(), Facts())
    assert again(warned, rules.walk(), None, found) == []
    said = differences(again(warned, rules.walk(), None, found), found)
    assert said == [
        "MutatingAdmissionPolicy slicewarden-pods: is not of this policy's fallback, and may write what the webhook "
        "does not; delete it"
    ]


@pytest.mark.parametrize("said", ["[]", "{", '{"shared": 1}', '{"shared": ["a", 1e999, 1]}', '{"shared": ["a", 0, 1]}'])
def test_cards_that_are_no_cards_are_not_read(said: str) -> None:
    assert recorded({"metadata": {"annotations": {CARDS: said}}}) is None


def test_mutations_are_not_written_as_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fallback", "--policy", str(POLICY), "--mutate", "--as", "static"]) == 2
    assert "--mutate cannot be used with --as static" in capsys.readouterr().err
