"""The layout of a bar plot: its boxes are as high as the table's numbers say, and a gap is never filled."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.text.plot import HEIGHT, LEAST_GAP, MOST_TICKS, WIDTH, BarPlot, PlotBar, PlotPart, drawn, scale

PARTS = PlotPart("cap", "working"), PlotPart("context", "idle"), PlotPart("card", "free")

amounts = st.lists(st.floats(0, 1e6).map(lambda each: round(each, 3)), min_size=3, max_size=3)
bars = st.builds(PlotBar, st.just("a day"), st.just("a"), amounts, st.sampled_from((0.0, 0.001, 0.25, 1.0)))
plots = st.lists(bars, max_size=40).map(lambda found: BarPlot("p", "Use", "slice-hours", "hour", PARTS, found))


@given(plots)
def test_boxes_are_as_high_as_the_amounts_and_stand_on_each_other(plot: BarPlot) -> None:
    found = drawn(plot)
    top = scale(max((sum(bar.amounts) for bar in plot.bars), default=0.0))
    for bar, shown in zip(plot.bars, found.bars, strict=True):
        gaps = [box for box in shown.boxes if box.style == "gap"]
        assert [box.height for box in gaps] == [HEIGHT * bar.missing] * (bar.missing >= LEAST_GAP)
        assert all(box.y == 0 for box in gaps)
        parts = [box for box in shown.boxes if box.style != "gap"]
        real = [(part.style, each) for part, each in zip(plot.parts, bar.amounts, strict=True) if each]
        assert [box.style for box in parts] == [style for style, _ in real]
        assert [box.height * top / HEIGHT for box in parts] == pytest.approx([each for _, each in real])
        base = float(HEIGHT)
        for box in parts:
            assert box.y + box.height == pytest.approx(base, abs=1e-6)
            base = box.y
        assert base >= 0


@given(plots)
def test_bars_are_in_order_and_within_the_plot(plot: BarPlot) -> None:
    found = drawn(plot)
    sides = [
        (min(box.x for box in bar.boxes), max(box.x + box.width for box in bar.boxes))
        for bar in found.bars
        if bar.boxes
    ]
    assert all(0 <= left < right <= WIDTH + 1e-6 for left, right in sides)
    assert all(right < left for (_, right), (left, _) in pairwise(sides))
    assert len(found.across) <= MOST_TICKS
    assert [label.at for label in found.up] == [HEIGHT, HEIGHT / 2, 0]


@given(plots)
def test_the_table_has_each_number(plot: BarPlot) -> None:
    found = drawn(plot)
    gap = any(bar.missing >= LEAST_GAP for bar in plot.bars)
    assert len(found.rows) == len(plot.bars)
    assert all(len(row) == len(found.head) == 4 + gap for row in found.rows)
    for row, bar in zip(found.rows, plot.bars, strict=True):
        assert [*row[1:4]] == [f"{each:.1f}" for each in bar.amounts]


def test_words_say_the_sums_and_the_gaps() -> None:
    found = drawn(
        BarPlot(
            "p",
            "Use",
            "slice-hours",
            "hour",
            PARTS,
            [PlotBar("1:00", "1", (1, 2, 0)), PlotBar("2:00", "2", (3, 0, 0), 0.5)],
        )
    )
    assert found.words == (
        "slice-hours of each hour, from 1:00 to 2:00. Together: 4.0 working, 2.0 idle, 0.0 free. "
        "The most working: 3.0 at 2:00. The record has gaps in 1 of 2 bars."
    )
    assert found.bars[1].words == "2:00: 3.0 working, 0.0 idle, 0.0 free; 50 % of the time not recorded"
    assert drawn(BarPlot("p", "Use", "h", "hour", PARTS, ())).words == "Nothing was recorded."


@given(st.floats(0.001, 1e15))
def test_an_axis_ends_at_a_round_number(most: float) -> None:
    assert most <= scale(most) * (1 + 1e-12) <= 2.5 * most


@pytest.mark.parametrize("most", [0.0, -1.0, float("inf"), float("nan")])
def test_an_axis_without_amounts_has_an_end(most: float) -> None:
    assert scale(most) == 1.0
