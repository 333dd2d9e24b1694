"""A text that is made once for all who ask within a time."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.http.kept import LONGEST, TIMES, Kept


class Made:
    """Counts how often a text is made, on a pretended clock. Making it takes `takes` seconds."""

    def __init__(self, takes: float = 0.0) -> None:
        self.now, self.times, self._takes = 0.0, list[float](), takes

    def __call__(self) -> bytes:
        self.times.append(self.now)
        self.now += self._takes
        return str(len(self.times)).encode()


@given(st.lists(st.integers(0, 30)), st.sampled_from([0, 0.5, 1, 2, 20]), st.integers(1, 20))
def test_it_is_made_at_most_once_in_its_time_and_is_never_older(pauses: list[int], takes: float, seconds: int) -> None:
    """A text that takes long is kept for nine times as long, but for ten seconds at most."""
    made, time = Made(takes), max(seconds, min(TIMES * takes, LONGEST))
    kept = Kept(made, seconds, lambda: made.now)
    for at in accumulate(pauses):
        made.now = max(made.now, float(at))
        asked = made.now
        assert kept() == str(len(made.times)).encode(), "the last one that was made"
        assert made.times[-1] + takes + time > asked
    ends = [began + takes for began in made.times]
    assert all(later >= end + time for end, later in zip(ends, made.times[1:], strict=False))


def test_what_could_not_be_made_is_made_again() -> None:
    answers = iter([None, b"a"])

    def make() -> bytes:
        answer = next(answers)
        if answer is None:
            raise OSError
        return answer

    kept = Kept(make, 1.0, lambda: 0.0)
    with pytest.raises(OSError):  # noqa: PT011 - it has no text
        kept()
    assert [kept(), kept()] == [b"a", b"a"]
