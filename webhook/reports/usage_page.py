"""Writes the report of `slicewarden usage` as a page for a browser: a bar for each row, and a table of the numbers."""

from typing import NamedTuple

from webhook.reports import usage_hours
from webhook.reports.formats import html
from webhook.reports.usage_report import GROUPS, UsageRow, UsageSums, head, hours, moment, row_cells
from webhook.text.plot import BarPlot, DrawnPlot, drawn


class UsageSegment(NamedTuple):
    """A part of a bar, in thousandths of the longest one, with its offset and height of 36."""

    style: str
    start: float
    width: float
    top: int
    height: int


class UsageBar(NamedTuple):
    """A row of the report: its cells, and its card-hours as a bar, in which work, idleness and the rest have parts."""

    names: tuple[str, ...]
    cells: tuple[str, ...]
    segments: tuple[UsageSegment, ...]
    words: str


class UsageTotal(NamedTuple):
    """A number at the head of the page, as text, and what it counts."""

    number: str
    words: str


class UsagePage(NamedTuple):
    """The values that the template shows."""

    title: str
    about: tuple[tuple[str, str], ...]
    totals: tuple[UsageTotal, ...]
    names: tuple[str, ...]
    head: tuple[str, ...]
    bars: tuple[UsageBar, ...]
    notes: tuple[str, ...]
    plots: tuple[tuple[BarPlot, DrawnPlot], ...]


_PARTS = (("cap", "working", 0, 36), ("context", "idle", 4, 28), ("reserve", "unmeasured", 8, 20))
"""The styles of the parts of a bar, the amounts that they show, and their offset and height."""


def write(report: UsageSums) -> str:
    """Write the page. It shows at most as many rows as a table of the other pages, those with the most card-hours."""
    return html.written("usage.html", page=_page(report))


def fragment(report: UsageSums) -> str:
    """Write the plots and the rows as a part of another page."""
    return html.fragment("ui_usage.html", page=_page(report))


def _page(report: UsageSums) -> UsagePage:
    names = GROUPS[report.by]
    longest = max((row.cards for row in report.rows), default=0.0)
    about = (
        *((("from", moment(report.since)), ("to", moment(report.at))) if report.at else ()),
        ("a row is a", report.by),
    )
    return UsagePage(
        "Slicewarden usage",
        about,
        tuple(_totals(report)),
        tuple(names),
        head(report)[len(names) :],
        tuple(_bar(row, report, longest) for row in report.rows),
        (
            *(note.removeprefix("note: ") for note in report.notes),
            *(f"not seen: {each.node}: {each.why}" for each in report.unseen),
        ),
        tuple((each, drawn(each)) for each in usage_hours.plots(report.hours)),
    )


def _totals(report: UsageSums) -> list[UsageTotal]:
    holders = [row for row in report.rows if not row.rest]
    rest = {row.names[0]: row.cards for row in report.rows if row.rest}
    used = [row.amounts for row in holders]
    return [
        UsageTotal(hours(sum(row.cards for row in holders)), "card-hours held"),
        *(UsageTotal(hours(cards), f"card-hours {name.strip('()')}") for name, cards in rest.items()),
        UsageTotal(hours(sum(each.working for each in used)), "hours with work"),
        UsageTotal(hours(sum(each.idle for each in used)), "hours idle"),
        *([UsageTotal(f"{sum(row.cost for row in holders):.2f}", "cost of what was held")] if report.priced else ()),
    ]


def _bar(row: UsageRow, report: UsageSums, longest: float) -> UsageBar:
    used, names = row.amounts, len(row.names)
    length = 1000 * row.cards / longest if longest else 0.0
    seen = used.working + used.idle + used.unmeasured
    segments, start = [], 0.0
    for style, amount, top, height in _PARTS if seen else ():
        width = length * getattr(used, amount) / seen
        segments.append(UsageSegment(style, start, width, top, height))
        start += width
    if not seen:
        segments.append(UsageSegment("reserve", 0.0, length, 8, 20))
    words = f"{hours(row.cards)} card-hours" + (
        f": {', '.join(f'{hours(getattr(used, amount))} h {amount}' for _, amount, _, _ in _PARTS)}" if seen else ""
    )
    return UsageBar(row.names, row_cells(row, priced=report.priced)[names:], tuple(segments), words)
