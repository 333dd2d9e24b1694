"""What is counted: it adds up for every card and hour, whatever happens, and no busy container counts as idle."""

from collections import defaultdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.usage import account
from webhook.usage.account import LONGEST, AccountState, CardShare, HolderLook, NodeLook, advance, hours
from webhook.usage.record import HOUR, MOST, REST, Amounts, Book, HolderKey, SlicedCard

CARDS = ("GPU-a", "GPU-b", "GPU-c")
START = 470_000 * HOUR + 1_234_567


def holder(key: str, *shares: CardShare, namespace: str = "team") -> HolderLook:
    return HolderLook(key, namespace, "Job/j", key, "main", shares)


shares = st.builds(
    CardShare,
    st.sampled_from((*CARDS, "", "GPU-of-nobody")),
    st.integers(0, 5),
    st.sampled_from((True, False, None)),
    st.none() | st.integers(0, 90_000),
    st.integers(0, 30_000),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
)
looks = st.builds(
    NodeLook,
    st.lists(
        st.builds(SlicedCard, st.sampled_from(CARDS), st.integers(1, 8), st.just("p")), unique_by=lambda c: c.uuid
    ).map(tuple),
    st.lists(
        st.builds(lambda key, own: holder(key, *own), st.sampled_from("abcdef"), st.lists(shares, max_size=3)),
        unique_by=lambda each: each.key,
    ).map(tuple),
    seen=st.booleans() | st.just(True),
    complete=st.booleans() | st.just(True),
)
durations = st.integers(0, 2 * LONGEST) | st.integers(0, 5 * HOUR) | st.just(1000)
steps = st.lists(st.tuples(looks, durations, st.integers(-3 * HOUR, 3 * HOUR) | st.just(0)), max_size=30)


@given(steps)
def test_held_free_and_unseen_slices_are_all_slices_in_each_hour_of_each_card(
    life: list[tuple[NodeLook, int, int]],
) -> None:
    """A step is a look, the time since the last one, and by how much the wall clock was set."""
    state, now, wall = AccountState(5, START), 5, START
    expected: dict[tuple[int, str], int] = defaultdict(int)
    counted: dict[str, int] = defaultdict(int)
    for look, elapsed, step in life:
        for hour, part in hours(state.wall, elapsed):
            for card in state.last.cards:
                expected[hour, card.uuid] += part * card.slices
        for card in state.last.cards:
            counted[card.uuid] += elapsed
        now, wall = now + elapsed, wall + elapsed + step
        state = advance(state, look, now, wall)
    rows = state.book.cards
    for amounts in rows.values():
        assert amounts.held + amounts.free + amounts.unseen == amounts.capacity
        assert min(amounts) >= 0
    found: dict[tuple[int, str], int] = defaultdict(int)
    for key, amounts in rows.items():
        found[key.hour, key.card] += amounts.capacity
    assert {key: value for key, value in found.items() if value} == {k: v for k, v in expected.items() if v}
    times: dict[str, int] = defaultdict(int)
    for key, amounts in rows.items():
        times[key.card] += amounts.counted
    assert {key: value for key, value in times.items() if value} == {k: v for k, v in counted.items() if v}
    held: dict[tuple[int, str], int] = defaultdict(int)
    for row, used in state.book.holders.items():
        held[row.hour, row.card] += used.held
    for key in rows:
        mine = sum(each.held for other, each in rows.items() if (other.hour, other.card) == (key.hour, key.card))
        assert held[key.hour, key.card] == mine, "the containers' slices are those that the card says are held"


def test_a_clock_that_is_set_moves_the_hour_and_no_time() -> None:
    look = NodeLook((SlicedCard("GPU-a", 4),), (holder("a", CardShare("GPU-a", 1, work=True)),))
    state = advance(AccountState(0, START), look, 0, START)
    state = advance(state, look, 1000, START - 50 * HOUR)
    state = advance(state, look, 2000, START + 50 * HOUR)
    state = advance(state, look, 3000, START)
    assert {key.hour - START // HOUR: each.counted for key, each in state.book.cards.items()} == {
        0: 1000,
        -50: 1000,
        50: 1000,
    }


def test_a_monotonic_clock_that_goes_back_counts_nothing_twice() -> None:
    look = NodeLook((SlicedCard("GPU-a", 4),))
    state = advance(advance(AccountState(10_000, START), look, 10_000, START), look, 9_000, START)
    state = advance(state, look, 11_000, START)
    assert [each.counted for each in state.book.cards.values()] == [1000]


def test_a_gap_is_named_and_never_filled() -> None:
    look = NodeLook((SlicedCard("GPU-a", 4),), (holder("a", CardShare("GPU-a", 1, work=True)),))
    state = advance(AccountState(0, START), look, 0, START)
    state = advance(state, look, LONGEST + 1, START)
    (card,) = state.book.cards.values()
    assert (card.held, card.free, card.unseen) == (0, 0, 4 * (LONGEST + 1))
    assert not state.book.holders


