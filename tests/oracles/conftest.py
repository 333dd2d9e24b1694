"""The tests here run when they are asked for by path: `pytest tests/oracles`. They need Go."""

from collections.abc import Iterator

import pytest

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


def _asked(name: str) -> Iterator[Oracle]:
    try:
        with running(name) as oracle:
            yield oracle
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
