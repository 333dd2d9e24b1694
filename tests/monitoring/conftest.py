"""The tests here run when they are asked for by path: `pytest tests/monitoring`. They need Go."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.go_programs import Missing, built

HERE = Path(__file__).resolve().parent

Promtool = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs promtool with arguments and standard input."""


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    """Prometheus' own tool; the run ends in one line when it cannot be had."""
    try:
        folder = built(
            HERE,
            {"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
            without_go="the monitoring tests need Go 1.26 (https://go.dev/dl)",
            patience="; the first time, four minutes or so",
            tags="remove_all_sd",  # the clients of clouds
        )
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)

    def run(*arguments: str | Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        command = [folder / "promtool", *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)

    return run
