"""Tests the memory shim on a real card: PyTorch without its variable, with the shim, and where Python skips it."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.gpu import caps
from bench.gpu.caps import PAGE, Broke, greedy, held, installed, slice_of
from bench.gpu.nvml import Card
from bench.gpu.tables import Measured, Unmeasurable
from webhook.memory.shim.delivery import FRACTION, MIB, NAMES, PYTHONPATH, code

HEAD = ("started as", "version", "cap (MiB)", "took (MiB)", "verdict")
WAYS = ((), ("-I",))
"""The flags of Python. With -I it does not read the shim."""


def run(card: Card, pythons: Sequence[str], slices: int) -> Measured:
    """Test, and return the table, for the first interpreter that has PyTorch. Raises Unmeasurable."""
    python = next((each for each in pythons if "pytorch" in installed(each)), None)
    if python is None:
        raise Unmeasurable("PyTorch is not installed; name an interpreter with --python")
    given, cap = slice_of(card, slices)
    rows: list[Sequence[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            (Path(folder) / name).write_text(code(), "ascii")
        env = {PYTHONPATH: folder, FRACTION: given[caps.FRACTION], MIB: str(int(cap))}
        for flags in WAYS:
            named = " ".join(("python", *flags))
            try:
                with greedy([python, *flags], "pytorch", env) as program:
                    report = program.report()
            except Broke as error:
                rows.append((named, "", f"{cap:,.0f}", "", f"**broke**: {error}"))
                continue
            took = held(report)
            rows.append((named, report["version"], f"{cap:,.0f}", f"{took:,.0f}", _verdict(took, cap, read=not flags)))
    return Measured(HEAD, rows, not any(row[-1].startswith("**") for row in rows))


def _verdict(took: float, cap: float, *, read: bool) -> str:
    if took > cap + PAGE:
        return "**above its cap**" if read else "not capped, as the page says"
    if took < 0.8 * cap:
        return "**far below its cap**"
    return "stopped at its cap" if read else "**capped, against the page**"
