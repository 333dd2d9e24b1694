"""Who is next: the order in which reviews of different sizes have their turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.http.turns import OLDEST, ORDINARY, FairQueue

SIZES = {"s": 4_000, "m": 40_000, "L": 7 * 1024 * 1024}


def order(line: str, arriving: str = "") -> str:
    """The order of turns, where after each turn one more arrives."""
    turns: FairQueue[tuple[str, int]] = FairQueue(100)
    waiting = [(name, number) for number, name in enumerate(line + arriving)]
    for each in waiting[: len(line)]:
        assert turns.add(each, SIZES[each[0]])
    answered = ""
    for late in waiting[len(line) :]:
        answered += turns.next()[0]
        assert turns.add(late, SIZES[late[0]])
    while len(turns):
        answered += turns.next()[0]
    return answered


@pytest.mark.parametrize(
    ("line", "answered"), [("LLss", "ssLL"), ("Lms", "smL"), ("LLLLssss", "ssssLLLL"), ("L" + "s" * 9, "s" * 7 + "Lss")]
)
def test_the_smallest_go_first_and_the_oldest_has_one_turn_in_eight(line: str, answered: str) -> None:
    assert order(line) == answered


def test_a_large_one_has_its_turn_however_many_small_ones_come() -> None:
    answered = order("Lsss", "s" * 40)
    assert answered.index("L") == OLDEST - 1


def test_an_ordinary_one_waits_for_no_more_than_one_large_one_however_many_come() -> None:
    for before in range(2 * OLDEST):
        turns: FairQueue[tuple[str, int]] = FairQueue(100)
        for number in range(50):
            turns.add(("L", number), SIZES["L"])
        for _ in range(before):
            turns.next()
        turns.add(("s", 0), SIZES["s"])
        assert "s" in {turns.next()[0] for _ in range(2)}


def test_of_one_size_the_first_is_the_first() -> None:
    turns: FairQueue[int] = FairQueue(100)
    for number in range(20):
        turns.add(number, ORDINARY - 1 - number)
    assert [turns.next() for _ in range(20)] == list(range(20))


def test_a_line_has_an_end_and_who_leaves_makes_room() -> None:
    turns: FairQueue[str] = FairQueue(2)
    assert [turns.add(each, 0) for each in "abc"] == [True, True, False]
    assert turns.remove("a")
    assert not turns.remove("a")
    assert turns.add("c", 0)
    assert [turns.next(), turns.next()] == ["b", "c"]


@given(st.lists(st.integers(0, 7 * 1024 * 1024), min_size=1, max_size=100))
def test_everybody_has_one_turn(sizes: list[int]) -> None:
    turns: FairQueue[int] = FairQueue(100)
    for number, size in enumerate(sizes):
        assert turns.add(number, size)
    assert sorted(turns.next() for _ in sizes) == list(range(len(sizes)))


class Counted:
    """A request that counts how often any is looked at."""

    looked_at = 0

    def __hash__(self) -> int:
        Counted.looked_at += 1
        return id(self)


def test_a_turn_looks_at_each_of_a_full_line_once() -> None:
    turns: FairQueue[Counted] = FairQueue(256)
    for _ in range(256):
        turns.add(Counted(), 0)
    Counted.looked_at = 0
    for _ in range(1000):
        turns.next()
        turns.add(Counted(), 0)
    assert Counted.looked_at <= 1000 * (256 + 4)
