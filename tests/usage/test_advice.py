"""What is advised: never less than a seen peak and the reserve, and nothing while the need is not known."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cost import calls
from tests.support.usage_books import A100, CAP, START, STEADY, book, usage
from webhook.catalog import mig_profiles
from webhook.usage import advice, document
from webhook.usage.account import AccountState, CardShare, HolderLook, NodeLook, advance
from webhook.usage.advice import CONTEXT, FEWEST, SizeAdvice, SizedPool, SizedWorkload, advise, need
from webhook.usage.document import NodeUsage, collapsed
from webhook.usage.record import HOUR, REST, Amounts, Book, CardAmounts, CardKey, HolderKey, SlicedCard
from webhook.usage.store import SavedAt, UsageStore

# Traces of programs of known need

KINDS = ("reserves", "grows", "idles", "leaks", "bursts")
MINUTE = 60_000


class Program:
    """A program that lives for a part of the trace; times are in minutes."""

    def __init__(self, kind: str, random: Random, length: int) -> None:
        self.kind = kind
        self.first = random.randrange(length // 6)
        self.last = random.randrange(length // 2, length)
        self.cap = random.choice((3000, 6000, CAP, 20_000))
        self.fills = random.choice((0.75, 0.9, 0.93, 1.0))
        self.top = random.randrange(700, self.cap)
        self.rate = random.choice((0.05, 0.5, 2.0))  # MiB in a minute
        self.burst = random.randrange(20, 300)

    def now(self, age: int) -> tuple[bool, int]:
        """Whether it works, and its MiB."""
        match self.kind:
            case "reserves":
                return True, int(self.cap * self.fills)
            case "grows":
                return True, min(500 + 10 * age, self.top)
            case "idles":
                return False, self.top
            case "leaks":
                return age % 2 == 0, int(300 + self.rate * age)
            case _:
                return age % self.burst < 10, self.top if age % self.burst < 2 else 400


SEEDS = [pytest.param(seed, marks=pytest.mark.thorough if seed >= 4 else ()) for seed in range(50)]


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_of_known_need_get_enough_and_no_others_get_advice(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look a minute for two to four days, and lost ones; each program begins and ends when chance wants it."""
    monkeypatch.setattr("webhook.usage.account.LONGEST", 5 * MINUTE)  # so that a look a minute is no gap
    random = Random(seed)  # noqa: S311 - a schedule, not a secret
    length = random.randrange(2, 5) * 24 * 60
    programs = [Program(kind, random, length) for kind in KINDS]
    lost = random.random() * 0.1
    gap = random.choice((0, 0, length // 20))
    card, state = SlicedCard("GPU-0", len(programs) + 1, "shared"), AccountState(0, START * HOUR)
    peaks: dict[str, int] = defaultdict(int)
    for minute in range(length):
        if random.random() < lost or length // 2 <= minute < length // 2 + gap:
            continue
        here = []
        for each in programs:
            if each.first <= minute < each.last:
                work, mib = each.now(minute - each.first)
                peaks[each.kind] = max(peaks[each.kind], mib)
                share = CardShare("GPU-0", 1, work, mib, each.cap, mib > each.cap)
                here.append(HolderLook(each.kind, "team", f"Job/{each.kind}", each.kind, "main", (share,)))
        state = advance(state, NodeLook((card,), tuple(here)), minute * MINUTE, START * HOUR + minute * MINUTE)
    found = advise([usage(state.book, length // 60)])
    assert {each.container for each in found.workloads} == {"main"}
    rows = {each.workload.removeprefix("Job/"): each for each in found.workloads}
    assert rows.keys() == {*KINDS}
    for kind in ("reserves", "idles", "leaks"):
        assert rows[kind].unknown, kind
    for each in programs:
        own = rows[each.kind]
        if not own.unknown:
            assert own.need >= peaks[each.kind] + max(256, peaks[each.kind] / 10)
            assert [int(change.value[:-2]) for change in own.changes if change.kind == advice.MEMORY] in (
                [],
                [own.need],
            )
        small = peaks[each.kind] <= min(each.cap / 2, each.cap - CONTEXT)
        settled = each.kind == "bursts" or each.top / 10 < (each.last - each.first) * 0.6
        long = each.last - each.first > (FEWEST + 4) * 60 and own.amounts.working > HOUR
        if each.kind in ("grows", "bursts") and small and settled and long:
            assert bool(own.unknown) == bool(gap), own.unknown
    assert all(pool.unknown for pool in found.pools)


# Hours of a workload


def only(found: SizeAdvice) -> SizedWorkload:
    (row,) = found.workloads
    return row


def test_a_steady_workload_is_told_its_memory_a_smaller_pool_and_a_profile() -> None:
    small = replace_pool(A100, "small", 7)
    own = book(STEADY).plus(book([2800] * 48, "q", small, "other", used={"cap": 5400}))
    found = advise([usage(own, 48)])
    row = next(each for each in found.workloads if each.namespace == "team")
    assert (row.need, row.unknown, row.slices, row.cap) == (4416, "", 4, CAP)
    assert row.changes == (
        ("memory", "4416Mi", 0),
        ("pool", "small", 48 * HOUR * 3 // 7),
        ("profile", "1g.5gb", 48 * HOUR * 3 // 7),
    )
    (shared, less) = sorted(found.pools, key=lambda each: each.pool)
    assert (shared.need, shared.mib, shared.slices) == (4416, CAP, 4)
    assert shared.changes == (("slices", "7", 48 * HOUR * 3 // 7),)
    assert (less.pool, less.need, less.unknown, less.changes) == (
        "small",
        0,
        "the need of 1 of its 1 workloads is not known",
        (),
    )


def replace_pool(card: SlicedCard, pool: str, slices: int) -> SlicedCard:
    return SlicedCard(f"GPU-{pool}", slices, pool, card.product)


def test_a_namespace_shows_its_workloads_and_no_pool() -> None:
    own = book(STEADY).plus(book(STEADY, "q", namespace="other"))
    found = advise([usage(own, 48)], namespace="other")
    assert ([each.namespace for each in found.workloads], found.pools) == (["other"], ())


def test_the_peaks_of_all_pods_and_pools_count() -> None:
    own = book(STEADY).plus(book([4500, *STEADY[1:]], "q", replace_pool(A100, "wide", 2)))
    row = only(advise([usage(own, 48)]))
    assert row.pools == ("shared", "wide")
    assert row.need == need(4500)
    assert [change.kind for change in row.changes] == ["memory"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"over": HOUR}, "it was over its cap"),
        ({"cap": 8000 - 1}, "it reserves its cap, or may"),
        ({"cap": 4000}, "it reserves its cap, or may"),
        ({"cap": 0}, "no cap of it is known"),
        ({"even": need(4000) + 1}, "its processes are unequal, and share a cap equally: 4417 MiB would be needed"),
        ({"held": 2 * HOUR}, "a container of it holds several slices"),
        ({"working": 0, "idle": HOUR}, "it was seen to work for 0.0 h; at least 1 h is needed"),
        ({"working": 0, "idle": 0, "unmeasured": HOUR}, "it was seen to work for 0.0 h; at least 1 h is needed"),
        ({"measured": HOUR * 98 // 100}, "its memory is not known for 1.0 of 48.0 h; at most 1% may be missing"),
        ({"working": HOUR // 8, "idle": HOUR // 8, "held": HOUR // 4}, "it was seen for 12.0 h; at least 24 h are"),
    ],
)
def test_a_need_that_is_not_known_says_why(more: Mapping[str, int], why: str) -> None:
    row = only(advise([usage(book(STEADY, used=more), 48)]))
    assert row.unknown.startswith(why)
    assert (row.need, row.changes) == (0, ())


def test_processes_that_are_nearly_equal_are_sized() -> None:
    row = only(advise([usage(book(STEADY, used={"even": need(4000)}), 48)]))
    assert (row.unknown, row.need) == ("", need(4000))


def test_a_small_slice_may_be_reserved_below_half_of_its_cap() -> None:
    """A cap counts a context generously: of a slice of 1408 MiB, a framework may reserve 512, and take 812."""
    row = only(advise([usage(book([600] * 48, used={"cap": 1408}), 48)]))
    assert row.unknown.startswith("it reserves its cap, or may")


@pytest.mark.parametrize(
    "peaks", [[4000 + hour for hour in range(48)], [*[3999] * 40, *[4000] * 8], [0] * 40 + [9] * 8]
)
def test_memory_that_still_grows_is_no_size(peaks: list[int]) -> None:
    assert "its memory still grew" in only(advise([usage(book(peaks), 48)])).unknown


def test_a_leak_that_begins_again_with_each_pod_is_no_size() -> None:
    peaks = [1000 + 100 * hour for hour in range(12)]
    own = Book()
    for number, first in enumerate((0, 13, 26, 39)):
        each = book(peaks, f"p-{number}")
        later = {key._replace(hour=key.hour + first): used for key, used in each.holders.items()}
        own = own.plus(Book({key._replace(hour=key.hour + first): c for key, c in each.cards.items()}, later))
    assert only(advise([usage(own, 51)])).unknown == "the memory of most of its pods grew until they ended"


def test_too_few_hours_are_named() -> None:
    many = book([4000] * 12).plus(book([4000] * 12, "q")).plus(book([4000] * 12, "r"))
    assert only(advise([usage(many, 12)])).unknown == "it was seen within 12 h; at least 24 h are needed"


@pytest.mark.parametrize(("lost", "known"), [(0, True), (HOUR // 4, True), (HOUR, False)])
def test_a_gap_that_matters_is_named(lost: int, known: bool) -> None:
    own = book(STEADY)
    key = CardKey(START + 48, *next(iter(own.cards))[1:])
    own = own.plus(Book({key: CardAmounts(lost, 4 * lost, unseen=4 * lost)}))
    assert bool(only(advise([usage(own, 49)])).unknown) != known


def test_slices_that_are_unseen_while_somebody_looks_are_no_gap() -> None:
    own = book(STEADY)
    cards = {key: each._replace(free=0, unseen=each.free) for key, each in own.cards.items()}
    assert only(advise([usage(replace(own, cards=cards), 48)])).need


def test_a_record_that_may_not_be_complete_hides_a_peak() -> None:
    assert only(advise([usage(book(STEADY), 48, trouble="it is being written")])).unknown


@pytest.mark.parametrize(("silent", "known"), [(0, True), (1, False), (None, False)])
def test_a_workload_may_have_run_on_a_silent_node_and_a_pod_may_not(silent: int | None, known: bool) -> None:
    assert bool(only(advise([usage(book(STEADY), 48)], silent)).need) == known
    bare = only(advise([usage(book(STEADY, workload=""), 48)], silent))
    assert (bare.workload, bare.need) == ("Pod/p", need(4000))


@pytest.mark.parametrize("namespace", ["team", REST])
def test_a_peak_under_others_may_be_of_the_workload(namespace: str) -> None:
    for peak in (4000, 4001):
        rest = book([peak] * 2, REST, namespace=namespace, workload=REST)
        found = [each for each in advise([usage(book(STEADY).plus(rest), 48)]).workloads if each.workload != REST]
        assert bool(found[0].unknown) == (peak > 4000)


def test_containers_of_one_pod_and_slices_of_two_cards_are_not_sized() -> None:
    own = book(STEADY)
    other = {key._replace(container="side"): used for key, used in own.holders.items()}
    assert only(advise([usage(own.plus(Book(holders=other)), 48)])).unknown.startswith("several containers")
    two = own.plus(book(STEADY, card=A100._replace(uuid="GPU-1")))
    found = advise([usage(two, 48)])
    assert only(found).unknown == "a container of it holds several slices"
    assert [pool.mib for pool in found.pools] == [0], "its cap may be that of two slices"


def test_a_node_that_reports_large_slices_does_not_count_for_all() -> None:
    small = replace_pool(A100, "small", 7)
    true, false = (book([100] * 48, "q", small, "other", used={"cap": cap}) for cap in (5000, 90_000))
    found = advise([usage(book(STEADY).plus(true), 48), usage(false, 48, "node-2")], namespace="team")
    assert "pool" not in [change.kind for change in only(found).changes]


def test_an_answer_of_an_older_agent_has_no_hours() -> None:
    found = usage(book(STEADY), 48)
    old = replace(found, book=replace(found.book, hours={}))
    assert only(advise([document.read(document.write(old))])).unknown.startswith(
        "the record does not say in which hour"
    )


def test_a_pool_whose_slices_were_changed_is_not_advised() -> None:
    own = book(STEADY).plus(book(STEADY, "q", replace_pool(A100, "shared", 5), "other"))
    found = advise([usage(own, 48)])
    assert found.pools == ()
    assert all([change.kind for change in each.changes] == ["memory"] for each in found.workloads)


# The hours of peaks

amounts = st.builds(lambda peak: Amounts(held=1, peak=peak), st.integers(0, 5))
rows = st.dictionaries(
    st.builds(
        lambda hour, pod: HolderKey(START + hour, "GPU-0", "p", "A", "n", "w", pod, "c"),
        st.integers(0, 5),
        st.sampled_from(("a", "b", REST)),
    ),
    amounts,
    min_size=1,
)


@given(rows, rows, st.integers(0, 6))
def test_a_file_and_a_memory_agree_on_when_a_peak_was_reached(
    saved: dict[HolderKey, Amounts], kept: dict[HolderKey, Amounts], since: int
) -> None:
    first = START + since
    truth = {}
    for pod in ("a", "b"):
        at = {
            key.hour: each.peak for key, each in [*kept.items(), *saved.items()] if key.pod == pod and key.hour >= first
        }
        for key, each in saved.items():
            if key.pod == pod and key.hour in at:
                at[key.hour] = max(each.peak, kept.get(key, each).peak)
        if at:
            top = max(at.values())
            truth[pod] = (min(at), max(at), top, min(hour for hour, peak in at.items() if peak == top))
    found = collapsed(Book(holders=saved), first).plus(collapsed(Book(holders=kept), first))
    assert {key.pod: tuple(each) for key, each in found.hours.items()} == truth
    written = document.read(document.write(NodeUsage("n", 0, 1, found)))
    assert written.book.hours == found.hours


@given(rows, rows, st.integers(0, 6))
def test_a_file_says_when_a_peak_was_reached(
    saved: dict[HolderKey, Amounts], more: dict[HolderKey, Amounts], since: int
) -> None:
    with TemporaryDirectory() as folder:
        store = UsageStore(Path(folder) / "usage")
        for each in (saved, more):
            assert store.save(Book(holders=each), SavedAt("n", "b", 1, START * HOUR)) == ""
        found, why = store.read(START + since, 100)
    assert why == ""
    assert found.hours == collapsed(Book(holders=saved).plus(Book(holders=more)), START + since).hours


sized_pools = st.lists(
    st.builds(
        SizedPool,
        st.integers(0, 30).map(lambda each: f"pool-{each}"),
        st.sampled_from(("A10", "A100")),
        st.integers(2, 9),
        st.integers(0, 6).map(lambda each: 1000 * each),
        st.just(0),
    ),
    min_size=1,
    max_size=12,
)


@given(sized_pools, st.integers(0, 7000))
def test_the_pool_with_the_most_slices_that_are_large_enough_is_found(pools: list[SizedPool], mib: int) -> None:
    larger = advice._LargerCounts(pools)
    for size in pools:
        fitting = [
            each for each in pools if each.product == size.product and each.slices > size.slices and each.mib >= mib
        ]
        best = max(fitting, key=lambda each: (each.slices, each.pool), default=None)
        found = larger.beyond(size, mib)
        assert (found and (found.slices, found.pool)) == (best and (best.slices, best.pool))


class CountedPool(SizedPool):
    """A pool of which each look at an attribute counts as a call."""

    def __getattribute__(self, name: str) -> object:
        return super().__getattribute__(name)


def test_as_many_workloads_as_pools_cost_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a false agent has so many pools: a node is in one."""
    monkeypatch.setattr(advice, "SizedPool", CountedPool)

    def cost(count: int, *, products: bool) -> int:
        cards, holders = dict[CardKey, CardAmounts](), dict[HolderKey, Amounts]()
        for number in range(count):
            pool, product = ("shared", f"A{number}") if products else (f"pool-{number}", "A10")
            one = book(STEADY, f"p-{number}", SlicedCard(f"GPU-{number}", 4, pool, product), workload=f"Job/{number}")
            cards |= one.cards
            holders |= one.holders
        found = usage(Book(cards, holders), len(STEADY))
        return calls(lambda: advise([found]))

    for products in (False, True):
        few, many = cost(10, products=products), cost(80, products=products)
        assert many < 8.8 * few, "eight times as many, and the logarithm of that"


def test_a_profile_is_of_a_card_whose_memory_is_known_by_its_name() -> None:
    names = {product: [each.name for each in mig_profiles.named(product)][:1] for product in PRODUCTS}
    assert names == PRODUCTS


PRODUCTS = {
    "NVIDIA-A100-SXM4-40GB": ["1g.5gb"],
    "NVIDIA-A100-SXM4-80GB": ["1g.10gb"],
    "NVIDIA-H100-80GB-HBM3": ["1g.10gb"],
    "NVIDIA-H100-NVL": [],
    "NVIDIA-H200": ["1g.18gb"],
    "NVIDIA-GH200-144G-HBM3e": [],
    "NVIDIA-A10": [],
    "": [],
}
