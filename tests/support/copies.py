"""Copies the tree, so that a test can add a file as a contributor would."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests import ROOT

FOLDERS = ("webhook", "certs", "docs", "policies", "manifests", "tests")


def copy_tree(to: Path) -> Path:
    """Copy the folders that commands read and write, the pages of the top folder and the settings. Returns `to`."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    for file in (*ROOT.glob("*.md"), ROOT / "pyproject.toml"):
        shutil.copy(file, to)
    return to


def run_python(tree: Path, *words: str) -> str:
    """Run Python in a copy and return what it prints. Raises AssertionError with all output if it fails."""
    done = subprocess.run([sys.executable, *words], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
