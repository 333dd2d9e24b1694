"""A bar plot for a page: amounts over time as stacked bars, with gaps where nothing was recorded. Pure functions.

`page/plot.html` writes it as SVG, with a title, a description, and a table of the same numbers. It needs no script.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 1000, 240
"""The size of the plot in the units of its `viewBox`; the labels of the axes are outside of that."""

MOST_TICKS = 12
"""Maximum number of labels below the bars."""

LEAST_GAP = 0.01
"""The part of a bar's time from which on it counts as a gap."""


class PlotPart(NamedTuple):
    """A part of each bar: its style in the page (`cap`, `context`, `reserve`, `card` or `gap`), and what it counts."""

    style: str
    words: str


class PlotBar(NamedTuple):
    """A bar: its time in the table and below the plot, an amount of each part, and which part of it has no record.

    `missing` is from 0 to 1. Nothing is drawn in its place but a gap.
    """

    time: str
    tick: str
    amounts: Sequence[float]
    missing: float = 0.0


class BarPlot(NamedTuple):
    """Bars with the same parts, from the left to the right. `name` is unique in its page, and an HTML id.

    `unit` is that of the amounts, and `span` what a bar is, such as `hour`.
    """

    name: str
    title: str
    unit: str
    span: str
    parts: Sequence[PlotPart]
    bars: Sequence[PlotBar]


class PlotBox(NamedTuple):
    """A rectangle of the plot, in the units of its `viewBox`."""

    style: str
    x: float
    y: float
    width: float
    height: float


class PlotLabel(NamedTuple):
    """A text at an axis, and where it is on that axis."""

    at: float
    words: str


class DrawnBar(NamedTuple):
    """The boxes of a bar, and what they show in words."""

    boxes: Sequence[PlotBox]
    words: str


class DrawnPlot(NamedTuple):
    """A plot as the page draws it. `words` describe it to whoever cannot see it."""

    words: str
    bars: Sequence[DrawnBar]
    across: Sequence[PlotLabel]
    up: Sequence[PlotLabel]
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    gaps: bool


def drawn(plot: BarPlot) -> DrawnPlot:
    """Lay out a plot. The parts of a bar are stacked in their order, and a gap hangs from the top."""
    top = scale(max((sum(bar.amounts) for bar in plot.bars), default=0.0))
    slot = WIDTH / max(len(plot.bars), 1)
    every = -(-len(plot.bars) // MOST_TICKS)
    gaps = any(bar.missing >= LEAST_GAP for bar in plot.bars)
    return DrawnPlot(
        _words(plot),
        [DrawnBar(_boxes(plot, bar, place * slot, slot, top), _said(plot, bar)) for place, bar in enumerate(plot.bars)],
        [PlotLabel((place + 0.5) * slot, bar.tick) for place, bar in enumerate(plot.bars) if place % every == 0],
        [PlotLabel(HEIGHT * (1 - part), f"{top * part:g}") for part in (0.0, 0.5, 1.0)],
        (plot.span, *(part.words for part in plot.parts), *(["time not recorded"] if gaps else [])),
        [
            (bar.time, *(f"{each:.1f}" for each in bar.amounts), *([_percent(bar.missing)] if gaps else []))
            for bar in plot.bars
        ],
        gaps,
    )


def scale(most: float) -> float:
    """Return the end of an axis: the smallest of 1, 2, 4, 5, 6, 8 and 10 times a power of ten that is not below."""
    if not 0 < most < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next((power * each for each in (1, 2, 4, 5, 6, 8, 10) if power * each >= most), power * 10)


def _boxes(plot: BarPlot, bar: PlotBar, left: float, slot: float, top: float) -> list[PlotBox]:
    x, width = left + slot / 10, slot * 0.8
    found = [PlotBox("gap", x, 0.0, width, HEIGHT * bar.missing)] if bar.missing >= LEAST_GAP else []
    base = float(HEIGHT)
    for part, amount in zip(plot.parts, bar.amounts, strict=True):
        height = HEIGHT * amount / top
        base -= height
        if amount:
            found.append(PlotBox(part.style, x, max(base, 0.0), width, height))
    return found


def _said(plot: BarPlot, bar: PlotBar) -> str:
    amounts = (f"{amount:.1f} {part.words}" for part, amount in zip(plot.parts, bar.amounts, strict=True))
    gap = f"; {_percent(bar.missing)} of the time not recorded" if bar.missing >= LEAST_GAP else ""
    return f"{bar.time}: {', '.join(amounts)}{gap}"


def _words(plot: BarPlot) -> str:
    if not plot.bars:
        return "Nothing was recorded."
    first, last = plot.bars[0].time, plot.bars[-1].time
    sums = (f"{sum(bar.amounts[place] for bar in plot.bars):.1f} {part.words}" for place, part in enumerate(plot.parts))
    highest = max(plot.bars, key=lambda bar: bar.amounts[0])
    gaps = sum(bar.missing >= LEAST_GAP for bar in plot.bars)
    return (
        f"{plot.unit} of each {plot.span}, from {first} to {last}. Together: {', '.join(sums)}. "
        f"The most {plot.parts[0].words}: {highest.amounts[0]:.1f} at {highest.time}."
        + (f" The record has gaps in {gaps} of {len(plot.bars)} bars." if gaps else "")
    )


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"
