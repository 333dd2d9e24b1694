"""The tests here run when they are asked for by path: `pytest tests/monitoring`. They need Go."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.monitoring import prometheus
from tests.support.go_programs import Missing
from tests.support.waiting import LONG

Promtool = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs promtool with arguments and standard input."""


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    """Prometheus' own tool; the run ends in one line when it cannot be had."""
    try:
        program = prometheus.find("promtool")
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)

    def run(*arguments: str | Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        command = [program, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=2 * LONG, check=False)

    return run
