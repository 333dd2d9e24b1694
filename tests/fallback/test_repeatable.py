"""A policy makes the same text in each run, so that a comparison in CI finds only real differences."""

import os
import subprocess
import sys

from tests import ROOT
from tests.support.policies import POLICY

COMMANDS = (["fallback"], ["fallback", "--as", "static"], ["registration"])
PROGRAM = f"""
from webhook.cli.main import main
for command in {COMMANDS}:
    print("status", main([*command, "--policy", {str(POLICY)!r}]), flush=True)
"""


def test_every_run_writes_the_same_bytes_whatever_the_order_of_its_sets() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    (text,) = texts
    assert text.count(b"# Made from policy ") == text.count(b"\nstatus 0\n") == len(COMMANDS)
