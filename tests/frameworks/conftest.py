"""The tests here run when they are asked for by path: `pytest tests/frameworks`, after `python -m tests.frameworks`."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.gpu import greedy
from tests.frameworks import environments
from tests.frameworks.card import Card, library

GREEDY = Path(greedy.__file__)
T4 = 15360
"""MiB."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a program on a card."""

    status: int
    out: str
    error: str
    card: Card

    @property
    def stopped(self) -> str | None:
        """The framework's own error that ended a greedy program; AssertionError if it ended otherwise."""
        assert self.status == 0, self.error[-2000:]
        report = json.loads(self.out.splitlines()[-1])
        stopped: str | None = report["stopped"]
        return stopped


Program = Callable[..., Ran]


@pytest.fixture
def on_card(tmp_path: Path) -> Program:
    """Run a program by the interpreter of an environment, on a T4 of its own."""

    def run(name: str, env: Mapping[str, str], *command: str, given: str = "") -> Ran:
        card = Card(T4, tmp_path / f"ledger-{len(list(tmp_path.iterdir()))}")
        stubs = environments.stubs(name, library())
        preload = {} if stubs is None else {"LD_PRELOAD": str(stubs)}
        ran = subprocess.run(
            [str(environments.python(name)), *command],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **preload, **card.environment(), **env},
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr, card)

    return run


@pytest.fixture
def on_greed(on_card: Program) -> Program:
    """Let the framework of an environment take what it can get, on a T4 of its own."""

    def run(name: str, env: Mapping[str, str], *options: str) -> Ran:
        framework = {"torch": "pytorch"}.get(name.partition("-")[0], name.partition("-")[0])
        return on_card(name, env, str(GREEDY), framework, *options)

    return run
