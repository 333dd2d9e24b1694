"""A policy makes the same text in each run, so that a comparison in CI finds only real differences."""

import os
import subprocess
import sys

import pytest

from tests import ROOT
from tests.support.policies import POLICY


@pytest.mark.parametrize("command", [["fallback"], ["fallback", "--as", "static"], ["registration"]], ids=" ".join)
def test_every_run_writes_the_same_bytes_whatever_the_order_of_its_sets(command: list[str]) -> None:
    line = [sys.executable, "-m", "webhook", *command, "--policy", str(POLICY)]
    texts = {
        subprocess.run(
            line, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1")
    }
    (text,) = texts
    assert text.startswith(b"# Made from policy ")
