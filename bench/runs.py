"""Keeps the results of the benchmarks: a file for each part, which its next run overwrites.

A part returns a `Result`: its tables as text, and its figures, each made by `figure(name, unit, values)`.
`bench/aims.py` has the aims of the figures.
"""

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
RUNS = Path(__file__).parent / "runs"

MEASURED = ("webhook", "certs", "bench", "policies", "tests", ":!bench/runs")
"""What a figure depends on, as git's pathspecs."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a part: the median of the measured values, their minimum and maximum."""

    name: str
    unit: str
    median: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a part: Markdown for readers, figures for charts and aims, and the versions of other programs."""

    text: str
    figures: Sequence[Figure] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a measurement. `load` is its load average over the minute before."""

    cpu: str
    cores: int
    memory_gib: int
    load: float


@dataclass(frozen=True, slots=True)
class Run:
    """A part's result, with the machine, the time and the tree. `commit` ends with + if files had changed."""

    part: str
    title: str
    commit: str
    day: str
    seconds: int
    machine: Machine
    versions: Mapping[str, str]
    figures: Mapping[str, Figure]
    text: str

    @property
    def busy(self) -> bool:
        """Whether the machine had other work when the measurement began."""
        return self.machine.load > self.machine.cores


def figure(name: str, unit: str, values: Sequence[float]) -> Figure:
    """Make a figure from the values of all rounds, of which there is at least one."""
    return Figure(name, unit, *(_rounded(each(values)) for each in (median, min, max)))


def write(part: str, title: str, result: Result, machine: Machine, seconds: float) -> None:
    """Write a part's file. Raises ValueError if two figures have one name."""
    names = [each.name for each in result.figures]
    if len(set(names)) != len(names):
        raise ValueError(f"{part}: two figures have one name: {sorted(names)}")
    kept = {
        "title": title,
        "commit": commit(),
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "seconds": round(seconds),
        "machine": asdict(machine),
        "versions": {"CPython": platform.python_version(), "orjson": version("orjson"), **result.versions},
        "figures": [asdict(each) for each in result.figures],
        "text": result.text.splitlines(),
    }
    RUNS.mkdir(exist_ok=True)
    (RUNS / f"{part}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read() -> dict[str, Run]:
    """Read the runs that are kept, by part."""
    return {file.stem: _read(file) for file in sorted(RUNS.glob("*.json"))}


def _read(file: Path) -> Run:
    kept: dict[str, Any] = json.loads(file.read_text("utf-8"))
    figures = [Figure(**each) for each in kept.pop("figures")]
    return Run(
        part=file.stem,
        machine=Machine(**kept.pop("machine")),
        figures={each.name: each for each in figures},
        text="\n".join(kept.pop("text")),
        **kept,
    )


def machine() -> Machine:
    """Describe this machine, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(_cpu(), os.cpu_count() or 1, round(memory / 2**30), round(os.getloadavg()[0], 1))


def commit() -> str:
    """Return the commit of the measured tree, with a + if the measured files differ from it."""
    head = _git("rev-parse", "--short=9", "HEAD")
    return head + "+" * bool(_git("status", "--porcelain", "--", *MEASURED)) if head else "unknown"


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _rounded(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")
