"""The model of a contended card, by which the worth of turns is told."""

import pytest

from bench import contended
from bench.contended import TABLE_1


@pytest.mark.parametrize("count", TABLE_1)
def test_the_model_is_within_a_hundredth_of_the_studys_table(count: int) -> None:
    assert contended.together(count).last == pytest.approx(TABLE_1[count], rel=0.01)


def test_turns_cost_no_time_of_the_last_one_and_spare_the_others_some() -> None:
    together, managed, after = contended.together(3), contended.managed(3), contended.one_after_the_other(3)
    assert after.last <= managed.last < together.last
    assert after.mean <= managed.mean < 0.7 * together.mean


def test_to_the_letter_the_studys_algorithm_spares_nobody_anything() -> None:
    """All are let run while the first one reads its input, and kernels that are queued run to their end."""
    assert contended.to_the_letter(3) == contended.together(3)
