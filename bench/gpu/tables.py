"""The tables of bench/gpu: each says on which card and with what it was measured, or that nothing was."""

import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version

from bench.gpu.nvml import Card
from bench.tables import markdown

DRY = "DRY RUN on a pretended card: no figure here is a measurement"


def about(card: Card) -> str:
    """Name the card, its driver and the versions of what measured; one line, which says so if the card is pretended."""
    parts = (
        f"{card.name}, {card.total:,} MiB, driver {card.driver}, CUDA {card.cuda}",
        f"Linux {platform.release()}, Python {platform.python_version()}, Slicewarden {version('slicewarden')}",
    )
    return "; ".join((*((f"**{DRY}**",) if card.pretended else ()), *parts))


def table(card: Card, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table. On a pretended card each row says that it is no measurement, so that none can be quoted as one."""
    if not card.pretended:
        return markdown(head, rows)
    return markdown(("", *head), [("dry run", *row) for row in rows])
