"""`python -m bench.gpu`: tests caps, the agent's readings, idleness, limits, turns, shim and MPS on a card."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.gpu import caps, nvml
from bench.gpu.tables import Measured, Unmeasurable, about, table

EVERY = ("truth", "idle", "readings", "limits", "caps", "shim", "contention", "mps")
"""All parts, in the order of their worth: a lent card may be taken back at any time."""

Part = Callable[[nvml.Card], Measured]


def main() -> int:
    """Run the tests.

    Exit status: 0 if they passed or there is no card, 1 for a failure, 2 if nothing can be measured.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description="Measure what this machine's card holds.")
    parser.add_argument(
        "which", nargs="?", choices=(*EVERY, "all"), default="caps",
        help="the frameworks' caps, as without it; what the agent reports of containers; what it takes for idle; "
        "NVML's own times and use; the driver's limits of containers; the memory shim; what turns are worth; a "
        "client of MPS; or all",
    )  # fmt: skip
    parser.add_argument("--slices", type=int, default=4, help="programs that share the card (4)")
    parser.add_argument(
        "--python", action="append", metavar="FILE", help="an interpreter that has frameworks; may be repeated"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all that was seen, after each part")
    arguments = parser.parse_args()
    if arguments.slices < 2:
        parser.error("--slices must be at least 2")
    try:
        card = nvml.first()
    except nvml.NoCard as error:
        print(f"nothing measured: there is no NVIDIA GPU here ({error})")
        return 0
    wanted = EVERY if arguments.which == "all" else (arguments.which,)
    try:
        parts = _parts(caps.interpreters(arguments.python), arguments.slices, wanted)
    except ModuleNotFoundError as error:
        if error.name != "pynvml":
            raise
        way = "install it in a clone: pip install '.[agent]'"
        print(f"nothing measured: nvidia-ml-py is not installed; {way}", file=sys.stderr)
        return 2
    print(f"{about(card)}:", flush=True)
    seen: list[dict[str, Any]] = []
    for name in wanted:
        if len(wanted) > 1:
            print(f"\n{name}:", flush=True)
        seen.append(_seen(card, name, parts[name]))
        if arguments.json:
            _save(card, seen, arguments.json)
    if all("error" in one for one in seen):
        return 2
    return int(not all(one["good"] for one in seen))


def _parts(pythons: Sequence[str], slices: int, wanted: Sequence[str]) -> Mapping[str, Part]:
    """Return the parts by name. All but caps and shim raise ModuleNotFoundError without NVIDIA's binding."""
    from bench.gpu import shim

    parts: dict[str, Part] = {
        "caps": lambda card: caps.run(card, pythons, slices),
        "shim": lambda card: shim.run(card, pythons, slices),
    }
    if {*wanted} <= parts.keys():
        return parts
    from bench.gpu import contention, idle, limits, mps, readings, truth

    return parts | {
        "truth": truth.run,
        "idle": idle.run,
        "readings": readings.run,
        "limits": limits.run,
        "contention": contention.run,
        "mps": lambda card: mps.run(card, slices),
    }


def _seen(card: nvml.Card, name: str, part: Part) -> dict[str, Any]:
    """Run and print a part. One that breaks ends no other one; one that is not possible here is no fault."""
    begin = time.monotonic()
    try:
        measured = part(card)
    except Exception as error:  # whatever it is, the other parts of a lent card are worth more
        possible = not isinstance(error, Unmeasurable)
        why = f"{type(error).__name__}: {error}" if possible else str(error)
        print(f"{name}: nothing measured: {why}", file=sys.stderr, flush=True)
        found: dict[str, Any] = {"error": why, "good": not possible}
    else:
        print(f"\n{table(card, measured)}", flush=True)
        found = measured._asdict()
    return {"part": name, "seconds": round(time.monotonic() - begin, 2), **found}


def _save(card: nvml.Card, seen: list[dict[str, Any]], file: Path) -> None:
    day = datetime.now(UTC).date().isoformat()
    value = {"day": day, "about": about(card), "pretended": card.pretended, "used": card.used, "parts": seen}
    file.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
