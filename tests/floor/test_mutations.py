"""The output of `slicewarden floor --mutate`, and the parts that it says are missing."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.cel.clauses import Asked
from webhook.cli import main as cli
from webhook.engine.registration import configurations
from webhook.facts.snapshot import Facts, Node
from webhook.floor.mutations import cappings, literal, mutating, unwritten
from webhook.floor.policies import floor
from webhook.model import Action
from webhook.policy.resources import ResourceNames

SAMPLE = policy_of(POLICY)


def card(name: str, memory: int, replicas: int) -> Node:
    labels = {
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
        "nvidia.com/gpu.product": "Tesla-T4",
        "nvidia.com/gpu.memory": str(memory),
        "nvidia.com/gpu.replicas": str(replicas),
    }
    return Node(name, labels)


def test_it_is_asked_about_new_pods_that_the_registration_sends() -> None:
    made, binding = mutating(SAMPLE, rules.walk(), Facts())
    (hook,) = configurations(SAMPLE)[0]["webhooks"]
    (rule,) = made["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
    assert hook["matchConditions"][0] in made["spec"]["matchConditions"]
    (same,) = (
        each
        for each in floor(SAMPLE, rules.walk())
        if each["metadata"]["name"] == f"slicewarden-{Asked.PODS}" and "validations" in each["spec"]
    )
    assert made["spec"]["matchConditions"][:2] == same["spec"]["matchConditions"]
    assert binding["spec"]["policyName"] == made["metadata"]["name"]


def test_caps_follow_the_cards_that_are_known_if_they_have_one_size() -> None:
    assert "Tesla-T4, 15360 MiB in 4 slices" in cappings(SAMPLE, Facts())["shared"].card
    one = Facts(nodes=(card("a", 24576, 2), card("b", 24576, 2)))
    assert "24576 MiB in 2 slices" in cappings(SAMPLE, one)["shared"].card
    two = Facts(nodes=(card("a", 24576, 2), card("b", 24576, 4)))
    assert cappings(SAMPLE, two) == {}
    assert any("have no caps: shared" in line for line in unwritten(SAMPLE, rules.walk(), {}))


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


def test_a_value_is_written_as_the_api_server_types_it() -> None:
    value = {"key": "it's", "seconds": 5, "on": True, "values": ["a"]}
    assert literal("Object.spec.t", value) == "Object.spec.t{key: 'it\\'s', seconds: 5, on: true, values: ['a']}"


def test_a_check_says_that_mutations_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, note = tmp_path / "floor.yaml", "note: the MutatingAdmissionPolicy in it is not compared\n"
    for options, said in (["--mutate"], note), ([], ""):
        assert cli.main(["floor", "--policy", str(POLICY), *options]) == 0
        file.write_text(capsys.readouterr().out, "utf-8")
        assert cli.main(["floor", "--policy", str(POLICY), "--check", str(file)]) == 0
        assert capsys.readouterr().err == said


@pytest.mark.parametrize("other", [["--as", "static"], ["--check", "floor.yaml"]])
def test_mutations_are_neither_compared_nor_written_as_files(
    other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["floor", "--policy", str(POLICY), "--mutate", *other]) == 2
    assert f"--mutate cannot be used with {' '.join(other[:1])}" in capsys.readouterr().err
