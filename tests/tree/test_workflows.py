"""The workflows of .github, and the Action: what they use is pinned, and they have only the rights that they name."""

import json
import os
import re
import subprocess
import tomllib
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


def test_one_workflow_judges_changes_one_publishes_and_one_scans() -> None:
    assert [file.stem for file in WORKFLOWS] == ["ci", "release", "scan"]


@pytest.mark.parametrize("file", [*WORKFLOWS, ROOT / "action.yml"], ids=lambda file: str(file.stem))
def test_what_is_used_of_others_is_pinned_by_its_commit(file: Path) -> None:
    used = re.findall(r"(?m)^\s*(?:- )?uses: (.*)$", file.read_text("utf-8"))
    assert used
    assert [
        line for line in used if not re.fullmatch(r"[\w.-]+(?:/[\w.-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)
    ] == []


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
        assert checkouts
        assert not any(step["with"]["persist-credentials"] for step in checkouts)


def test_only_the_release_may_write_and_sign() -> None:
    rights = {file.stem: {key: job["permissions"] for key, job in jobs(file).items()} for file in WORKFLOWS}
    assert rights == {
        "ci": {"all": {"contents": "read"}, "pythons": {"contents": "read"}},
        "release": {"publish": {"contents": "write", "packages": "write", "id-token": "write"}},
        "scan": {
            "advisories": {"contents": "read"},
            "codeql": {"contents": "read", "security-events": "write"},
            "scorecard": {"contents": "read", "security-events": "write"},
        },
    }
    assert jobs(ROOT / ".github/workflows/release.yml")["publish"]["environment"] == "release"


@each_workflow
def test_a_workflow_runs_what_is_there(file: Path) -> None:
    scripts = [step["run"] for job in jobs(file).values() for step in job["steps"] if "run" in step]
    targets = set(re.findall(r"(?m)\bmake (?:--silent )?(\w+)", "\n".join(scripts)))
    assert targets <= set(re.findall(r"(?m)^(\w+):", MAKEFILE))
    assert targets or scripts == [".ci/run"]
    assert not any("${{" in script for script in scripts)  # a name that someone chose would be run


RULESETS = {file.stem: json.loads(file.read_text("utf-8")) for file in (ROOT / ".github/rulesets").glob("*.json")}


def ruled(name: str) -> dict[str, dict[str, Any]]:
    """The rules of a ruleset, each with its parameters."""
    return {rule["type"]: rule.get("parameters", {}) for rule in RULESETS[name]["rules"]}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PYTHONS = [found[1] for each in PROJECT["classifiers"] if (found := re.fullmatch(r".* :: (3\.\d+)", each))]
"""The releases of Python that the package names."""


def named(job: dict[str, Any]) -> list[str]:
    """The names of the checks of a job that a change needs: of its Pythons, those that the package names."""
    if "strategy" not in job:
        return [job["name"]]
    return [job["name"].replace("${{ matrix.python }}", python) for python in PYTHONS]


def test_every_python_that_the_package_names_is_tested() -> None:
    """Newer ones are tested too, and named when the tests pass there."""
    tested = jobs(ROOT / ".github/workflows/ci.yml")["pythons"]["strategy"]["matrix"]["python"]
    assert tested[: len(PYTHONS)] == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_a_change_of_the_default_branch_needs_a_review_and_the_jobs_that_judge_it() -> None:
    """The names of checks are those of jobs that run for each pull request: a check that nobody runs stops all."""
    running = [job for name in ("ci", "scan") for job in jobs(ROOT / f".github/workflows/{name}.yml").values()]
    names = {name for job in running if "if" not in job for name in named(job)}
    rules = ruled("main")
    assert {check["context"] for check in rules["required_status_checks"]["required_status_checks"]} == names
    assert rules["pull_request"]["required_approving_review_count"] >= 1
    assert rules.keys() >= {"deletion", "non_fast_forward"}


def test_nobody_moves_the_tag_of_a_release() -> None:
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))
    (tags,) = release[True]["push"]["tags"]
    for name in ("tags", "releasers"):
        assert RULESETS[name]["conditions"]["ref_name"]["include"] == [f"refs/tags/{tags}"]
    assert ruled("tags").keys() == {"deletion", "non_fast_forward", "update"}
    assert ruled("releasers").keys() == {"creation"}


def test_every_ruleset_is_in_force_and_only_the_creation_of_tags_can_be_bypassed() -> None:
    assert {each["enforcement"] for each in RULESETS.values()} == {"active"}
    assert {name for name, each in RULESETS.items() if each["bypass_actors"]} == {"releasers"}


def test_the_release_installs_only_what_is_locked() -> None:
    """The step is there before anything else runs, and `make` has nothing to install then."""
    _, first, *_ = jobs(ROOT / ".github/workflows/release.yml")["publish"]["steps"]
    assert "--require-hashes --only-binary :all: --no-deps --requirement .github/uv.txt" in first["run"]
    assert "--frozen" in first["run"]
    assert "--no-editable --no-build-isolation" in first["run"]
    assert first["run"].endswith("touch .venv/.ready\n")


@pytest.mark.parametrize(
    ("registry", "logged_in"), [("", ""), ("/gpu", ""), ("registry.example/gpu", "registry.example")]
)
def test_the_token_goes_to_the_registry_that_is_named(tmp_path: Path, registry: str, logged_in: str) -> None:
    """Without a host, `crane auth login` logs in to Docker Hub."""
    for name in ("crane", "gh", "make"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/log\n', "utf-8")
        (tmp_path / name).chmod(0o755)
    (step,) = (step for step in jobs(ROOT / ".github/workflows/release.yml")["publish"]["steps"] if "env" in step)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REGISTRY": registry, "ACTOR": "ada", "GH_TOKEN": "x"}
    environment["GITHUB_REF_NAME"] = "v0.1.0"
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == bool(logged_in), done.stderr
    log = (tmp_path / "log").read_text("utf-8")
    assert re.findall(r"crane auth login (.*) --username", log) == [logged_in] * bool(logged_in)
    assert ("gh release create v0.1.0" in log) == bool(logged_in)
