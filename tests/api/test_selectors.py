"""Selectors: what one requirement matches, and whether several can hold together."""

import itertools
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.api.selectors import (
    MAX_INTEGER,
    NOWHERE,
    NodeSelectorTerm,
    Requirement,
    Selector,
    Values,
    contradiction,
    equals,
    integer,
)


def requirement(operator: str, *values: str, key: str = "k") -> Requirement:
    return Requirement(key, operator, frozenset(values))


MATCHES = [
    (requirement("In", "a"), "a", True),
    (requirement("In", "a", "b"), "b", True),
    (requirement("In", "a"), "b", False),
    (requirement("In", "a"), None, False),
    (requirement("In"), "a", False),
    (requirement("In", ""), "", True),
    (requirement("In", ""), None, False),
    (requirement("NotIn", "a"), "a", False),
    (requirement("NotIn", "a"), "b", True),
    (requirement("NotIn", "a"), None, True),
    (requirement("NotIn", ""), "", False),
    (requirement("NotIn", ""), None, True),
    (requirement("Exists"), "", True),
    (requirement("Exists"), "a", True),
    (requirement("Exists"), None, False),
    (requirement("DoesNotExist"), None, True),
    (requirement("DoesNotExist"), "", False),
    (requirement("Gt", "5"), "6", True),
    (requirement("Gt", "5"), "5", False),
    (requirement("Gt", "5"), "10", True),  # as numbers, not as text
    (requirement("Gt", "5"), "a", False),
    (requirement("Gt", "5"), None, False),
    (requirement("Gt", "-5"), "-4", True),
    (requirement("Gt", "a"), "6", False),
    (requirement("Gt"), "6", False),
    (requirement("Lt", "5"), "4", True),
    (requirement("Lt", "5"), "5", False),
    (requirement("Lt", "5"), None, False),
    (requirement("Lt", "10"), "9", True),
    (requirement("Like", "a"), "a", False),
    (requirement("in", "a"), "a", False),
    (requirement("", "a"), "a", False),
    # Go's strconv.ParseInt, by which the scheduler reads these, knows no digits but 0 to 9.
    (requirement("Gt", "5"), "1_0", False),
    (requirement("Gt", "5"), "١٢", False),
    (requirement("Gt", "5"), " 6", False),
]


INTEGERS = [
    ("0", 0),
    ("007", 7),
    ("0" * 30 + "20000", 20000),  # as many zeros as one likes
    ("0" * 1_000_000 + "5", 5),
    ("-0000000000000000000000001", -1),
    ("+5", 5),
    (str(MAX_INTEGER), MAX_INTEGER),
    (str(MAX_INTEGER + 1), None),
    (str(-MAX_INTEGER - 1), -MAX_INTEGER - 1),
    (str(-MAX_INTEGER - 2), None),
    ("9" * 1_000_000, None),
    *((text, None) for text in ("", "+", "-", "--1", " 5", "5 ", "1_0", "0x10", "1e3", "5.0", "١٢", "５", "²")),
]


@pytest.mark.parametrize(("text", "number"), INTEGERS, ids=lambda value: f"{str(value)[:20]}")
def test_a_number_is_read_as_go_reads_it(text: str, number: int | None) -> None:
    assert integer(text) == number


UNREADABLE = [
    requirement("In"),
    requirement("NotIn"),
    requirement("Exists", "a"),
    requirement("DoesNotExist", "a"),
    requirement("Gt"),
    requirement("Gt", "1", "2"),
    requirement("Lt", "a"),
    requirement("Lt", "0" * 63 + "5"),  # no label is so long
    requirement("NotIn", "no label"),
    requirement("NotIn", "a", key=""),
    requirement("NotIn", "a", key="A.b/c"),
    requirement("NotIn", "a", key="x" * 254 + "/k"),
    requirement("in", "a"),
]


@pytest.mark.parametrize("one", UNREADABLE, ids=str)
def test_an_invalid_node_selector_term_is_recognized(one: Requirement) -> None:
    assert not NodeSelectorTerm((requirement("Exists"), one)).readable
    assert not NOWHERE.matches("n", {"k": "a"})


def named(operator: str, *names: str, key: str = "metadata.name") -> NodeSelectorTerm:
    return NodeSelectorTerm((requirement("Exists"),), (requirement(operator, *names, key=key),))


def test_a_term_with_match_fields_checks_the_name_of_the_node() -> None:
    assert named("In", "n").matches("n", {"k": "a"})
    assert not named("In", "n").matches("n", {})
    assert not named("In", "m").matches("n", {"k": "a"})
    assert named("NotIn", "m").matches("n", {"k": "a"})
    assert not named("NotIn", "n").matches("n", {"k": "a"})
    assert not named("In", "n", key="spec.x").matches("n", {"k": "a"})
    assert all(named(operator, "n").readable for operator in ("In", "NotIn"))
    assert not any(
        named(operator, *names).readable for operator, *names in (("In", "n", "m"), ("Exists",), ("Gt", "1"))
    )


@pytest.mark.parametrize(("one", "value", "matches"), MATCHES)
def test_a_requirement_matches_as_the_scheduler_does(one: Requirement, value: str | None, matches: bool) -> None:
    assert one.matches({} if value is None else {"k": value}) is matches


