"""Writes the tables of bench/gpu. Each names the measured card and the software, or says that nothing was measured."""

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import NamedTuple

from bench.gpu.nvml import Card
from bench.tables import markdown

DRY = "DRY RUN on a pretended card: no figure here is a measurement"


class Unmeasurable(Exception):
    """A part cannot be measured on this machine. The text is the reason, in one line."""


class Measured(NamedTuple):
    """The table of one part. `good` is whether all results are as they should be; `notes` are lines below it."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    good: bool = True
    notes: Sequence[str] = ()


def about(card: Card) -> str:
    """Describe the card, its driver and the versions of the software in one line.

    The line also says if the card is simulated.
    """
    parts = (
        f"{card.name}, {card.total:,} MiB ({card.used:,.0f} in use), driver {card.driver}, CUDA {card.cuda}",
        f"Linux {platform.release()}, Python {platform.python_version()}, Slicewarden {version('slicewarden')}",
    )
    return "; ".join((*((f"**{DRY}**",) if card.pretended else ()), *parts))


def table(card: Card, measured: Measured) -> str:
    """Write a table. On a simulated card each row says that it is no measurement, so nobody can quote it as one."""
    if card.pretended:
        written = markdown(("", *measured.head), [("dry run", *row) for row in measured.rows])
    else:
        written = markdown(measured.head, measured.rows)
    return "\n\n".join((written, *measured.notes))
