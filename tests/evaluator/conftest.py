"""The evaluator, which is built once; the run ends in one line when it cannot be had."""

from collections.abc import Iterator

import pytest

from tests.evaluator.evaluator import Evaluator, running
from tests.support.go_programs import Missing


@pytest.fixture(scope="session")
def evaluator() -> Iterator[Evaluator]:
    """The API server's own evaluator of admission policies."""
    try:
        with running() as started:
            yield started
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
