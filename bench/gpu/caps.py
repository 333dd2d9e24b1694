"""Tests the injected caps: fills the card with greedy programs of each framework, each with the cap of its slice."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer
from typing import IO, Any, NamedTuple

import webhook
from bench.gpu import nvml
from bench.gpu.injected import Denied, injected
from bench.gpu.tables import Measured, Unmeasurable

GREEDY = Path(__file__).with_name("greedy.py")
OWN = Path(webhook.__file__).resolve().parents[1]
"""The folder that our packages are imported from."""
MODULES = {"pytorch": "torch", "jax": "jax", "tensorflow": "tensorflow", "cupy": "cupy"}
FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
PAGE = 2
"""MiB by which a pool may exceed its limit, because it is rounded up to the card's pages."""
PATIENCE = 600
"""Seconds that a program may take to fill its slice."""

HEAD = ("framework", "version", "each took (MiB)", "all together", "outside the allocator", "verdict")


class Broke(Exception):
    """A program ended in another way than with its framework's own out-of-memory error."""


class Row(NamedTuple):
    """The result for one framework's programs. Memory is in MiB; `least` and `most` are for single programs."""

    framework: str
    version: str
    least: float
    most: float
    used: float
    beside: float

    def verdict(self, cap: float, total: int) -> str:
        """Return in words whether the programs stayed within their caps."""
        if self.framework == "tensorflow" or (self.framework == "pytorch" and _release(self.version) < (2, 10)):
            return "not capped, as expected"
        if self.most > cap + PAGE:
            return "**above its cap**"
        if self.least < 0.8 * cap or self.used > total:
            return "**does not fit**"
        return "each stopped at its cap, all fit"


class Slice(NamedTuple):
    """A container's slice of a card: the environment that the webhook gives it, and the cap in MiB."""

    env: Mapping[str, str]
    cap: float


def slice_of(card: nvml.Card, slices: int) -> Slice:
    """Return a slice of a card that is shared in a given number of slices. Raises Unmeasurable."""
    try:
        env = injected(card.name, card.total, slices)
    except Denied as error:
        raise Unmeasurable(str(error)) from error
    if FRACTION not in env:
        raise Unmeasurable(f"{card.name} has the host's memory, of which a fraction caps nothing")
    return Slice(env, float(env[FRACTION]) * card.total)


def run(card: nvml.Card, pythons: Sequence[str], slices: int) -> Measured:
    """Measure, and return the table. A framework whose program breaks gets a row that says so. Raises Unmeasurable."""
    pairs = [(python, name) for python in pythons for name in installed(python)]
    if not pairs:
        raise Unmeasurable(f"none of {', '.join(MODULES)} is installed; name interpreters with --python")
    env, cap = slice_of(card, slices)
    rows: list[Sequence[str]] = []
    for python, name in pairs:
        try:
            row = _measure(python, name, env, card, slices)
        except Broke as error:
            rows.append((name, "", "", "", "", f"**broke**: {error}"))
            continue
        took = f"{row.least:,.0f}-{row.most:,.0f}"
        verdict = row.verdict(cap, card.total)
        rows.append((row.framework, row.version, took, f"{row.used:,.0f}", f"{row.beside:,.0f}", verdict))
    good = not any(row[-1].startswith("**") for row in rows)
    return Measured(HEAD, rows, good, [f"{slices} slices of {cap:,.0f} MiB"])


def installed(python: str) -> list[str]:
    """Return the frameworks that are installed for a Python interpreter."""
    ask = "import sys, importlib.util as u; print(*(n for n in sys.argv[1:] if u.find_spec(n)))"
    command = [python, "-c", ask, *MODULES.values()]
    found = subprocess.run(command, env=_plain(), capture_output=True, text=True, check=True)
    return [name for name, module in MODULES.items() if module in found.stdout.split()]


def _plain() -> dict[str, str]:
    """Return our environment without the folder of our own packages: the frameworks' Python stays as it is."""
    folders = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    others = os.pathsep.join(each for each in folders if Path(each).resolve() != OWN)
    return {**os.environ, "PYTHONPATH": others}


def _measure(python: str, framework: str, env: Mapping[str, str], card: nvml.Card, slices: int) -> Row:
    """Measure what one program takes outside its allocator, then fill the card with programs of one framework."""
    idle = card.used
    with greedy([python], framework, env, "--chunks", "1") as program:
        own = held(program.report())  # before the card is asked: until then the program has no context
        beside = card.used - idle - own
    with ExitStack() as stack:
        programs = [stack.enter_context(greedy([python], framework, env)) for _ in range(slices)]
        reports = [program.report() for program in programs]
        used = card.used - idle
    if not all(each["stopped"] for each in reports):
        raise Broke("it was not stopped")
    taken = [held(each) for each in reports]
    return Row(framework, reports[0]["version"], min(taken), max(taken), used, beside)


class Greedy(NamedTuple):
    """A running program of greedy.py, with its standard error."""

    process: "subprocess.Popen[str]"
    errors: IO[str]

    def report(self) -> dict[str, Any]:
        """Return the report of the program. Raises Broke with the last line of its errors."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if line.startswith("{"):
            report: dict[str, Any] = json.loads(line)
            return report
        self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines() or ["it ended without a report"]
        raise Broke(" ".join(said[-1].split())[:160])


@contextmanager
def greedy(python: Sequence[str], framework: str, env: Mapping[str, str], *options: str) -> Iterator[Greedy]:
    """Run a program of greedy.py until the block ends. `python` is the interpreter with its flags."""
    command = [*python, str(GREEDY), framework, "--hold", *options]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(
            command, env={**_plain(), **env}, stdin=pipe, stdout=pipe, stderr=errors, text=True
        ) as program,
    ):
        alarm = Timer(PATIENCE, program.kill)
        alarm.start()
        try:
            yield Greedy(program, errors)
        finally:
            program.communicate()  # ends its input, and so itself
            alarm.cancel()


def held(report: Mapping[str, Any]) -> float:
    """Return the MiB of the framework's allocator: as it reports them, or else the sum of the chunks."""
    return max(float(report["reserved"]), float(report["taken"]))


def _release(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def interpreters(named: Sequence[str] | None) -> Sequence[str]:
    """Return the interpreters to measure: those on the command line, or else the one that runs this."""
    return named or [sys.executable]
