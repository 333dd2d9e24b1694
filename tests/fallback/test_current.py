"""A fallback is compared with the one that its policy needs."""

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.cli import main as cli
from webhook.fallback import current
from webhook.fallback.answers import RECORDED, ValidationActions
from webhook.fallback.current import ObjectState, answers, differences, recording, states
from webhook.fallback.policies import fallback, static
from webhook.model import Action

SAMPLE = policy_of(POLICY)
WANTED = fallback(SAMPLE, rules.walk())


def test_a_fallback_is_current_whatever_the_api_server_adds_and_its_bindings_do() -> None:
    def stored(each: dict[str, Any]) -> dict[str, Any]:
        spec = dict(each["spec"])
        if "matchConstraints" in spec:
            rules_ = [{**rule, "scope": "*"} for rule in spec["matchConstraints"]["resourceRules"]]
            spec["matchConstraints"] = {**spec["matchConstraints"], "resourceRules": rules_, "objectSelector": {}}
        return {**each, "spec": spec, "status": {}}

    assert differences(WANTED, map(stored, fallback(SAMPLE, rules.walk(), ValidationActions.AUDIT))) == []


def test_what_is_missing_changed_or_left_over_is_named() -> None:
    policy = replace(SAMPLE, written='{"spec": {}}', actions={"visible-devices": Action.WARN, "*": Action.DENY})
    older = fallback(policy, rules.walk())
    found = [each for each in older if each["metadata"]["name"] != "slicewarden-bindings"]
    left = {**older[0], "metadata": {**older[0]["metadata"], "name": "slicewarden-old"}}
    said = differences(WANTED, [*found, left])
    assert "slicewarden-bindings: is missing" in said
    assert any(line.endswith(": its validations differ") and "slicewarden-pods" in line for line in said)
    assert any(f"was made from policy {policy.digest}, but this policy is" in line for line in said)
    assert any(line.startswith("slicewarden-old: is not of this policy's fallback") for line in said)


def test_the_command_compares_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fallback", "--policy", str(POLICY)]) == 0
    file = tmp_path / "fallback.yaml"
    text = capsys.readouterr().out
    file.write_text(text, "utf-8")
    assert cli.main(["fallback", "--policy", str(POLICY), "--check", str(file)]) == 0
    assert (
        capsys.readouterr().out == f"{file}: the fallback is current, made from policy {SAMPLE.digest}, actions: Deny\n"
    )
    file.write_text(text.replace("spec.nodeName bypasses", "spec.nodeName goes past"), "utf-8")
    assert cli.main(["fallback", "--policy", str(POLICY), "--check", str(file)]) == 1
    shown = capsys.readouterr()
    assert shown.out == f"{file}: slicewarden-pods: its validations differ\n"
    assert shown.err == f"the fallback is stale; run: slicewarden fallback --policy {POLICY} > {file}\n"


@pytest.fixture
def written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Path]:
    def written(*options: str) -> Path:
        assert cli.main(["fallback", "--policy", str(POLICY), *options]) == 0
        file = tmp_path / "fallback.yaml"
        file.write_text(capsys.readouterr().out, "utf-8")
        return file

    return written


