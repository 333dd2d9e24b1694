"""The hours that are read from Prometheus: the questions are bounded, and any answer is refused or makes sense."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.usage import counted, counted_hours
from webhook.usage.account import KEPT_HOURS
from webhook.usage.counted import MOST_SERIES, ChosenSeries, CountedTime, HourlySeries
from webhook.usage.counted_hours import LONGEST, MOST_POINTS
from webhook.usage.document import NodeUsage
from webhook.usage.record import HOUR, Amounts, Book, HolderKey, SeenHours
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