def test_a_requirement_looks_at_its_own_key_only() -> None:
    assert not requirement("Exists").matches({"K": "a", "other": "a", "": "a"})


def test_a_selector_matches_only_if_all_requirements_match() -> None:
    selector = Selector({"a": "1"}, (requirement("NotIn", "2", key="b"),))
    assert selector.matches({"a": "1"})
    assert selector.matches({"a": "1", "b": "3", "c": "4"})
    assert not selector.matches({"a": "1", "b": "2"})
    assert not selector.matches({"b": "3"})


def test_an_empty_selector_matches_all() -> None:
    assert Selector({}).matches({})
    assert Selector({}).matches({"a": "1"})


def test_match_labels_become_one_equality_each() -> None:
    assert equals({"a": "1", "b": ""}) == (
        requirement("In", "1", key="a"),
        requirement("In", "", key="b"),
    )


CONTRADICTIONS = [
    ((), None),
    ((requirement("In", "a"), requirement("In", "b")), "k"),
    ((requirement("In", "a"), requirement("In", "b", "a")), None),
    ((requirement("In", "a"), requirement("NotIn", "a")), "k"),
    ((requirement("In", "a"), requirement("DoesNotExist")), "k"),
    ((requirement("Exists"), requirement("DoesNotExist")), "k"),
    ((requirement("NotIn", "a"), requirement("DoesNotExist")), None),
    ((requirement("NotIn", "a"), requirement("Exists")), None),
    ((requirement("NotIn", "x", "xx"), requirement("Exists")), None),
    ((requirement("In", "a"), requirement("In", "b", key="other")), None),
    ((requirement("Gt", "5"), requirement("Lt", "6")), "k"),
    ((requirement("Gt", "5"), requirement("Lt", "7")), None),
    ((requirement("Gt", "5"), requirement("Lt", "8"), requirement("NotIn", "6")), None),
    ((requirement("Gt", "5"), requirement("NotIn", "6", "7", "8")), None),
    ((requirement("Gt", "5"), requirement("In", "5", "a")), "k"),
    ((requirement("Gt", "5"), requirement("DoesNotExist")), "k"),
    ((requirement("In"),), "k"),
    ((requirement("Exists", key="j"), requirement("In"), requirement("In", key="j")), "j"),
]


@pytest.mark.parametrize(("all_of", "key"), CONTRADICTIONS)
def test_a_contradiction_names_its_key(all_of: tuple[Requirement, ...], key: str | None) -> None:
    assert contradiction(all_of) == key


@pytest.mark.parametrize("one", [requirement("Gt", "a"), requirement("Lt"), requirement("Like", "a"), requirement("")])
def test_requirements_that_no_value_matches_contradict_each_other(one: Requirement) -> None:
    assert contradiction((one,)) == "k"


VALUES = ("", "a", "b", "x", "1", "2", "4")


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    key = draw(st.sampled_from(["j", "k"]))
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
    if operator in ("Gt", "Lt"):
        return Requirement(key, operator, frozenset({draw(st.sampled_from(["-1", "0", "1", "2", "4"]))}))
    if operator in ("In", "NotIn"):
        return Requirement(key, operator, draw(st.frozensets(st.sampled_from(VALUES), max_size=4)))
    return Requirement(key, operator)


# Named values, one that nothing names, and every integer near a bound.
UNIVERSE: tuple[str | None, ...] = (None, *VALUES, "unnamed", *(str(n) for n in range(-12, 16)))


def label_maps(keys: Iterable[str]) -> Iterator[dict[str, str]]:
    keys = sorted(keys)
    for values in itertools.product(UNIVERSE, repeat=len(keys)):
        yield {key: value for key, value in zip(keys, values, strict=True) if value is not None}


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(requirements(), max_size=5))
def test_requirements_contradict_each_other_exactly_when_no_labels_match_them_all(
    all_of: list[Requirement],
) -> None:
    possible = any(all(one.matches(labels) for one in all_of) for labels in label_maps({r.key for r in all_of}))
    key = contradiction(all_of)
    assert (key is None) == possible
    if key is not None:
        alone = [one for one in all_of if one.key == key]
        assert not any(all(one.matches(labels) for one in alone) for labels in label_maps({key}))


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(requirements(), max_size=5), st.lists(requirements(), max_size=5))
def test_values_that_are_read_apart_meet_exactly_if_the_requirements_are_possible_together(
    some: list[Requirement], more: list[Requirement]
) -> None:
    ours, theirs = ([each._replace(key="k") for each in group] for group in (some, more))
    possible = any(all(one.matches(labels) for one in (*ours, *theirs)) for labels in label_maps({"k"}))
    one, other = Values.of(ours), Values.of(theirs)
    assert one.meet(other) is other.meet(one) is possible


@given(st.lists(requirements(), max_size=4), st.lists(requirements(), max_size=4))
def test_more_requirements_never_resolve_a_contradiction(some: list[Requirement], more: list[Requirement]) -> None:
    if contradiction(some) is not None:
        assert contradiction([*some, *more]) is not None
        assert contradiction([*more, *some]) is not None
