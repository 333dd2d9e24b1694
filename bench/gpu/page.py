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
    "idle": "What the agent takes for idle",
    "readings": "NVML's times and use",
    "limits": "The driver's limits",
    "caps": "Caps",
    "shim": "The shim",
    "contention": "Turns: seconds until the last has ended, and until each has on average",
    "mps": "A client of MPS",
}
"""The heading of each part."""


def page(folder: Path = RUNS) -> str:
    """Return the page with the tables of the runs. Raises ValueError for a run on a simulated card.

    Runs on the same card with the same software have one section, where a later file's part replaces an earlier one.
    """
    cards: dict[str, list[Mapping[str, Any]]] = {}
    for file in sorted(folder.glob("*.json")):
        run = json.loads(file.read_text("utf-8"))
        cards.setdefault(run["about"], []).append(run)
    return parts.filled(PAGE.read_text("utf-8"), BEGIN, END, "\n".join(map(_card, cards.values())))


def _card(runs: Sequence[Mapping[str, Any]]) -> str:
    if any(run["pretended"] for run in runs):
        raise ValueError("a run on a pretended card is no measurement")
    name, _, rest = str(runs[0]["about"]).partition(", ")
    days = " and ".join(dict.fromkeys(run["day"] for run in runs))
    found = {part["part"]: part for run in runs for part in run["parts"]}
    return "\n".join(
        (f"## {name}\n", f"{rest}. Measured on {days}.\n", *(_part(found[each]) for each in TITLES if each in found))
    )


def _part(part: Mapping[str, Any]) -> str:
    head: Sequence[str] = part["head"]
    notes = "".join(f"\n\n{note[:1].upper()}{note[1:]}." for note in part["notes"])
    return f"### {TITLES[part['part']]}\n\n{markdown(head, part['rows'])}{notes}\n"
