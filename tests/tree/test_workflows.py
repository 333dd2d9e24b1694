"""The workflows of .github, and the Action: what they use is pinned, and they have only the rights that they name."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")

each_workflow = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: str(file.stem))


def jobs(file: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text("utf-8"))["jobs"]
    return found


def test_one_workflow_judges_changes_and_one_publishes() -> None:
    assert [file.stem for file in WORKFLOWS] == ["ci", "release"]


@pytest.mark.parametrize("file", [*WORKFLOWS, ROOT / "action.yml"], ids=lambda file: str(file.stem))
def test_what_is_used_of_others_is_pinned_by_its_commit(file: Path) -> None:
    used = re.findall(r"(?m)^\s*(?:- )?uses: (.*)$", file.read_text("utf-8"))
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@each_workflow
def test_a_workflow_has_no_right_that_a_job_does_not_name(file: Path) -> None:
    """YAML 1.1 reads the key `on` as true."""
    workflow = yaml.safe_load(file.read_text("utf-8"))
    assert workflow["permissions"] == {}
    assert "pull_request_target" not in workflow[True]
    for job in jobs(file).values():
        assert job["permissions"]
        assert all(isinstance(value, str) for value in job["permissions"].values())
        checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert [step["with"]["persist-credentials"] for step in checkouts] == [False]


def test_only_the_release_may_write_and_sign() -> None:
    rights = {file.stem: {key: job["permissions"] for key, job in jobs(file).items()} for file in WORKFLOWS}
    assert rights == {
        "ci": {"all": {"contents": "read"}},
        "release": {"publish": {"contents": "write", "packages": "write", "id-token": "write"}},
    }
    assert jobs(ROOT / ".github/workflows/release.yml")["publish"]["environment"] == "release"


@each_workflow
def test_a_workflow_runs_what_is_there(file: Path) -> None:
    scripts = [step["run"] for job in jobs(file).values() for step in job["steps"] if "run" in step]
    targets = set(re.findall(r"(?m)\bmake (?:--silent )?(\w+)", "\n".join(scripts)))
    assert targets <= set(re.findall(r"(?m)^(\w+):", MAKEFILE))
    assert targets or scripts == [".ci/run"]
    assert not any("${{" in script for script in scripts)  # a name that someone chose would be run
