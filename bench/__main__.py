"""`python -m bench`: run the benchmarks and print their tables."""

import argparse
import os
import platform
import signal
import sys
from pathlib import Path
from types import FrameType

from bench import (
    agent,
    apiserver,
    audit,
    check,
    decision,
    floor,
    growth,
    https,
    instructions,
    limits,
    peers,
    rivals,
    shim,
    turns,
)
from bench.generator import CannotRun, Wrong

PARTS = (
    *("decision", "instructions", "growth", "limits", "check", "rivals"),
    *("https", "apiserver", "floor", "audit", "shim", "agent", "turns"),
)


def main() -> int:
    """Run what was asked for. Exit status: 0, 1 a server answered wrongly, 2 something is missing."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="The figures of bench/README.md.")
    parser.add_argument(
        "which",
        nargs="?",
        choices=PARTS,
        help="one of them; all without it",
    )
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
    signal.signal(signal.SIGTERM, _stop)
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs\n")
    try:
        if arguments.which in (None, "decision"):
            print(f"## Decision, in process\n\n{decision.run()}\n", flush=True)
        if arguments.which in (None, "instructions"):
            print(f"## Decision, in machine instructions\n\n{instructions.run()}\n", flush=True)
        if arguments.which in (None, "growth"):
            table = growth.run()
            growth.PAGE.write_text(growth.page(table), "utf-8")
            print(f"## How a decision's cost grows\n\n{table}\n", flush=True)
        if arguments.which in (None, "limits"):
            print(f"## The largest reviews\n\n{limits.run()}\n", flush=True)
        if arguments.which in (None, "check"):
            print(f"## Manifests on the command line\n\n{check.run()}\n", flush=True)
        if arguments.which in (None, "rivals"):
            print(f"## Other checkers\n\n{rivals.run(arguments.rounds)}\n", flush=True)
        if arguments.which in (None, "https"):
            table = https.run(arguments.rounds, arguments.seconds, dict(arguments.peer))
            print(f"## HTTPS on loopback\n\n{table}\n", flush=True)
        if arguments.which in (None, "apiserver"):
            print(f"## Through the API server\n\n{apiserver.run(arguments.rounds, arguments.seconds)}\n", flush=True)
        if arguments.which in (None, "floor"):
            print(f"## The floor\n\n{floor.run(arguments.rounds, arguments.seconds)}\n", flush=True)
        if arguments.which in (None, "audit"):
            print(f"## Audit of a cluster\n\n{audit.run(5_000, arguments.rounds)}\n", flush=True)
        if arguments.which in (None, "shim"):
            print(f"## The start of Python with the memory shim\n\n{shim.run()}\n", flush=True)
        if arguments.which in (None, "agent"):
            print(f"## The agent of a node, on a pretended card\n\n{agent.run()}\n", flush=True)
        if arguments.which in (None, "turns"):
            print(f"## Turns on a contended card\n\n{turns.run()}", flush=True)
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 2
    except Wrong as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
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
