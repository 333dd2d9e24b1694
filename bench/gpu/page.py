"""Fills docs/evidence/gpu.md with the runs on real cards, which bench/gpu/runs keeps as `--json` wrote them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.runs import ROOT
from bench.tables import markdown
from docs import parts

RUNS = Path(__file__).with_name("runs")
PAGE = ROOT / "docs" / "evidence" / "gpu.md"

BEGIN, END = "<!-- runs: written by `make docs` from bench/gpu/runs -->\n", "<!-- end of the runs -->\n"

TITLES = {
    "truth": "What the agent reports of processes",
    "readings": "NVML's times and use",
    "limits": "The driver's limits",
    "caps": "Caps",
    "shim": "The shim",
    "contention": "Turns: seconds until the last has ended, and until each has on average",
    "mps": "A client of MPS",
}
"""The heading of each part."""


def page(folder: Path = RUNS) -> str:
    """Return the page with the tables of the runs. Raises ValueError for a run on a simulated card."""
    runs = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))]
    return parts.filled(PAGE.read_text("utf-8"), BEGIN, END, "\n".join(map(_card, runs)))


def _card(run: Mapping[str, Any]) -> str:
    if run["pretended"]:
        raise ValueError("a run on a pretended card is no measurement")
    name, _, rest = str(run["about"]).partition(", ")
    return "\n".join((f"## {name}\n", f"{rest}. Measured on {run['day']}.\n", *map(_part, run["parts"])))


def _part(part: Mapping[str, Any]) -> str:
    head: Sequence[str] = part["head"]
    notes = "".join(f"\n\n{note[:1].upper()}{note[1:]}." for note in part["notes"])
    return f"### {TITLES[part['part']]}\n\n{markdown(head, part['rows'])}{notes}\n"
