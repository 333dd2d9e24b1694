"""Measure `slicewarden serve` and its decision under other Pythons, or compiled, beside the Python that runs this.

Run as a program by one of them, it times the decision there and prints an `Asked` as JSON.
"""

import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from bench import decision, generator, https, payloads, tables
from bench.generator import CannotRun, Wrong
from bench.https import OPEN_CONNECTIONS, OPEN_RATE, Bench, Load, Measured
from bench.runs import Figure, Result, figure
from webhook.cli.inputs import load_engine
from webhook.serving.processes import settle

RUNNING, COMPILED = "running", "compiled"
"""The interpreter that runs this, to which the ratios are; and what one with modules from mypyc is called."""

CONNECTIONS = 32
NOT_MEASURED = "CPython without the GIL is not measured: orjson has no wheel for 3.13 or 3.14 without it."


@dataclass(frozen=True, slots=True)
class Asked:
    """A Python as it describes itself, and its median times for each case of the decision in µs: ours, and parsing."""

    version: str
    orjson: str
    compiled: int
    """How many modules of the webhook are machine code."""
    decisions: Mapping[str, tuple[float, float]]


def run(rounds: int, seconds: float, given: Mapping[str, Path]) -> Result:
    """Measure all by turns within each round. `given` are interpreters by name. Raises CannotRun or Wrong."""
    if not given:
        raise CannotRun("name at least one other Python: --python NAME=PROGRAM")
    programs = {RUNNING: Path(sys.executable), **given}
    with tempfile.TemporaryDirectory(prefix="slicewarden-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        generator.build("load", folder)
        https.certificates(folder)
        small, large = both = (payloads.small(), payloads.large())
        asked = []
        for number in range(rounds):
            print(f"decision, round {number + 1}", file=sys.stderr)
            asked.append({each: ask(each, programs[each]) for each in _turned(tuple(programs), number)})
        servers = [
            stack.enter_context(https.serving(each, [str(program), *https.SERVE[1:]], folder, both))
            for each, program in programs.items()
        ]
        for payload in both:
            if len({server.patches[payload.name] for server in servers}) != 1:
                raise Wrong(f"{payload.name}: the patches differ")
        bench = Bench(folder, rounds, seconds)
        measured = {}
        for load in (Load(small, CONNECTIONS), Load(large, CONNECTIONS), Load(small, OPEN_CONNECTIONS, OPEN_RATE)):
            print(f"{load.payload.name}, connections: {load.words}", file=sys.stderr)
            measured[load] = https.measure(bench, servers, load)
    versions = {each: asked[0][each].version for each in given}
    return Result(text(measured, asked), [*_served(measured), *_decided(asked)], versions)


def text(measured: Measured, asked: Sequence[Mapping[str, Asked]]) -> str:
    """Write the tables: the Pythons, their servers, and their decisions. Ratios are taken round by round."""
    described = [(name, one.version, str(one.compiled), one.orjson) for name, one in _ordered(asked[0])]
    served = [
        (
            load.payload.name,
            load.words,
            name,
            f"{statistics.median(each[name].rps for each in by_round):,.0f}",
            f"{statistics.median(each[name].p99 for each in by_round):.2f}",
            f"{statistics.median(each[name].cpu for each in by_round):.0f}",
            f"{statistics.median(each[name].charged for each in by_round):.0f}",
            *(tables.spread(_ratios(by_round, name, field), ".2f") for field in RATIOS.values()),
        )
        for load, by_round in measured.items()
        for name in _names(by_round[0])
    ]
    decided = [
        (
            case,
            name,
            f"{statistics.median(each[name].decisions[case][0] for each in asked):.1f}",
            tables.spread(_to_parsing(asked, name, case), ".2f"),
            tables.spread(_to_running(asked, name, case), ".2f"),
        )
        for case in asked[0][RUNNING].decisions
        for name in _names(asked[0])
    ]
    ratios = tuple(f"{words} (min-max)" for words in RATIOS)
    parts = [
        f"*{RUNNING}* is the Python that ran the benchmarks. The ratios are to it, in the same round.",
        tables.markdown(("name", "CPython", "compiled modules", "orjson"), described),
        tables.markdown(
            ("review", "connections", "name", "rps", "p99 ms", "CPU µs a request", "PSS MiB", *ratios), served
        ),
        tables.markdown(("decision", "name", "median µs", "to parsing (min-max)", "time (min-max)"), decided),
        NOT_MEASURED,
    ]
    if COMPILED not in asked[0]:
        parts.append(f"{COMPILED} was not measured.")
    return "\n\n".join(parts)


RATIOS = {"reviews a second": "rps", "p99": "p99", "CPU a request": "cpu", "memory": "charged"}


def _served(measured: Measured) -> Iterator[Figure]:
    for load, by_round in measured.items():
        at = f"{load.rate}/s" if load.rate else f"{load.words} connections"
        for name in _names(by_round[0])[1:]:
            for words, field in RATIOS.items():
                yield figure(f"{load.payload.name}, {at}: {words}, {name}", "×", _ratios(by_round, name, field))


def _decided(asked: Sequence[Mapping[str, Asked]]) -> Iterator[Figure]:
    for case in asked[0][RUNNING].decisions:
        for name in _names(asked[0]):
            yield figure(f"{case}: to parsing, {name}", "×", _to_parsing(asked, name, case))
            if name != RUNNING:
                yield figure(f"{case}: time, {name}", "×", _to_running(asked, name, case))


def _ratios(by_round: Sequence[Mapping[str, https.Round]], name: str, field: str) -> list[float]:
    return [getattr(each[name], field) / getattr(each[RUNNING], field) for each in by_round]


def _to_parsing(asked: Sequence[Mapping[str, Asked]], name: str, case: str) -> list[float]:
    return [ours / parsing for ours, parsing in (each[name].decisions[case] for each in asked)]


def _to_running(asked: Sequence[Mapping[str, Asked]], name: str, case: str) -> list[float]:
    return [each[name].decisions[case][0] / each[RUNNING].decisions[case][0] for each in asked]


def _names(by_name: Mapping[str, object]) -> list[str]:
    """All names, that of the running Python first: turns change the order from round to round."""
    return [RUNNING, *sorted(each for each in by_name if each != RUNNING)]


def _ordered(by_name: Mapping[str, Asked]) -> Iterator[tuple[str, Asked]]:
    return ((name, by_name[name]) for name in _names(by_name))


def _turned(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    first = number % len(names)
    return (*names[first:], *names[:first])


def ask(name: str, program: Path) -> Asked:
    """Let a Python time the decision. Raises Wrong."""
    command = [str(program), "-m", "bench.pythons"]
    try:
        done = subprocess.run(command, cwd=decision.ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Wrong(f"{name}: {program} does not run: {getattr(error, 'stderr', '') or error}") from error
    asked = Asked(**json.loads(done.stdout))
    if name == COMPILED and not asked.compiled:
        raise Wrong(f"{name}: {program} runs no compiled module of the webhook")
    return asked


def _describe() -> Asked:
    """Time the decision in this process, with the collector as `serve` sets it."""
    engine, facts = load_engine(str(decision.POLICY), str(decision.FACTS))
    cases = [case for case in decision.cases(engine, facts) if case.payload != payloads.plain().name]
    settle()
    timed = {f"{case.payload}, {case.half}": decision.timed_both(case) for case in cases}
    ours = [module for name, module in list(sys.modules.items()) if name.startswith("webhook.")]
    return Asked(
        version=platform.python_version(),
        orjson=version("orjson"),
        compiled=sum(str(getattr(module, "__file__", "")).endswith(".so") for module in ours),
        decisions={case: (statistics.median(one), statistics.median(other)) for case, (one, other) in timed.items()},
    )


if __name__ == "__main__":
    print(json.dumps(asdict(_describe())))
