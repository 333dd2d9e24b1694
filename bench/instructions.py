"""Counts the machine instructions of a decision, which do not depend on how busy the machine is."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import tables
from bench.decision import FACTS, POLICY, ROOT, Case, cases, parse_only
from bench.generator import CannotRun
from bench.runs import Result, figure
from webhook.cli.inputs import load_engine
from webhook.serving.processes import settle

ROUNDS = 100
WARM_UP = 20


def run() -> Result:
    """Count the instructions of each case. Raises CannotRun without valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise CannotRun("instructions are counted by valgrind, which is not on the PATH")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tool = [valgrind, "--quiet", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={folder}/%p"]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
        command = [*tool, sys.executable, "-m", "bench.instructions"]
        written = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        counted = [(*line.split("\t")[1:], _counted(folder / line.split("\t")[0])) for line in written.splitlines()]
    (_, _, nothing), *lines = counted
    rows, figures = [], []
    for (payload, half, decision), (*_, parse) in zip(lines[::2], lines[1::2], strict=True):
        ours, baseline = ((int(total) - int(nothing)) / ROUNDS for total in (decision, parse))
        rows.append((payload, half, f"{ours:,.0f}", f"{baseline:,.0f}", f"{ours / baseline:.2f}"))
        figures.append(figure(f"{payload}, {half}: to parsing", "×", [ours / baseline]))
        figures.append(figure(f"{payload}, {half}", "instructions", [ours]))
    return Result(tables.markdown(("review", "call", "instructions", "parse only", "ratio"), rows), figures)


def _counted(file: Path) -> str:
    """Read the instructions of a whole process from what cachegrind wrote about it."""
    return file.read_text("ascii").rpartition("summary:")[2].split()[0]


def main() -> None:
    """Run each case in a child process of its own. The first child does nothing: its count is the parent's work.

    Writes a line for each child: its process, the review and the call.
    """
    engine, facts = load_engine(str(POLICY), str(FACTS))
    measured = cases(engine, facts)
    settle()
    for case in measured:
        for _ in range(WARM_UP):
            case.call(case.body)
            parse_only(case.body)
    _forked(Case("", "", parse_only, b""), parse_only, 0)
    for case in measured:
        _forked(case, case.call, ROUNDS)
        _forked(case, parse_only, ROUNDS)


def _forked(case: Case, call: Callable[[bytes], object], rounds: int) -> None:
    child = os.fork()
    if child == 0:
        for _ in range(rounds):
            call(case.body)
        os._exit(0)
    os.waitpid(child, 0)
    print(child, case.payload, case.half, sep="\t", flush=True)


if __name__ == "__main__":
    main()
