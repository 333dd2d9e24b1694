"""The tests here run when they are asked for by path: `pytest tests/oracles`. They need Go."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart import helm
from tests.e2e import binaries
from tests.oracles.programs import Oracle, running
from tests.support.go_programs import Missing


@pytest.fixture(scope="session")
def toolkit() -> Iterator[Oracle]:
    """NVIDIA's container toolkit; the run ends in one line when it cannot be had."""
    yield from _asked("toolkit")


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Oracle]:
    """Kubernetes' own reading of selectors and numbers."""
    yield from _asked("kubernetes")


@pytest.fixture(scope="session")
def kubectl() -> Iterator[Oracle]:
    """kubectl's own reader of files."""
    yield from _asked("files")


@pytest.fixture(scope="session")
def kustomize() -> Iterator[Oracle]:
    """kustomize's own reader of kustomizations."""
    yield from _asked("kustomize")


@pytest.fixture(scope="session")
def flux() -> Iterator[Oracle]:
    """Flux's own building of what a Kustomization applies."""
    yield from _asked("flux")


@pytest.fixture(scope="session")
def argo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """Argo CD's own making of Applications, and of what they deploy."""
    try:
        program = helm.find()
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
    yield from _asked("argo", program.parent, home=tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def with_kubectl() -> Path:
    """A folder with kubectl, which builds kustomizations."""
    try:
        return binaries.find(["kubectl"])
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)


def _asked(name: str, *needed: Path, home: Path | None = None) -> Iterator[Oracle]:
    try:
        with running(name, *needed, home=home) as oracle:
            yield oracle
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
