"""A floor is compared with the one that its policy needs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.cli import main as cli
from webhook.floor.current import differences
from webhook.floor.policies import Answer, floor
from webhook.model import Action

SAMPLE = policy_of(POLICY)
WANTED = floor(SAMPLE, rules.walk())


def test_a_floor_is_current_whatever_the_api_server_adds_and_its_bindings_do() -> None:
    def stored(each: dict[str, Any]) -> dict[str, Any]:
        spec = dict(each["spec"])
        if "matchConstraints" in spec:
            rules_ = [{**rule, "scope": "*"} for rule in spec["matchConstraints"]["resourceRules"]]
            spec["matchConstraints"] = {**spec["matchConstraints"], "resourceRules": rules_, "objectSelector": {}}
        return {**each, "spec": spec, "status": {}}

    assert differences(WANTED, map(stored, floor(SAMPLE, rules.walk(), Answer.AUDIT))) == []


def test_what_is_missing_changed_or_left_over_is_named() -> None:
    older = floor(replace(SAMPLE, digest="0", actions={"visible-devices": Action.WARN, "*": Action.DENY}), rules.walk())
    found = [each for each in older if each["metadata"]["name"] != "slicewarden-bindings"]
    left = {**older[0], "metadata": {**older[0]["metadata"], "name": "slicewarden-old"}}
    said = differences(WANTED, [*found, left])
    assert "slicewarden-bindings: is missing" in said
    assert any(line.endswith(": validations differs") and "slicewarden-pods" in line for line in said)
    assert any("was made from policy 0, but this policy is" in line for line in said)
    assert any(line.startswith("slicewarden-old: is not of this policy's floor") for line in said)


def test_the_command_compares_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["floor", "--policy", str(POLICY)]) == 0
    file = tmp_path / "floor.yaml"
    text = capsys.readouterr().out
    file.write_text(text, "utf-8")
    assert cli.main(["floor", "--policy", str(POLICY), "--check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: the floor is current, made from policy {SAMPLE.digest}\n"
    file.write_text(text.replace("spec.nodeName bypasses", "spec.nodeName goes past"), "utf-8")
    assert cli.main(["floor", "--policy", str(POLICY), "--check", str(file)]) == 1
    shown = capsys.readouterr()
    assert shown.out == f"{file}: slicewarden-pods: validations differs\n"
    assert shown.err == f"the floor is stale; run: slicewarden floor --policy {POLICY} > {file}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--check"], "--check needs either FILE or --live"),
        (["--live"], "--live and FILE need --check"),
        (["--as", "folder"], "unknown 'folder'"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["floor", "--policy", str(POLICY), *arguments]) == 2
    assert message in capsys.readouterr().err
