"""The hours that are read from Prometheus: the questions are bounded, and any answer is refused or makes sense."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.usage import counted, counted_hours
from webhook.usage.account import KEPT_HOURS
from webhook.usage.counted import MOST_SERIES, ChosenSeries, CountedTime, HourlySeries, Sample
from webhook.usage.counted_hours import LONGEST, MOST_POINTS
from webhook.usage.document import NodeUsage
from webhook.usage.record import HOUR, Amounts, Book, HolderKey, HourAmounts, PoolHour, SeenHours
from webhook.usage.store import DamagedRecord

START = 490_000
HOURS = range(START, START + 5)
CHOSEN = ChosenSeries(pods=True)
NAMES = {
    "node": "node-1",
    "gpu": "GPU-0",
    "pool": "shared",
    "product": "A10",
    "namespace": "team",
    "workload": "Job/j",
    "pod": "p",
    "container": "main",
}
KEY = HolderKey(0, "GPU-0", "shared", "A10", "team", "Job/j", "p", "main")
MIB = 2**20


def matrix(labels: Any, values: Any) -> bytes:
    result = [{"metric": labels, "values": values}]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def end(hour: int) -> int:
    """The end of an hour, in seconds."""
    return (hour + 1) * HOUR // 1000


@given(st.integers(START, START + 100), st.integers(0, KEPT_HOURS), st.integers(0, MOST_SERIES))
def test_hours_are_asked_for_once_and_in_bounded_parts(first: int, count: int, series: int) -> None:
    hours = range(first, first + count)
    parts = [*counted_hours.parts(hours, series)]
    assert [hour for part in parts for hour in part] == [*hours]
    assert all(0 < len(part) <= LONGEST and len(part) * series <= MOST_POINTS for part in parts)


def test_prometheus_reads_no_more_series_at_once_than_answers_may_have() -> None:
    card, work = Sample({"node": "n", "pool": "p"}, 1.0), Sample({}, 1.0)
    for cards, workloads, expected in ((1, 0, 3), (1, 4, 4), (0, 0, 0)):
        assert counted_hours.series_of({"cards": [card] * cards, "work": [work] * workloads}, HOURS) == expected


def test_hours_are_full_but_for_the_last_one() -> None:
    since = START * HOUR // 1000
    assert counted_hours.hours_of(CountedTime(since, since + 7200)) == range(START, START + 2)
    assert counted_hours.hours_of(CountedTime(since, since + 7201)) == range(START, START + 3)
    assert counted_hours.hours_of(CountedTime(since - 30, since + 30)) == range(START - 1, START + 1)


def test_each_hour_has_the_value_at_its_end() -> None:
    data = matrix({**NAMES, "other": "x"}, [[end(START), "5"], [end(START + 2), "1e3"], [float(end(START + 3)), "0"]])
    expected = HourlySeries(NAMES, {START: 5.0, START + 2: 1000.0, START + 3: 0.0})
    assert counted.read_hours(data, HOURS, "") == [expected]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (None, "without labels or a value"),
        ([None], "without labels or a value"),
        ([[end(START)]], "without labels or a value"),
        ([[end(START), 5]], "without labels or a value"),
        ([[end(START), "-1"]], "a value that is no amount"),
        ([[end(START), "NaN"]], "a value that is no amount"),
        ([[end(START) - 1, "1"]], "a time that was not asked for"),
        ([[end(START - 1), "1"]], "a time that was not asked for"),
        ([[end(START + 5), "1"]], "a time that was not asked for"),
        ([[float("nan"), "1"]], "a time that was not asked for"),
        ([[float("inf"), "1"]], "a time that was not asked for"),
        ([["x", "1"]], "a time that was not asked for"),
        ([[end(START), "1"], [end(START), "1"]], "a time that was not asked for"),
    ],
)
def test_values_of_no_hour_are_refused(values: Any, why: str) -> None:
    with pytest.raises(DamagedRecord, match=why):
        counted.read_hours(matrix(NAMES, values), HOURS, "")


def test_an_answer_that_is_too_large_says_how_to_ask_for_less() -> None:
    with pytest.raises(DamagedRecord, match="16 MiB; ask for less time"):
        counted.read_hours(b" " * (counted.MOST_BYTES + 1), HOURS, "ask for less time")


def hour(**values: float) -> HourAmounts:
    """An hour of a pool of a node, by values in seconds. `state_` and `work_` begin those with a label."""
    answers: dict[str, list[HourlySeries]] = {name: [] for name in counted_hours.queries(ChosenSeries())}
    for name, value in values.items():
        label, _, field = name.partition("_")
        which = {"state": "cards"}.get(label, label)
        answers[which].append(
            HourlySeries({"node": "n", "pool": "p", **({label: field} if field else {})}, {START: value})
        )
    return counted_hours.rows(answers)["n"][PoolHour(START, "p")]


def test_slices_of_no_known_container_were_not_seen() -> None:
    found = hour(counted=3600, state_held=7200, state_free=7200, known=3600, work_working=1200, work_idle=2400)
    assert found == HourAmounts(HOUR, HOUR // 3, 2 * HOUR // 3, 0, 2 * HOUR, HOUR)


def test_a_gap_is_not_filled() -> None:
    """An agent that was off for two days adds them as unseen, and Prometheus may have read it last before the hour."""
    off, free = 4 * 172_800, 4 * 1800
    assert hour(counted=172_800 + 1800, state_unseen=off, state_free=free) == HourAmounts(
        HOUR, free=free * 1000, unseen=2 * HOUR
    )
    assert hour(counted=4500, state_free=4 * 4500) == HourAmounts(HOUR, free=4 * HOUR)
    assert hour(counted=3630, state_free=4 * 3630) == HourAmounts(3_630_000, free=4 * 3_630_000)
    without_cards = {"known": [HourlySeries({"node": "n", "pool": "p"}, {START: 5.0})]}
    assert counted_hours.rows(without_cards) == {"n": {}}


@pytest.mark.parametrize("labels", [{"cards": {"state": "counted"}}, {"work": {"work": "held"}}, {"cards": {}}])
def test_slices_of_another_kind_are_refused(labels: dict[str, dict[str, str]]) -> None:
    ((name, more),) = labels.items()
    with pytest.raises(DamagedRecord, match="of an unknown kind"):
        counted_hours.rows({name: [HourlySeries(more, {START: 1.0})]})


FIELDS = ("known", "state_held", "state_free", "state_unseen", "work_working", "work_idle")


@given(st.floats(1e-300, 2**61), st.dictionaries(st.sampled_from(FIELDS), st.floats(0, 2**61)))
def test_no_part_of_an_hour_is_below_zero(counted: float, parts: dict[str, float]) -> None:
    assert min(hour(counted=counted, **parts)) >= 0


portions = st.floats(0, 1)


@given(st.integers(1, 3600), st.integers(1, 16), portions, portions, st.tuples(portions, portions, portions))
def test_the_parts_of_an_hour_are_all_slices(
    seconds: int, slices: int, held: float, free: float, work: tuple[float, float, float]
) -> None:
    whole = seconds * slices
    mine, known = (
        held * whole,
        dict(zip(("known", "work_working", "work_idle"), (each * whole for each in work), strict=True)),
    )
    rest = (1 - held) * whole
    states = {"state_held": mine, "state_free": free * rest, "state_unseen": rest - free * rest}
    found = hour(counted=seconds, **states, **known)
    assert sum(found[1:]) == pytest.approx(whole * 1000, abs=4 * slices)
    assert sum(found[1:4]) <= min(mine, known["known"]) * 1000 + slices


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3) | st.sampled_from(("1", end(START))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("metric", "values")), inner),
)


@given(values, values)
def test_garbage_is_refused(labels: Any, found: Any) -> None:
    with suppress(DamagedRecord):
        for each in counted.read_hours(matrix(labels, found), HOURS, ""):
            assert all(hour in HOURS and value >= 0 for hour, value in each.values.items())
            counted_hours.seen([each], CHOSEN)


def test_a_container_has_its_first_and_last_hour_and_that_of_its_peak() -> None:
    """Also if Prometheus read it from two targets, as after a restart of the agent, and in several parts."""
    answers = [
        [HourlySeries(NAMES, {START: 5 * MIB, START + 1: 7 * MIB})],
        [HourlySeries(NAMES, {START + 4: 7 * MIB}), HourlySeries({**NAMES, "pod": "gone"}, {START: 1.0})],
    ]
    before = NodeUsage("node-1", 1, 2, Book({}, {KEY: Amounts(1)}))
    other = NodeUsage("node-2", 1, 2, Book({}, {KEY: Amounts(1)}))
    one, two = counted_hours.with_hours([before, other], [counted_hours.seen(each, CHOSEN) for each in answers])
    assert one.book.hours == {KEY: SeenHours(START, START + 4, 7, START + 1)}
    assert (one.book.holders, one.node, two) == (before.book.holders, "node-1", other)
