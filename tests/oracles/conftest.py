"""The tests here run when they are asked for by path: `pytest tests/oracles`. They need Go."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracles.programs import Oracle, running
from tests.support.go_programs import Missing

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave this folder out of a run of all tests."""
    asked = ((config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args)
    return None if any(path.is_relative_to(HERE) for path in asked) else True


@pytest.fixture(scope="session")
def toolkit() -> Iterator[Oracle]:
    """NVIDIA's container toolkit; the run ends in one line when it cannot be had."""
    yield from _asked("toolkit")


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Oracle]:
    """Kubernetes' own reading of selectors and numbers."""
    yield from _asked("kubernetes")


def _asked(name: str) -> Iterator[Oracle]:
    try:
        with running(name) as oracle:
            yield oracle
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
