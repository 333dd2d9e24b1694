"""Measures the cost of the memory shim at each start of Python: CPU time of `python -c pass`, with and without it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bench import tables
from bench.runs import Result, figure
from webhook.memory.shim.delivery import FRACTION, MIB, NAMES, PYTHONPATH, code

ROUNDS = 60


def run(interpreters: Iterable[str] = (sys.executable,)) -> Result:
    """Start each interpreter alternately with and without the shim.

    The minimum CPU time of the rounds counts, because other load only adds to it. As in a pod, where the file is on a
    read-only mount, its bytecode cannot be cached.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            Path(folder, name).write_text(code(), "ascii")
        shim = {PYTHONPATH: folder, FRACTION: "0.211", MIB: "3251"}
        measured = {_release(interpreter): _least(interpreter, shim) for interpreter in interpreters}
    rows = [(name, f"{bare:.1f}", f"{beside:.1f}", f"{beside / bare:.2f}") for name, (bare, beside) in measured.items()]
    figures = [
        figure(f"CPython {name}: with to without", "×", [beside / bare]) for name, (bare, beside) in measured.items()
    ]
    return Result(tables.markdown(("Python", "without, ms", "with, ms", "ratio"), rows), figures)


def _release(interpreter: str) -> str:
    return subprocess.run([interpreter, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def _least(interpreter: str, shim: dict[str, str]) -> tuple[float, float]:
    without, beside = [], []
    for _ in range(ROUNDS):
        without.append(_cpu(interpreter, {}))
        beside.append(_cpu(interpreter, shim))
    return min(without), min(beside)


def _cpu(interpreter: str, env: dict[str, str]) -> float:
    """Milliseconds of CPU, user and system, of one start."""
    words = [interpreter, "-c", "pass"]
    started = os.posix_spawn(interpreter, words, {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **env})
    _, status, usage = os.wait4(started, 0)
    if status:
        raise RuntimeError(f"{interpreter} ended with {os.waitstatus_to_exitcode(status)}")
    return 1000 * (usage.ru_utime + usage.ru_stime)
