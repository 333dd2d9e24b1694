"""Patches: what fixes become, and that another implementation of RFC 6902 agrees."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import AWKWARD_KEYS, json_maps
from webhook.api.jsonpatch import apply, build
from webhook.model import Fix, Path

KEYS = (*AWKWARD_KEYS, "a", "b", "c")


def applied(document: Any, operations: Any) -> Any:
    """Return what the other implementation makes of a patch."""
    return jsonpatch.apply_patch(copy.deepcopy(document), list(operations))


KEY = st.sampled_from(KEYS)
DOCUMENTS = st.dictionaries(
    KEY,
    st.recursive(
        st.sampled_from([None, "", "v", "w", 0, 1, 2, 3]),
        lambda inner: st.one_of(st.dictionaries(KEY, inner, max_size=4), st.lists(inner, max_size=3)),
        max_leaves=12,
    ),
    max_size=5,
)
"""Maps and lists of few keys, so that fixes often meet something."""

SCALARS = st.sampled_from(["new", "v", ""])
MAPS = st.dictionaries(KEY, SCALARS, min_size=1, max_size=3)
ITEMS = st.lists(MAPS, min_size=1, max_size=2)


@st.composite
def fix_for(draw: st.DrawFn, document: dict[str, Any], *, lists: bool) -> Fix:
    """A fix such as rules make: its path fits the document as far as that goes, then adds keys."""
    path: list[str | int] = []
    there: Any = document
    for _ in range(draw(st.integers(1, 4))):
        if isinstance(there, list):
            if not there:
                break
            key: str | int = draw(st.integers(0, len(there) - 1))
            there = there[int(key)]
        elif isinstance(there, dict) or there is None:
            key = draw(KEY)
            there = (there or {}).get(key)
        else:
            break
        path.append(key)
    if isinstance(there, list):
        return Fix(tuple(path), draw(ITEMS if lists else SCALARS))
    if isinstance(there, dict):
        return Fix(tuple(path), draw(MAPS))
    if there is None:
        return Fix(tuple(path), draw(SCALARS | MAPS | ITEMS if lists else SCALARS | MAPS))
    return Fix(tuple(path), draw(SCALARS))


@st.composite
def changes(draw: st.DrawFn, *, most: int = 4, lists: bool = True) -> tuple[dict[str, Any], list[Fix]]:
    """A document and fixes, each of which fits what the ones before it lead to."""
    document = draw(DOCUMENTS)
    fixes: list[Fix] = []
    state: Any = document
    for _ in range(draw(st.integers(0, most))):
        fix = draw(fix_for(state, lists=lists))
        fixes.append(fix)
        _, state = build(state, [fix])
    return document, fixes


@given(changes())
def test_the_jsonpatch_library_gives_the_same_result(change: tuple[dict[str, Any], list[Fix]]) -> None:
    document, fixes = change
    operations, outcome = build(document, fixes)
    assert applied(document, operations) == outcome
    assert apply(document, operations) == outcome


@given(changes())
def test_the_given_document_and_fixes_are_never_changed(change: tuple[dict[str, Any], list[Fix]]) -> None:
    document, fixes = change
    before, fixes_before = copy.deepcopy(document), copy.deepcopy(fixes)
    operations, _ = build(document, fixes)
    apply(document, operations)
    assert document == before
    assert fixes == fixes_before


@given(changes(most=1, lists=False))
def test_a_fix_that_is_already_in_place_needs_no_operation(change: tuple[dict[str, Any], list[Fix]]) -> None:
    document, fixes = change
    _, outcome = build(document, fixes)
    assert build(outcome, fixes) == ((), outcome)


def keys_of(text: str) -> tuple[str, ...]:
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in text.split("/")[1:])


@given(changes())
def test_no_operation_touches_a_place_that_no_fix_names(change: tuple[dict[str, Any], list[Fix]]) -> None:
    document, fixes = change
    operations, outcome = build(document, fixes)
    paths = [tuple(map(str, fix.path)) for fix in fixes]
    for operation in operations:
        place = keys_of(operation["path"])
        # An operation puts a place within a fix, or the first missing parent of one.
        assert any(place[: len(path)] == path or path[: len(place)] == place for path in paths)
    for path, leaf in leaves(document):
        inside = any(tuple(map(str, path))[: len(fix)] == fix for fix in paths)
        if not inside and leaf is not None:
            assert at(outcome, path) == leaf


def leaves(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    if isinstance(value, dict):
        return [leaf for key, each in value.items() for leaf in leaves(each, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, each in enumerate(value) for leaf in leaves(each, (*path, index))]
    return [(path, value)]


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


CASES: list[tuple[str, dict[str, Any], Fix, list[dict[str, Any]]]] = [
    (
        "all missing parents come with the first",
        {},
        Fix(("spec", "nodeSelector"), {"a": "1"}),
        [{"op": "add", "path": "/spec", "value": {"nodeSelector": {"a": "1"}}}],
    ),
    (
        "a map gains keys one by one",
        {"spec": {"nodeSelector": {"zone": "b"}}},
        Fix(("spec", "nodeSelector"), {"a": "1", "zone": "b"}),
        [{"op": "add", "path": "/spec/nodeSelector/a", "value": "1"}],
    ),
    (
        "a slash and a tilde in a key are escaped",
        {"m": {"x": "y"}},
        Fix(("m",), {"a/b~c~1d": "1"}),
        [{"op": "add", "path": "/m/a~1b~0c~01d", "value": "1"}],
    ),
    (
        "an empty key is a key",
        {"": {"": "old"}},
        Fix(("", ""), "new"),
        [{"op": "replace", "path": "//", "value": "new"}],
    ),
    (
        "a null map is as good as none",
        {"spec": {"nodeSelector": None}},
        Fix(("spec", "nodeSelector"), {"a": "1"}),
        [{"op": "add", "path": "/spec/nodeSelector", "value": {"a": "1"}}],
    ),
    (
        "a null list is as good as none",
        {"spec": {"tolerations": None}},
        Fix(("spec", "tolerations"), [{"key": "a"}]),
        [{"op": "add", "path": "/spec/tolerations", "value": [{"key": "a"}]}],
    ),
    (
        "a null parent is as good as none",
        {"spec": {"affinity": None}},
        Fix(("spec", "affinity", "nodeAffinity"), {"a": "1"}),
        [{"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": {"a": "1"}}}],
    ),
    (
        "a list gains items at its end",
        {"spec": {"tolerations": [{"key": "own"}]}},
        Fix(("spec", "tolerations"), [{"key": "a"}, {"key": "b"}]),
        [
            {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "a"}},
            {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "b"}},
        ],
    ),
    (
        "an empty list gains items too",
        {"env": []},
        Fix(("env",), [{"name": "A"}]),
        [{"op": "add", "path": "/env/-", "value": {"name": "A"}}],
    ),
    (
        "a value within a list is replaced in place",
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        Fix(("env", 1, "value"), "3"),
        [{"op": "replace", "path": "/env/1/value", "value": "3"}],
    ),
    (
        "what is there already needs nothing",
        {"env": [{"name": "A", "value": "1"}]},
        Fix(("env", 0, "value"), "1"),
        [],
    ),
]


@pytest.mark.parametrize(("document", "fix", "operations"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_a_fix_becomes_as_few_operations_as_possible(
    document: dict[str, Any], fix: Fix, operations: list[dict[str, Any]]
) -> None:
    assert list(build(document, [fix])[0]) == operations
    assert applied(document, operations) == build(document, [fix])[1]


def test_a_fix_builds_on_the_result_of_the_fix_before_it() -> None:
    fixes = [Fix(("spec", "nodeSelector"), {"a": "1"}), Fix(("spec", "nodeSelector"), {"a": "1", "b": "2"})]
    operations, outcome = build({"spec": {}}, fixes)
    assert [operation["path"] for operation in operations] == ["/spec/nodeSelector", "/spec/nodeSelector/b"]
    assert outcome == {"spec": {"nodeSelector": {"a": "1", "b": "2"}}}


def test_a_map_key_that_looks_like_an_index_is_a_key() -> None:
    operations, outcome = build({"m": {"0": {"-": "x"}}}, [Fix(("m", "0"), {"-": "y", "1": "z"})])
    assert outcome == {"m": {"0": {"-": "y", "1": "z"}}}
    assert applied({"m": {"0": {"-": "x"}}}, operations) == outcome


@given(json_maps())
def test_no_fixes_make_no_patch(document: dict[str, Any]) -> None:
    operations, outcome = build(document, [])
    assert operations == ()
    assert outcome is document
