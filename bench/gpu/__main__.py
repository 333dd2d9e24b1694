"""`python -m bench.gpu`: on a real card, tests the injected caps, the agent's readings, and the driver's limits."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

from bench.gpu import nvml
from bench.gpu.containers import Unwritable
from bench.gpu.injected import Denied, injected
from bench.gpu.tables import about, table

GREEDY = Path(__file__).with_name("greedy.py")
MODULES = {"pytorch": "torch", "jax": "jax", "tensorflow": "tensorflow", "cupy": "cupy"}
FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
PAGE = 2
"""MiB by which a pool may exceed its limit, because it is rounded up to the card's pages."""
PATIENCE = 600
"""Seconds that a program may take to fill its slice."""


class Broke(Exception):
    """A program did not end with its framework's own error."""


class Row(NamedTuple):
    """The result for one framework's programs. Memory is in MiB; `least` and `most` are for single programs."""

    framework: str
    version: str
    least: float
    most: float
    used: float
    beside: float

    def verdict(self, cap: float, total: int) -> str:
        """Say whether the caps held."""
        if self.framework == "tensorflow" or (self.framework == "pytorch" and _release(self.version) < (2, 10)):
            return "not capped, as expected"
        if self.most > cap + PAGE:
            return "**above its cap**"
        if self.least < 0.8 * cap or self.used > total:
            return "**does not fit**"
        return "each stopped at its cap, all fit"


def main() -> int:
    """Exit status: 0 measured, or no card; 1 something did not hold or a program broke; 2 nothing to measure with."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description="Measure what this machine's card holds.")
    parser.add_argument(
        "which", nargs="?", choices=("caps", "truth", "limits", "contention"), default="caps",
        help="the frameworks' caps, as without it; what the agent tells of containers; the driver's limits of them; or "
        "what turns are worth",
    )  # fmt: skip
    parser.add_argument("--slices", type=int, default=4, help="programs that share the card (4)")
    parser.add_argument(
        "--python", action="append", metavar="FILE", help="an interpreter that has frameworks; may be repeated"
    )
    arguments = parser.parse_args()
    if arguments.slices < 2:
        parser.error("--slices must be at least 2")
    try:
        card = nvml.first()
    except nvml.NoCard as error:
        print(f"nothing measured: there is no NVIDIA GPU here ({error})")
        return 0
    if arguments.which != "caps":
        return _of_containers(card, arguments.which)
    pairs = [(python, name) for python in arguments.python or [sys.executable] for name in _installed(python)]
    if not pairs:
        print(f"none of {', '.join(MODULES)} is installed; name interpreters with --python", file=sys.stderr)
        return 2
    try:
        env = injected(card.name, card.total, arguments.slices)
    except Denied as error:
        print(error, file=sys.stderr)
        return 2
    if FRACTION not in env:
        print(f"{card.name} has the host's memory, of which a fraction caps nothing", file=sys.stderr)
        return 2
    cap = float(env[FRACTION]) * card.total
    try:
        rows = [_measure(python, name, env, card, arguments.slices) for python, name in pairs]
    except Broke as error:
        print(error, file=sys.stderr)
        return 1
    verdicts = [row.verdict(cap, card.total) for row in rows]
    head = ("framework", "version", "each took (MiB)", "all together", "beside the allocator", "verdict")
    lines = [
        (r.framework, r.version, f"{r.least:,.0f}-{r.most:,.0f}", f"{r.used:,.0f}", f"{r.beside:,.0f}", verdict)
        for r, verdict in zip(rows, verdicts, strict=True)
    ]
    slices = f"{arguments.slices} slices of {cap:,.0f} MiB"
    print(f"{about(card)}; {slices}:\n")
    print(table(card, head, lines))
    return int(any(verdict.startswith("**") for verdict in verdicts))


def _of_containers(card: nvml.Card, which: str) -> int:
    """Run the measurements that need processes in cgroups but no framework."""
    try:
        from bench.gpu import contention, limits, truth
        from webhook.agent.observe.nvml import Unavailable
    except ModuleNotFoundError as error:
        if error.name != "pynvml":
            raise
        print(
            "nothing measured: nvidia-ml-py is not installed; install it in a clone: pip install '.[agent]'",
            file=sys.stderr,
        )
        return 2

    try:
        written, good = {"truth": truth, "limits": limits, "contention": contention}[which].run(card)
    except (Unwritable, Unavailable) as error:
        print(f"nothing measured: {error}", file=sys.stderr)
        return 2
    print(f"{about(card)}:\n\n{written}")
    return int(not good)


def _installed(python: str) -> list[str]:
    """Which frameworks an interpreter has."""
    ask = "import sys, importlib.util as u; print(*(n for n in sys.argv[1:] if u.find_spec(n)))"
    found = subprocess.run([python, "-c", ask, *MODULES.values()], capture_output=True, text=True, check=True)
    return [name for name, module in MODULES.items() if module in found.stdout.split()]


def _measure(python: str, framework: str, env: dict[str, str], card: nvml.Card, slices: int) -> Row:
    """Measure what one program takes outside its allocator, then fill the card with programs of one framework."""
    idle = card.used
    with _greedy(python, framework, env, "--chunks", "1") as program:
        report = _report(program)
        beside = card.used - idle - _held(report)
    with ExitStack() as stack:
        programs = [stack.enter_context(_greedy(python, framework, env)) for _ in range(slices)]
        reports = [_report(program) for program in programs]
        used = card.used - idle
    if not all(each["stopped"] for each in reports):
        raise Broke(f"{framework} was not stopped")
    held = [_held(each) for each in reports]
    return Row(framework, report["version"], min(held), max(held), used, beside)


@contextmanager
def _greedy(python: str, framework: str, env: dict[str, str], *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [python, str(GREEDY), framework, "--hold", *options]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        command, env={**os.environ, **env}, stdin=pipe, stdout=pipe, stderr=null, text=True
    ) as program:
        alarm = Timer(PATIENCE, program.kill)
        alarm.start()
        try:
            yield program
        finally:
            program.communicate()  # ends its input, and so itself
            alarm.cancel()


def _report(program: subprocess.Popen[str]) -> dict[str, Any]:
    line = program.stdout.readline() if program.stdout else ""
    if not line.startswith("{"):
        raise Broke(f"{' '.join(map(str, program.args))} ended without a report")  # type: ignore[arg-type]
    report: dict[str, Any] = json.loads(line)
    return report


def _held(report: dict[str, Any]) -> float:
    """Return the allocator's MiB: as reported by the framework, or else the sum of the chunks."""
    return max(float(report["reserved"]), float(report["taken"]))


def _release(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


if __name__ == "__main__":
    sys.exit(main())
