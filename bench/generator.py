"""Builds the load generator of load/ for a run, and asks it for one load at a time."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

WARM_UP = 0.3
"""Seconds of load before each measured round, to warm up connections, caches and CPU clocks."""


class CannotRun(RuntimeError):
    """Something that the benchmark needs is missing."""


class Wrong(RuntimeError):
    """A server gave a wrong answer, so the figures would be meaningless."""


@dataclass(frozen=True, slots=True)
class Report:
    """The load generator's counts: how many requests, how many of them a second, and latencies in milliseconds."""

    requests: int
    rps: float
    p50: float
    p99: float


def build(name: str, folder: Path) -> Path:
    """Build one of the Go programs next to this file into `folder`, and return its path. Raises CannotRun."""
    needed = "Go 1.24 or newer: https://go.dev/dl/"
    go = shutil.which("go")
    if go is None:
        raise CannotRun(f"this benchmark needs {needed}")
    command = [go, "build", "-o", str(folder / name), "."]
    environment = {**os.environ, "GOWORK": "off"}
    if subprocess.run(command, cwd=HERE / name, env=environment, check=False).returncode != 0:
        raise CannotRun(f"bench/{name} does not build; it needs {needed}")
    return folder / name


def load(program: Path, what: str, *flags: str) -> Report:
    """Run the load generator. Raises Wrong, with the load's name, if any reply was not as expected."""
    (report,) = by_turns(program, what, *flags)
    return report


def by_turns(program: Path, what: str, *flags: str) -> list[Report]:
    """Run the load generator, and return a report for `-url` and one for `-other` if it is given. Raises Wrong."""
    done = subprocess.run([str(program), *flags], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Wrong(f"the load generator failed: {done.stderr.strip()}")
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    for report in reports:
        if report["failures"] or not report["requests"]:
            raise Wrong(
                f"{what}: {report['failures']} of {report['requests']} replies were wrong, "
                f"the last one: {report.get('failure')}"
            )
    return [Report(each["requests"], each["rps"], each["p50_ms"], each["p99_ms"]) for each in reports]
