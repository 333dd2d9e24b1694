"""Writes figures as Markdown tables."""

import statistics
from collections.abc import Iterable, Sequence


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percentile(values: Iterable[float], percent: float) -> float:
    """Return a percentile: the smallest value that this percentage of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(percent * 100) // 10000) - 1)]


def spread(values: Sequence[float], form: str) -> str:
    """Write the median, and the range of the values."""
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"
