"""`python -m bench`: run the benchmarks, print their tables and keep their figures."""

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from bench import (
    agent,
    aims,
    apiserver,
    audit,
    check,
    controller,
    decision,
    engines,
    fallback,
    growth,
    https,
    instructions,
    layers,
    limits,
    page,
    paths,
    peers,
    rivals,
    runs,
    scale,
    shim,
    turns,
)
from bench.generator import CannotRun, Wrong
from bench.runs import Result


class Options(NamedTuple):
    """How long to measure, and paths of programs of peers that exist already."""

    rounds: int
    seconds: float
    peers: Mapping[str, Path]


class Part(NamedTuple):
    """A part of the benchmarks: its heading, and the function that measures it."""

    title: str
    run: Callable[[Options], Result]


PARTS = {
    "decision": Part("Decision, in process", lambda _: decision.run()),
    "instructions": Part("Decision, in machine instructions", lambda _: instructions.run()),
    "paths": Part("Paths that name a policy", lambda _: paths.run()),
    "profile": Part("Where the CPU of a review goes", lambda _: layers.run()),
    "growth": Part("How a decision's cost grows", lambda _: growth.run()),
    "limits": Part("The largest reviews", lambda _: limits.run()),
    "check": Part("Manifests on the command line", lambda _: check.run()),
    "rivals": Part("Other checkers", lambda asked: rivals.run(asked.rounds)),
    "https": Part("HTTPS on loopback", lambda asked: https.run(asked.rounds, asked.seconds, asked.peers)),
    "apiserver": Part("Through the API server", lambda asked: apiserver.run(asked.rounds, asked.seconds)),
    "engines": Part("Policy engines at the API server", lambda asked: engines.run(asked.rounds, asked.seconds)),
    "fallback": Part("The fallback", lambda asked: fallback.run(asked.rounds, asked.seconds)),
    "audit": Part("Audit of a cluster", lambda asked: audit.run(5_000, asked.rounds)),
    "shim": Part("The start of Python with the memory shim", lambda _: shim.run()),
    "agent": Part("The agent of a node, on a pretended card", lambda _: agent.run()),
    "turns": Part("Turns on a contended card", lambda _: turns.run()),
    "scale": Part("A large cluster", lambda _: scale.run()),
    "controller": Part("The controller while nothing changes", lambda _: controller.run()),
}
"""All parts, in the order of a whole run."""

PAGE = "page"


def main() -> int:
    """Run the requested parts. Exit status: 0 success, 1 a wrong answer or a failed part, 2 something is missing."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="The figures of docs/evidence/speed.md.")
    parser.add_argument("which", nargs="*", help=f"some of {', '.join(PARTS)}, or {PAGE}; all parts without it")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each load over HTTPS (3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each round (2)")
    parser.add_argument(
        "--peer",
        type=_peer,
        action="append",
        default=[],
        metavar="NAME=PROGRAM",
        help=f"over HTTPS: a program built from bench/NAME ({', '.join(peers.PEERS)}); default: built from its pins",
    )
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds <= 0:
        parser.error("--rounds and --seconds must be more than zero")
    if unknown := set(arguments.which) - {*PARTS, PAGE}:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}, and {PAGE}")
    signal.signal(signal.SIGTERM, _stop)
    options = Options(arguments.rounds, arguments.seconds, dict(arguments.peer))
    asked = arguments.which or list(PARTS)
    try:
        statuses = [_run(name, options) for name in asked if name != PAGE]
    except KeyboardInterrupt:
        return 130
    page.write()
    for line in aims.missed(runs.read()):
        print(f"missed: {line}", file=sys.stderr)
    return next((status for status in (1, 2) if status in statuses), 0)


def _run(name: str, options: Options) -> int:
    """Run one part and store its figures. If it fails, its earlier figures and those of other parts stay."""
    part, machine, start = PARTS[name], runs.machine(), time.monotonic()
    print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
    try:
        result = part.run(options)
    except (CannotRun, Wrong) as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return 2 if isinstance(error, CannotRun) else 1
    except Exception:  # the parts after it are measured all the same
        traceback.print_exc()
        return 1
    runs.write(name, part.title, result, machine, time.monotonic() - start)
    print(f"## {part.title}\n\n{result.text}\n", flush=True)
    return 0


def _peer(text: str) -> tuple[str, Path]:
    name, _, program = text.partition("=")
    if name not in peers.PEERS or not program:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(peers.PEERS)} and a program")
    return name, Path(program)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(143)  # as an exception, so that what was started is stopped


if __name__ == "__main__":
    sys.exit(main())
