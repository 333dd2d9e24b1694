"""The model of a contended card, by which the worth of turns is told."""

from collections.abc import Callable

import pytest

from bench import contended
from bench.contended import TABLE_1, Ends, sized
from tests import ROOT
from webhook.policy.model import FIRST_COME, TURNS, Contention

DOCS = (ROOT / "docs" / "agent.md").read_text("utf-8")


@pytest.mark.parametrize("count", TABLE_1)
def test_the_model_is_within_a_hundredth_of_the_studys_table(count: int) -> None:
    assert contended.together(count).last == pytest.approx(TABLE_1[count], rel=0.01)


def test_turns_cost_no_time_of_the_last_one_and_spare_the_others_some() -> None:
    together, managed, after = contended.together(3), contended.managed(3), contended.one_after_the_other(3)
    assert after.last <= managed.last < together.last
    assert after.mean <= managed.mean < 0.7 * together.mean


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("all at once", lambda: contended.together(10)),
        ("`FirstCome`, `longestSeconds` as long as the queue", lambda: contended.managed(10)),
        (
            "`FirstCome` with the defaults (`longestSeconds: 20`, `restSeconds: 15`)",
            lambda: contended.managed(10, Contention(FIRST_COME)),
        ),
        ("`Turns` with the defaults", lambda: contended.managed(10, Contention(TURNS))),
    ],
)
def test_the_page_has_what_turns_gain_with_these_settings(name: str, ends: Callable[[], Ends]) -> None:
    found = ends()
    assert f"| {name} | {found.last:.1f} | {found.mean:.1f} |\n" in DOCS


@pytest.mark.parametrize(("side", "count"), [(8192, 2), (8192, 5), (8192, 10), (8192, 20), (19456, 5)])
def test_the_page_has_the_sizes_at_which_turns_gain_and_lose(side: int, count: int) -> None:
    together, managed = contended.together(count, sized(side)), contended.managed(count, work=sized(side))
    row = f"{together.last:.1f} | {managed.last:.1f} | {managed.mean:.1f}"
    assert f"| {side:,}² | {count} | {row} |\n" in DOCS


def test_the_model_is_behind_one_after_the_other_where_the_study_is_ahead() -> None:
    behind = {count: contended.managed(count).last - contended.one_after_the_other(count).last for count in (2, 10)}
    assert behind == {2: pytest.approx(0.08, abs=0.01), 10: pytest.approx(0.72, abs=0.01)}


def test_our_reading_of_the_studys_algorithm_spares_nobody_anything() -> None:
    """One reading of the card's use serves the inner loop, so all are let run while the first one reads its input."""
    assert contended.to_the_letter(3) == contended.together(3)