def test_a_slice_whose_card_is_not_known_counts_as_free_on_no_card() -> None:
    cards = (SlicedCard("GPU-a", 4), SlicedCard("GPU-b", 4))
    look = NodeLook(cards, (holder("a", CardShare("GPU-a", 2)), holder("b", CardShare("", 3))))
    state = advance(advance(AccountState(0, START), look, 0, START), look, 1000, START)
    by_card = {key.card: each for key, each in state.book.cards.items()}
    assert (by_card["GPU-a"].held, by_card["GPU-a"].free, by_card["GPU-a"].unseen) == (2000, 0, 2000)
    assert (by_card["GPU-b"].held, by_card["GPU-b"].free, by_card["GPU-b"].unseen) == (0, 1000, 3000)
    assert {key.pod: each.held for key, each in state.book.holders.items()} == {"a": 2000, "b": 3000}


@given(st.integers(0, 2**41), st.integers(0, 60 * 24 * HOUR))
def test_a_time_is_split_at_whole_hours_and_keeps_the_last_days(wall: int, elapsed: int) -> None:
    found = [*hours(wall, elapsed)]
    assert sum(part for _, part in found) == min(elapsed, account.KEPT_HOURS * HOUR)
    assert len(found) <= account.KEPT_HOURS + 1
    assert all(part <= HOUR for _, part in found)


def test_any_number_of_pods_takes_a_bounded_number_of_rows_and_their_sum_stays() -> None:
    book = Book()
    for number in range(5 * MOST):
        key = HolderKey(1, "GPU-a", "p", "", f"space-{number // 2}", "", f"pod-{number}", "main")
        book = book.plus(Book(holders={key: Amounts(held=1, peak=number)}), 20)
    assert len(book.holders) <= 3 * 20
    assert sum(each.held for each in book.holders.values()) == 5 * MOST
    assert max(each.peak for each in book.holders.values()) == 5 * MOST - 1
    assert any(key.pod == REST and key.namespace != REST for key in book.holders)
    assert any(key.namespace == REST for key in book.holders)


# Programs of known need


PROGRAMS = ("reserves", "grows", "idles", "leaks", "bursts")


def program(kind: str, age: int, burst: int) -> tuple[bool, int]:
    """Whether a program works in its second `age`, and its MiB."""
    match kind:
        case "reserves":
            return True, 5000
        case "grows":
            return True, min(500 + 10 * age, 4000)
        case "idles":
            return False, 5000
        case "leaks":
            return age % 2 == 0, 300 + age
        case _:
            return age % burst < 3, 800


SEEDS = [pytest.param(seed, marks=pytest.mark.thorough if seed >= 6 else ()) for seed in range(50)]


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_of_known_need_are_counted_right_and_only_idle_ones_are_idle(seed: int) -> None:
    """One look a second for an hour, and lost ones; each program begins and ends when chance wants it."""
    random = Random(seed)  # noqa: S311 - a schedule, not a secret
    card, length = SlicedCard("GPU-a", len(PROGRAMS) + 1, "p"), 3600
    life = {kind: (random.randrange(600), random.randrange(1800, length)) for kind in PROGRAMS}
    burst, lost = random.randrange(20, 900), random.random() * 0.05
    state, begin = AccountState(0, START), START
    truth: dict[str, list[tuple[bool, int]]] = {kind: [] for kind in PROGRAMS}
    busy_until: dict[str, int] = {}
    for second in range(length):
        here = {}
        for kind, (first, last) in life.items():
            if first <= second < last:
                here[kind] = program(kind, second - first, burst)
                truth[kind].append(here[kind])
                if here[kind][0]:
                    busy_until[kind] = second
        if random.random() < lost:
            continue
        look = NodeLook(
            (card,), tuple(holder(k, CardShare("GPU-a", 1, w, m, 5000, m > 5000)) for k, (w, m) in here.items())
        )
        state = advance(state, look, second * 1000, begin + second * 1000)
        for kind, since in state.standing.items():
            idle = (second * 1000 - since.idle) // 1000
            assert idle <= second - busy_until.get(kind, life[kind][0]), "it worked more lately than the account says"
    sums: dict[str, Amounts] = defaultdict(Amounts)
    for key, amounts in state.book.holders.items():
        sums[key.pod] = sums[key.pod].plus(amounts)
    for kind, samples in truth.items():
        seconds = len(samples)
        assert abs(sums[kind].held / 1000 - seconds) <= 0.01 * seconds
        assert abs(sums[kind].memory / 1000 - sum(mib for _, mib in samples)) <= 0.01 * sum(mib for _, mib in samples)
        assert sums[kind].peak <= max(mib for _, mib in samples)
        assert sums[kind].peak >= max(mib for _, mib in samples) * 0.99
    assert sums["idles"].working == 0
    assert sums["reserves"].idle == 0
    assert sums["bursts"].working
