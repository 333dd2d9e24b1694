"""The workflows, and the Action, as those read them who look for mistakes in workflows: actionlint and zizmor."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.signing import actionlint
from tests.support.go_programs import Missing

ZIZMOR = "zizmor==1.32.0"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the workflows and the Action, as in the root of a repository."""
    (tmp_path / ".git").mkdir()
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    shutil.copy(ROOT / "action.yml", tmp_path)
    return tmp_path


def actions(folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        program = actionlint.find()
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
    return subprocess.run([program, "-no-color"], cwd=folder, capture_output=True, text=True, check=False)


def zizmor(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "uv", "tool", "run", "--quiet", "--from", ZIZMOR]
    command += ["zizmor", "--offline", "--persona=pedantic", "--no-progress", "."]
    return subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False)


def test_actionlint_finds_nothing(copy: Path) -> None:
    done = actions(copy)
    assert done.returncode == 0, done.stdout


def test_zizmor_finds_nothing(copy: Path) -> None:
    done = zizmor(copy)
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_find_a_mistake(copy: Path) -> None:
    workflow = copy / ".github" / "workflows" / "release.yml"
    text = workflow.read_text("utf-8")
    workflow.write_text(text.replace("vars.REGISTRY", "var.REGISTRY"), "utf-8")
    assert 'undefined variable "var"' in actions(copy).stdout
    workflow.write_text(text.replace("permissions: {}", "permissions: write-all"), "utf-8")
    assert "excessive-permissions" in zizmor(copy).stdout
