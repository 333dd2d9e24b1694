"""`slicewarden version`, where the package is installed and where its files alone are there."""

import platform
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import ROOT
from webhook.cli import main as cli
from webhook.cli.options import UNUSABLE

RELEASE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

UNINSTALLED = """
import importlib.metadata, sys
def gone(name): raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = gone
from webhook.cli.main import main
for words in (["version"], ["--version"], ["help", "--man", sys.argv[1]]):
    print(main(words))
from webhook.telemetry import metrics
print(*metrics.BUILD)
"""


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    said = capsys.readouterr()
    assert said == (f"slicewarden {RELEASE}\n", "")
    for option in ("--version", "-V"):
        assert cli.main([option]) == 0
        assert capsys.readouterr() == said


def test_where_it_is_not_installed_the_error_says_how_and_metrics_have_no_version(tmp_path: Path) -> None:
    program = [sys.executable, "-c", UNINSTALLED, str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(UNUSABLE)] * 3 + [f"unknown {platform.python_version()}"]
    line = (
        "error: slicewarden: the package is not installed, so its version is unknown; "
        "run 'python -m pip install .' in the folder of its pyproject.toml"
    )
    assert done.stderr.splitlines() == [line] * 3
    assert not list(tmp_path.iterdir())
