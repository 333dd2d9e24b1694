"""The slices of each hour: their parts are all slices, read from a file, from memory or from an answer."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from webhook.usage import document, hourly
from webhook.usage.account import UNSEEN, AccountState, CardShare, HolderLook, NodeLook, advance
from webhook.usage.document import NodeUsage, collapsed
from webhook.usage.record import (
    HOUR,
    MOST,
    Amounts,
    Book,
    CardAmounts,
    CardKey,
    HolderKey,
    HourAmounts,
    PoolHour,
    SlicedCard,
)
from webhook.usage.store import SavedAt, UsageStore

START = 490_000
CARDS = SlicedCard("GPU-0", 4, "shared", "A10"), SlicedCard("GPU-1", 2, "shared", "A10"), SlicedCard("GPU-2", 3, "mps")

shares = st.tuples(
    st.sampled_from(("GPU-0", "GPU-1", "GPU-2", "")), st.integers(0, 5), st.sampled_from((True, False, None))
).map(lambda each: CardShare(*each))
holders = st.lists(st.tuples(shares, st.sampled_from(("a", "b"))), max_size=5).map(
    lambda found: tuple(
        HolderLook(f"{n}", team, "Job/x", f"p{n}", "main", (share,)) for n, (share, team) in enumerate(found)
    )
)
looks = st.one_of(st.just(UNSEEN._replace(cards=CARDS)), holders.map(lambda found: NodeLook(CARDS, found)))


def counted(given: list[tuple[NodeLook, int]]) -> Book:
    """The book of a node with these looks, each some seconds after the one before, near the end of an hour."""
    wall = (START + 1) * HOUR - 20_000
    state = AccountState(0, wall)
    for look, seconds in given:
        state = advance(state, look, state.at + seconds * 1000, state.wall + seconds * 1000)
    return state.book


books = st.lists(st.tuples(looks, st.integers(1, 6)), min_size=2, max_size=12).map(counted)


@given(books)
def test_the_parts_are_all_slices(book: Book) -> None:
    found = hourly.of_book(book)
    slices: dict[PoolHour, int] = {}
    held: dict[PoolHour, int] = {}
    for key, amounts in book.cards.items():
        hour = PoolHour(key.hour, key.pool)
        slices[hour] = slices.get(hour, 0) + amounts.capacity
        held[hour] = held.get(hour, 0) + amounts.held
    assert {key: sum(each[1:]) for key, each in found.items()} == slices
    assert {key: each.working + each.idle + each.unmeasured for key, each in found.items()} == held
    assert all(min(each) >= 0 and each.counted <= HOUR for each in found.values())


@given(books)
def test_a_container_that_always_works_or_never_does_counts_with_all_its_slices(book: Book) -> None:
    exact: dict[PoolHour, tuple[int, int]] = {}
    for key, used in book.holders.items():
        if key.card:
            hour = PoolHour(key.hour, key.pool)
            before = exact.get(hour, (0, 0))
            exact[hour] = (
                before[0] + used.held * (used.working == used.seen > 0),
                before[1] + used.held * (used.idle == used.seen > 0),
            )
    for hour, each in hourly.of_book(book).items():
        assert (each.working, each.idle) >= exact.get(hour, (0, 0))


def test_slices_are_divided_by_the_seen_time() -> None:
    card = CardKey(START, "GPU-0", "shared", "A10")
    key = HolderKey(START, "GPU-0", "shared", "A10", "team", "Job/x", "p", "main")
    unknown = key._replace(card="", pod="q")
    book = Book(
        {card: CardAmounts(HOUR, 4 * HOUR, 2 * HOUR, HOUR, HOUR)},
        {key: Amounts(2 * HOUR, HOUR // 4, HOUR // 2, HOUR // 4), unknown: Amounts(HOUR, HOUR)},
    )
    assert hourly.of_book(book) == {
        PoolHour(START, "shared"): HourAmounts(HOUR, HOUR // 2, HOUR, HOUR // 2, HOUR, HOUR)
    }
    assert hourly.of_book(book, START + 1) == {}


@given(st.lists(books, min_size=1, max_size=3), st.integers(0, 2))
def test_a_file_has_the_hours_that_were_saved(saves: list[Book], later: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = UsageStore(Path(folder) / "usage")
        whole = Book()
        for number, book in enumerate(saves):
            assert store.save(book, SavedAt("n", "b", number, START * HOUR)) == ""
            whole = whole.plus(book)
        found, why = store.read(START + later, MOST)
    assert why == ""
    assert found.hourly == hourly.of_book(whole, START + later)


@given(books)
def test_an_answer_has_the_hours(book: Book) -> None:
    usage = NodeUsage("n", START * HOUR, (START + 2) * HOUR, collapsed(book, START))
    assert usage.book.hourly == hourly.of_book(book)
    assert document.read(document.write(usage)) == usage
