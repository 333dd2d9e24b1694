"""Writes the tables of bench/gpu. Each names the measured card and the software, or says that nothing was measured."""

import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version

from bench.gpu.nvml import Card
from bench.tables import markdown

DRY = "DRY RUN on a pretended card: no figure here is a measurement"


def about(card: Card) -> str:
    """Name the card, its driver and the versions of the software in one line. It also says if the card is simulated."""
    parts = (
        f"{card.name}, {card.total:,} MiB, driver {card.driver}, CUDA {card.cuda}",
        f"Linux {platform.release()}, Python {platform.python_version()}, Slicewarden {version('slicewarden')}",
    )
    return "; ".join((*((f"**{DRY}**",) if card.pretended else ()), *parts))


def table(card: Card, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table. On a simulated card each row says that it is no measurement, so nobody can quote it as one."""
    if not card.pretended:
        return markdown(head, rows)
    return markdown(("", *head), [("dry run", *row) for row in rows])
