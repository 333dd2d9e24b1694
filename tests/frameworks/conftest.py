"""The tests here run when they are asked for by path: `pytest tests/frameworks`, after `python -m tests.frameworks`."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bench.gpu import greedy
from tests.frameworks import running
from tests.frameworks.running import Ran

GREEDY = Path(greedy.__file__)

Program = Callable[..., Ran]


@pytest.fixture
def on_card(tmp_path: Path) -> Program:
    """Run a program by the interpreter of an environment, on a T4 of its own."""

    def run(name: str, env: Mapping[str, str], *command: str, given: str = "") -> Ran:
        return running.run(name, tmp_path, env, *command, given=given)

    return run


@pytest.fixture
def on_greed(on_card: Program) -> Program:
    """Let the framework of an environment take what it can get, on a T4 of its own."""

    def run(name: str, env: Mapping[str, str], *options: str) -> Ran:
        framework = {"torch": "pytorch"}.get(name.partition("-")[0], name.partition("-")[0])
        return on_card(name, env, str(GREEDY), framework, *options)

    return run
