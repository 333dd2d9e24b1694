"""The tests here run when they are asked for by path: `pytest tests/chart`. They need Go, for Helm and kubectl."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.chart import helm
from tests.e2e import binaries
from tests.support.go_programs import Missing

MANIFESTS = ROOT / "manifests"

Object = dict[str, Any]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def programs() -> dict[str, Path]:
    """Helm and kubectl; the run ends in one line when they cannot be had."""
    try:
        return {"helm": helm.find(), "kubectl": binaries.find(["kubectl"]) / "kubectl"}
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)


@pytest.fixture(scope="session")
def run(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run one of them, away from whatever the person who runs the tests has set up."""
    environment = {"HOME": str(tmp_path_factory.mktemp("home")), "PATH": "/usr/bin:/bin"}

    def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [programs[program], *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def kustomized(run: Run) -> Callable[[str], list[Object]]:
    """The objects of a folder of the manifests."""

    def kustomized(folder: str) -> list[Object]:
        made = run("kubectl", "kustomize", MANIFESTS / folder)
        assert made.returncode == 0, made.stderr
        return [*yaml.safe_load_all(made.stdout)]

    return kustomized


@pytest.fixture
def repository(tmp_path: Path, programs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository, which is the working folder."""
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", ":".join([*(str(path.parent) for path in programs.values()), "/usr/bin:/bin"]))
    return folder