def test_actions_are_compared_if_they_are_given_and_named_if_not(
    written: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written("--actions", "Audit")
    check = ["fallback", "--policy", str(POLICY), "--check", str(file)]
    for options in ([], ["--actions", "Audit"]):
        assert cli.main([*check, *options]) == 0
        assert capsys.readouterr().out.endswith(f"made from policy {SAMPLE.digest}, actions: Audit\n")
    assert cli.main([*check, "--actions", "Deny"]) == 1
    shown = capsys.readouterr()
    assert shown.out.endswith(": actions are Audit, not Deny and Audit\n")
    assert shown.err == f"the fallback is stale; run: slicewarden fallback --policy {POLICY} > {file}\n"
    file = written("--actions", "Deny")
    assert cli.main([*check, "--actions", "Warn"]) == 1
    assert f"fallback --policy {POLICY} --actions Warn > {file}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [("--actions", "Audit"), ("--as", "static"), ("--as", "static", "--actions", "Warn")]
)
def test_the_hint_makes_a_stale_fallback_again_as_it_was_made(
    options: tuple[str, ...], written: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(*options)
    fresh = file.read_text("utf-8")
    file.write_text(fresh.replace("spec.nodeName bypasses", "spec.nodeName goes past"), "utf-8")
    form = options[:2] if "static" in options else ()
    assert cli.main(["fallback", "--policy", str(POLICY), "--check", *form, str(file)]) == 1
    start, _, hint = capsys.readouterr().err.partition("; run: slicewarden ")
    assert start == "the fallback is stale"
    command, _, target = hint.rstrip("\n").partition(" > ")
    assert target == str(file)
    assert cli.main(shlex.split(command)) == 0
    assert capsys.readouterr().out == fresh


def test_a_guard_that_does_not_deny_is_stale_whatever_the_actions_of_the_fallback_are() -> None:
    wanted = static(fallback(SAMPLE, rules.walk(), ValidationActions.AUDIT), SAMPLE)
    assert [*answers(wanted)] == [ValidationActions.AUDIT]
    *others, binding = wanted
    open_ = {**binding, "spec": {**binding["spec"], "validationActions": ["Audit"]}}
    said = ["slicewarden-guard.static.k8s.io: actions are Audit, not Deny and Audit"]
    assert differences(wanted, [*others, open_]) == said


@pytest.mark.parametrize("actions", [None, "Deny", [{}], 7])
def test_bindings_with_actions_that_are_no_actions_have_no_answer(actions: Any) -> None:
    found = [{**each, "spec": {**each["spec"], "validationActions": actions}} for each in WANTED]
    assert answers(found) == {}
    assert any(": actions are " in line for line in differences(WANTED, found, actions=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--check"], "--check needs either FILE or --live"),
        (["a.yaml"], "FILE and --live need --check"),
        (["--as", "folder"], "unknown 'folder'"),
        (["--as", "static", "--params", "a"], "--params cannot be used with --as static"),
        (["--mutate", "--params", "a"], "--params cannot be used with --mutate"),
        (["--params", "A/b"], "must be the name of a ConfigMap, or its namespace, a slash and its name"),
        (
            ["--as", "static", "--check", "--live"],
            "no API shows the static form; compare the file of each control plane",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["fallback", "--policy", str(POLICY), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_fallback_that_reads_a_config_map_is_compared_with_it(
    written: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written("--params", "team/fallback", "--actions", "Audit")
    fresh = file.read_text("utf-8")
    assert fresh.startswith(
        "# Made from policy sample by `slicewarden fallback --actions Audit --params team/fallback`.\n"
    )
    check = ["fallback", "--policy", str(POLICY), "--check", str(file)]
    assert cli.main(check) == 0
    capsys.readouterr()
    for other, said in (
        (fresh.replace("maxRequest.exclusive: '8'", "maxRequest.exclusive: '9'"), "fallback: its data differ"),
        (fresh.replace(SAMPLE.digest, "0"), f"fallback: was made from policy 0, but this policy is {SAMPLE.digest}"),
        (
            fresh[fresh.index("---\napiVersion: admission") :],
            "fallback: the ConfigMap is missing, so every pod is refused",
        ),
        (fresh.replace("parameterNotFoundAction: Deny", "parameterNotFoundAction: Allow"), "its paramRef differs"),
    ):
        assert other != fresh
        file.write_text(other, "utf-8")
        assert cli.main(check) == 1
        shown = capsys.readouterr()
        assert said in shown.out
        assert f"fallback --policy {POLICY} --actions Audit --params team/fallback > {file}" in shown.err
    file.write_text(fresh, "utf-8")
    assert cli.main([*check, "--params", "other"]) == 1
    assert "its paramRef differs" in capsys.readouterr().out


@pytest.mark.parametrize("option", [("--params", "a"), ("--mutate",)])
def test_a_fallback_in_files_is_not_compared_with_what_files_cannot_have(
    option: tuple[str, ...], written: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written("--as", "static")
    assert cli.main(["fallback", "--policy", str(POLICY), *option, "--check", str(file)]) == 2
    assert f"{option[0]} cannot be used with --as static; leave it out" in capsys.readouterr().err


def test_beside_a_fallback_in_files_one_that_reads_a_config_map_is_left_over(
    written: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files = written("--as", "static").read_text("utf-8")
    file = written("--params", "a")
    file.write_text(files + file.read_text("utf-8"), "utf-8")
    assert cli.main(["fallback", "--policy", str(POLICY), "--check", str(file)]) == 1
    shown = capsys.readouterr()
    assert "slicewarden-pods, " in shown.out
    assert "is not of this policy's fallback" in shown.out
    assert f"slicewarden fallback --policy {POLICY} --as static > {file}\n" in shown.err


BY_RULE = fallback(SAMPLE, rules.walk(), ValidationActions.BY_RULE)


def of_kind(made: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in made if each["kind"] == kind]


def test_a_fallback_by_rule_records_what_can_wait_and_denies_the_rest() -> None:
    policies, bindings = of_kind(BY_RULE, current.KINDS[0]), of_kind(BY_RULE, current.KINDS[1])
    actions = {each["metadata"]["name"]: each["spec"]["validationActions"] for each in bindings}
    said: dict[bool, set[str]] = {True: set(), False: set()}
    for each in policies:
        name = each["metadata"]["name"]
        assert actions[name] == (["Audit"] if name.endswith("-audited") else ["Deny", "Audit"])
        said[name.endswith("-audited")] |= {rule["message"].partition(":")[0] for rule in each["spec"]["validations"]}
    assert said[True] == said[True] & RECORDED.keys() != set()
    assert not said[False] & RECORDED.keys()
    everything = {
        rule["message"].partition(":")[0]
        for each in of_kind(WANTED, current.KINDS[0])
        for rule in each["spec"]["validations"]
    }
    assert said[True] | said[False] == everything


def test_what_is_left_of_a_fallback_by_rule_is_not_said_to_deny() -> None:
    said = "slicewarden-pods-audited: belongs to a fallback with other --actions; it only records; delete it"
    assert said in differences(WANTED, BY_RULE)
    assert not any("may deny" in line for line in differences(WANTED, BY_RULE))
    strict = [
        {**each, "spec": {**each["spec"], "validationActions": ["Deny"]}} for each in of_kind(BY_RULE, current.KINDS[1])
    ]
    found = [*of_kind(BY_RULE, current.KINDS[0]), *strict]
    (line,) = (each for each in differences(WANTED, found) if "slicewarden-pods-audited" in each)
    assert "may deny what the webhook allows; delete it" in line


def test_the_page_has_every_rule_that_is_only_recorded_with_its_reason() -> None:
    assert RECORDED.keys() <= {rule.id for rule in rules.walk()}
    page, start, end = ROOT / "docs" / "fallback.md", "<!-- recorded -->\n", "<!-- end -->"
    rows = [f"| [`{rule}`](rules.md#{rule}) | {reason} |" for rule, reason in sorted(RECORDED.items())]
    table = "\n".join(["| rule | why it can wait |", "| --- | --- |", *rows, ""])
    before, _, rest = page.read_text("utf-8").partition(start)
    _, found, after = rest.partition(end)
    assert found
    if os.environ.get("UPDATE_GOLDEN"):
        page.write_text(before + start + table + end + after, "utf-8")
    assert rest == table + end + after, "UPDATE_GOLDEN=1 writes it"


def test_a_weaker_binding_of_a_fallback_by_rule_is_told_without_being_asked_for(
    written: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written("--actions", "ByRule")
    check = ["fallback", "--policy", str(POLICY), "--check", str(file)]
    assert cli.main(check) == 0
    assert capsys.readouterr().out.endswith(", actions: ByRule\n")
    fresh = file.read_text("utf-8")
    file.write_text(fresh.replace("  - Deny\n", "", 1), "utf-8")
    assert cli.main(check) == 1
    shown = capsys.readouterr()
    assert shown.out.endswith(": actions are Audit, not Deny and Audit\n")
    assert shown.err.endswith(f"run: slicewarden fallback --policy {POLICY} --actions ByRule > {file}\n")
    file.write_text(fresh.replace("  - Deny\n", ""), "utf-8")  # audit mode
    assert cli.main(check) == 0
    assert capsys.readouterr().out.endswith(", actions: Audit\n")


def test_bindings_of_several_actions_are_named_and_the_hint_says_what_it_would_lose(
    written: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written("--actions", "Deny")
    text = file.read_text("utf-8").replace("  - Deny\n", "", 1)
    file.write_text(text, "utf-8")
    check = ["fallback", "--policy", str(POLICY), "--check", str(file)]
    assert cli.main(check) == 0
    assert capsys.readouterr().out.endswith(" and 4 more), Audit (slicewarden-pods)\n")
    file.write_text(text.replace("spec.nodeName bypasses", "spec.nodeName goes past"), "utf-8")
    assert cli.main(check) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"the fallback is stale; run: slicewarden fallback --policy {POLICY} > {file}\n")
    assert "note: the bindings have several actions, Deny (" in err


def without(part: str) -> list[dict[str, Any]]:
    """The fallback with something of it narrowed, as somebody may who wants to get past it."""
    found: list[dict[str, Any]] = json.loads(json.dumps(WANTED))
    policy, binding = (of_kind(found, kind)[0]["spec"] for kind in current.KINDS)
    {
        "namespaceSelector": lambda: policy["matchConstraints"].update(namespaceSelector={"matchLabels": {"a": "b"}}),
        "excludeResourceRules": lambda: policy["matchConstraints"].update(
            excludeResourceRules=policy["matchConstraints"]["resourceRules"]
        ),
        "matchConditions": lambda: policy["matchConditions"].append({"name": "no", "expression": "false"}),
        "matchResources": lambda: binding.update(matchResources={"namespaceSelector": {"matchLabels": {"a": "b"}}}),
        "failurePolicy": lambda: policy.update(failurePolicy="Ignore"),
        "policyName": lambda: binding.update(policyName="another"),
        "validations": lambda: policy["validations"].pop(),
    }[part]()
    assert found != WANTED
    return found


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("namespaceSelector", "its matchConstraints differ"),
        ("excludeResourceRules", "its matchConstraints differ"),
        ("matchConditions", "its matchConditions differ"),
        ("failurePolicy", "its failurePolicy differs"),
        ("validations", "its validations differ"),
        ("matchResources", "has matchResources of its own"),
        ("policyName", "its policyName differs"),
    ],
)
def test_whatever_narrows_a_fallback_is_a_difference(part: str, said: str) -> None:
    found = without(part)
    assert differences(WANTED, found) == [f"slicewarden-pods: {said}"]
    assert states(WANTED, found) == {
        ObjectState.CURRENT: len(WANTED) - 1,
        ObjectState.MISSING: 0,
        ObjectState.DIFFERING: 1,
        ObjectState.UNNEEDED: 0,
    }


def test_a_binding_that_is_missing_is_told_apart_from_its_policy() -> None:
    policies, bindings = of_kind(WANTED, current.KINDS[0]), of_kind(WANTED, current.KINDS[1])
    assert differences(WANTED, [*policies, *bindings[1:]]) == [
        "slicewarden-pods: its binding is missing, so it is not in force"
    ]
    assert states(WANTED, [*policies[1:], *bindings[1:]])[ObjectState.MISSING] == 2
    assert states(recording(WANTED), recording(WANTED))[ObjectState.CURRENT] == len(WANTED)
    assert states(recording(WANTED), WANTED)[ObjectState.DIFFERING] == len(WANTED) // 2
