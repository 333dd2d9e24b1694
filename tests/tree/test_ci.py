"""`.ci/run` fails where a target does, and keeps apart what targets print. Scripts stand for the targets."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.stamps import TARGETS

MAKE = """#!/usr/bin/env bash
[ "$*" != "node TESTS=--build" ] || { echo "node is built"; exit; }
echo "$1 begins"
touch "$1.began"
case "$1" in  # each of the two goes on only while the other runs
  node) other=frameworks ;;
  frameworks) other=node ;;
  *) other=$1 ;;
esac
until [ -e "$other.began" ] || [ "$GREEN" = frameworks ]; do sleep 0.01; done
echo "$1 ends"
[ "$1" != "$FAIL" ]
"""
PYTHON = """#!/usr/bin/env bash
[ "$2" = tests.support.stamps ] || exit 0
[ "${4:-}" != --green ] || { touch "$3.green"; exit 0; }
[ "$3" = "$GREEN" ]
"""
OTHERS = ("demo", "test", "site", "rehearsal", "fuzz")
"""Targets without a stamp."""


def ran(folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    for name, text in {"bin/make": MAKE, ".venv/bin/python": PYTHON, "bin/apt-get": "#!/bin/false\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
        (folder / name).chmod(0o755)
    (folder / ".ci").mkdir()
    shutil.copy2(ROOT / ".ci" / "run", folder / ".ci")
    around = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "FAIL": "", "GREEN": "", **environment}
    return subprocess.run([folder / ".ci/run"], env=around, capture_output=True, text=True, timeout=120, check=False)


def test_all_targets_run_the_nodes_and_the_frameworks_side_by_side(tmp_path: Path) -> None:
    done = ran(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "begins" in line or "ends" in line]
    assert lines == [
        f"{name} {what}" for name in dict.fromkeys(line.split()[0] for line in lines) for what in ("begins", "ends")
    ]
    assert {path.stem for path in tmp_path.glob("*.began")} == {*TARGETS, *OTHERS}
    assert {path.stem for path in tmp_path.glob("*.green")} == {*TARGETS}
    assert "node is built" in done.stdout


@pytest.mark.parametrize("target", [*OTHERS, *TARGETS])
def test_a_target_that_fails_fails_the_run_and_gets_no_stamp(tmp_path: Path, target: str) -> None:
    done = ran(tmp_path, FAIL=target)
    assert done.returncode != 0
    assert f"{target} begins" in done.stdout
    assert not (tmp_path / f"{target}.green").exists()
    assert not (tmp_path / "image.green").exists()


@pytest.mark.parametrize("target", ["frameworks", "image"])
def test_a_suite_that_was_green_is_passed_over_and_all_runs_it(tmp_path: Path, target: str) -> None:
    done = ran(tmp_path, GREEN=target)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{target} begins" not in done.stdout
    assert re.search(rf"^{target} +passed over", done.stdout, re.MULTILINE)
    shutil.rmtree(tmp_path / ".ci")
    assert f"{target} begins" in ran(tmp_path, GREEN=target, ALL="1").stdout
