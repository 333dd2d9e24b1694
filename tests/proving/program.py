"""Runs the probe as a program of its own."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from webhook.proving import probe
from webhook.proving.sighting import LONGEST, Sighting, sighting

PROBE = Path(probe.__file__)
LONG = 300
"""Seconds after which a probe is not waited for: many times what any takes."""


def run(env: Mapping[str, str], *options: str) -> tuple[str, Sighting]:
    """Run the probe as a file, isolated from this Python's own packages; return its report, and how it is read."""
    command = [sys.executable, "-I", str(PROBE), "--report", "", *options]
    ran = subprocess.run(command, env={**env}, capture_output=True, text=True, check=False, timeout=LONG)
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.encode()) <= LONGEST + 1
    (line,) = ran.stdout.splitlines()
    seen = sighting(line)
    assert seen is not None, line
    return line, seen
