"""Texts become JSON values with line numbers, as Kubernetes' own tools read them."""

import json
import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path as File
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.strategies import json_maps, json_values, mutilated_yaml
from webhook.documents import documents, files, goyaml_writer
from webhook.documents.documents import Document, read
from webhook.documents.goyaml import MOST_DIRECTIVES, first_end, parse
from webhook.documents.goyaml_composer import MAX_DEPTH
from webhook.documents.marks import Unreadable, UnsupportedText
from webhook.model import Path, Problem


def value_of(text: str) -> Any:
    return parse(text)[0]


def lines(documents: list[Document]) -> list[tuple[Any, int]]:
    return [(document.value, document.line()) for document in documents]


# Several documents


def test_documents_of_one_text_know_their_lines() -> None:
    text = "a: 1\nb:\n  - x\n  - q: z\n---\n\n# two\nc:\n  d: 2\n"
    (first, second), problems = read(text, "f.yaml")
    assert problems == []
    assert (first.value, second.value) == ({"a": 1, "b": ["x", {"q": "z"}]}, {"c": {"d": 2}})
    assert (first.file, first.index, second.index) == ("f.yaml", 0, 1)
    assert [first.line(path) for path in [(), ("a",), ("b",), ("b", 0), ("b", 1), ("b", 1, "q")]] == [1, 1, 2, 3, 4, 4]
    assert [second.line(path) for path in [(), ("c",), ("c", "d")]] == [8, 8, 9]


def test_a_place_that_is_missing_has_the_line_of_its_nearest_parent() -> None:
    (document,), _ = read("a: 1\nb:\n  c:\n    - d\n", "f.yaml")
    assert document.line(("b", "c", 7)) == 3
    assert document.line(("b", "x", "y")) == 2
    assert document.line(("a", "x")) == 1
    assert document.line(("b", "c", "text key in a list")) == 3


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029", "\n\ufeff"])
def test_libyaml_gets_few_directives(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """It compares each one with all before it."""
    text = end.join(["", *(f"%TAG !{number}! t" for number in range(MOST_DIRECTIVES)), "--- {kind: !1!a Pod}", ""])
    if "\ufeff" not in end:  # libyaml skips the mark, and go-yaml does not
        assert isinstance(parse(text.replace("!1!a ", "").removeprefix(end))[0], dict)
    more = f"%TAG !a! t{end}{text.removeprefix(end)}"
    monkeypatch.setattr(yaml, "CSafeLoader", lambda _: pytest.fail("libyaml reads it"))
    with pytest.raises(UnsupportedText) as refused:
        parse(more)
    assert "\ufeff" in end or "more than 100 lines begin with %" in str(refused.value)
    assert first_end(more) == math.inf


def test_a_percent_sign_within_a_line_is_no_directive() -> None:
    assert value_of("a:\n" + "  - 5%\n" * 500)["a"] == ["5%"] * 500


BROKEN = [
    ("a: [1\n", 2),
    ("a: b: c\n", 1),
    ("\n\na: 'x\n", 4),
    ("a: 1\na: 2\n", 2),
    ("a:\n\t- b\n", 2),
    ("x: *nowhere\n", 1),
    ("a: \x07\n", 1),
    ("a:\n  b: .inf\n", 2),
]


@pytest.mark.parametrize(("broken", "line"), BROKEN)
@pytest.mark.parametrize("before", ["", "first: 1\n", "first: 1\n---\n# nothing\n"])
def test_a_broken_document_spoils_no_other_and_has_its_line(broken: str, line: int, before: str) -> None:
    head = f"{before}---\n" if before else ""
    documents, problems = read(f"{head}{broken}---\nlast: 3\n", "f.yaml")
    assert [document.value for document in documents] == [*([{"first": 1}] if before else []), {"last": 3}]
    assert documents[-1].line() == f"{head}{broken}---\n".count("\n") + 1
    (problem,) = problems
    assert problem.file == "f.yaml"
    # The end of a text counts to the marker that ends it.
    assert abs(problem.line - head.count("\n") - line) <= (0 if line <= broken.count("\n") else 1)
    assert len({document.index for document in documents}) == len(documents)


NOTHING = [
    "",
    "\n",
    "---\n",
    "---",
    "# only a comment",
    "---\n---\n# x\n---\n",
    "~",
    "null\n",
    "---\n...\n",
    "\ufeff",
    " \n",
]


@pytest.mark.parametrize("text", NOTHING)
def test_a_text_without_values_has_no_documents(text: str) -> None:
    assert read(text, "f.yaml") == ([], [])


MARKERS = [
    ("--- \na: 1\n---\t\nb: 2\n", [({"a": 1}, 2), ({"b": 2}, 4)]),
    ("a: 1\n---#x\nb: 2\n", [({"a": 1}, 1), ({"b": 2}, 3)]),
    ("a: 1\n---\x0b\x0c\xa0\u2003\u2028# x\nb: 2\n", [({"a": 1}, 1), ({"b": 2}, 3)]),
    ("a: |\n  x\n---\nb: |\n  x", [({"a": "x\n"}, 1), ({"b": "x\n"}, 4)]),
    ('{"a": 1}\n\n---\nb: 2\n', [({"a": 1}, 1), ({"b": 2}, 4)]),
    ("--- # here\na: 1\n", [({"a": 1}, 2)]),
    ("a: ---\nb: '--- '\n", [({"a": "---", "b": "--- "}, 1)]),
    ("a: |\n  x\n  ---\n  y\n", [({"a": "x\n---\ny\n"}, 1)]),
    ("a: 1\n...\n---\nb: 2\n...\n", [({"a": 1}, 1), ({"b": 2}, 4)]),
    ("\ufeffa: 1\n---\nb: 2\n", [({"a": 1}, 1), ({"b": 2}, 3)]),
    ("a: 1\r\n---\r\nb:\r\n  c: 2\r\n", [({"a": 1}, 1), ({"b": {"c": 2}}, 3)]),
    ("- a\n---\n- b\n---\nplain\n", [(["a"], 1), (["b"], 3), ("plain", 5)]),
]


@pytest.mark.parametrize(("text", "found"), MARKERS)
def test_document_markers_are_told_from_text(text: str, found: list[tuple[Any, int]]) -> None:
    documents, problems = read(text, "f.yaml")
    assert problems == []
    assert lines(documents) == found


LOST = [
    "{a: 1}\n{b: 2}\n",
    "{a: 1}\nb: 2\n",
    "[a]\n- b\n",
    "a: 1\n...\nb: 2\n",
    "a: 1\r---\rb: 2\r",
    "---a: 1\n",
    "--- {a: 1}\n",
    "---#x\na: 1\n",
    "\xa0---\na: 1\n",
    "%YAML 1.1\na: 1\n",
]


@pytest.mark.parametrize("text", LOST)
def test_nothing_that_stands_in_a_text_is_passed_over_in_silence(text: str) -> None:
    documents, problems = read(text, "f.yaml")
    assert (documents, len(problems)) == ([], 1)


# JSON

JSON_TEXTS = [
    ('{"a": 1}', [({"a": 1}, 1)]),
    ('\ufeff\n {"a": 1}\n', [({"a": 1}, 2)]),
    ('{"a": 1}{"b": 2}\n\n{"c": 3} {"d": 4}', [({"a": 1}, 1), ({"b": 2}, 1), ({"c": 3}, 3), ({"d": 4}, 3)]),
    ('{"a": 1}\n---\n{"b": 2}\n', [({"a": 1}, 1), ({"b": 2}, 3)]),
    ('{\t"a":\t[\t1,\r\n\t2]\t}\r\n', [({"a": [1, 2]}, 1)]),
    ('{"a": "\\/ \\u00e9 \\ud83d\\ude00"}', [({"a": "/ é \U0001f600"}, 1)]),
    ("[]\n[1]", [([], 1), ([1], 2)]),
    ('{"": {"": null}}', [({"": {"": None}}, 1)]),
]


@pytest.mark.parametrize("file", ["f.json", "f.yaml", "-"])
@pytest.mark.parametrize(("text", "found"), JSON_TEXTS)
def test_json_is_read_whatever_the_file_is_called(text: str, found: list[tuple[Any, int]], file: str) -> None:
    documents, problems = read(text, file)
    assert problems == []
    assert lines(documents) == found
    assert [document.index for document in documents] == list(range(len(found)))


def test_places_in_json_have_lines() -> None:
    text = '\n{"x": 0}\n{\n\t"a": [\n\t\t1,\n\t\t{"b": 2}\n\t],\n\t"c": "d"\n}\n'
    _, document = read(text, "f.json")[0]
    assert [document.line(path) for path in [(), ("a",), ("a", 0), ("a", 1, "b"), ("c",)]] == [3, 4, 5, 6, 8]


def test_places_in_json_are_found_once_for_all_that_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"a": list(range(100))}, indent=1)
    (document,), _ = read(text, "f.json")
    parsed: list[str] = []

    def noted(text: str, **settings: Any) -> Any:
        parsed.append(text)
        return parse(text, **settings)

    monkeypatch.setattr("webhook.documents.documents.parse", noted)
    assert [document.line(("a", index)) for index in range(100)] == [index + 3 for index in range(100)]
    assert len(parsed) == 1


def places(value: Any, path: Path) -> Iterator[Path]:
    yield path
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(each, (*path, key))


@given(
    st.lists(json_maps(), min_size=1, max_size=4),
    json_maps(),
    st.sampled_from([partial(json.dumps, indent=1), json.dumps, goyaml_writer.write]),
)
def test_an_item_alone_has_the_lines_that_it_has_in_the_whole(
    items: list[Any], rest: dict[str, Any], write: Callable[[Any], str]
) -> None:
    text = write({**rest, "items": items, "kind": "List"})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(documents, "SMALL", 0)
        (whole,), problems = read(text, "f")
        parts = [whole.item(index) for index in range(len(items))]
    assert problems == []
    for index, (value, alone) in enumerate(zip(items, parts, strict=True)):
        assert alone.value == value
        for path in places(value, ("items", index)):
            assert alone.line(path) == whole.line(path), (text, path)


@pytest.mark.parametrize(
    "text",
    [
        "items:\n- &one {a: 1}\n- b: *one\n  c:\n    d: 2\nkind: List\n",
        "items: [{a: 1},\n  {b: 2}]\n",
        "items:\n-\n  a: 1\n-\n  b: 2\n",
        "x: &x [{a: 1}, {b: 2}]\nitems: *x\n",
    ],
)
def test_of_an_item_that_cannot_stand_alone_the_first_line_is_known(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "SMALL", 0)
    (whole,), _ = read(text, "f.yaml")
    for index, value in enumerate(whole.value["items"]):
        for path in places(value, ("items", index)):
            assert whole.item(index).line(path) in (whole.line(path), whole.line(("items", index)))


def test_emoji_escaped_in_json_cost_no_line_numbers() -> None:
    (document,), _ = read('{\n"a": "\\ud83d\\ude00",\n"b": 2\n}', "f.json")
    assert document.line(("b",)) == 3


BAD_JSON = [
    ('{"a": 1,\n "a": 2}', 2, "duplicate key"),
    ('{"a":\n NaN}', 1, "NaN"),
    ('{"a": -Infinity}', 1, "Infinity"),
    ('{"a": 1e999}', 1, ""),
    ('{"a": 1,\n 2}', 2, ""),
    ('{"a":\n1', 2, ""),
    ("[" * 100_000, 1, "deep"),
    ('{"a": ' + "9" * 5000 + "}", 1, ""),
    ("{a: 1}", 1, ""),
    ('{"a": "\n"}', 1, ""),
]


@pytest.mark.parametrize(("text", "line", "words"), BAD_JSON, ids=[text[:12] for text, *_ in BAD_JSON])
def test_what_is_not_json_is_a_problem_of_a_json_file(text: str, line: int, words: str) -> None:
    documents, (problem,) = read(text, "f.json")
    assert documents == []
    assert read(text, "F.JSON") == ([], [problem._replace(file="F.JSON")])
    assert (problem.file, problem.line) == ("f.json", line)
    assert words in problem.message
    assert "\n" not in problem.message


def test_json_before_a_broken_document_is_still_read() -> None:
    documents, (problem,) = read('{"a": 1}\n{"b": \n}', "f.json")
    assert lines(documents) == [({"a": 1}, 1)]
    assert problem.line == 3


# What a scalar is: the device plugin's reading (go-yaml v2, then JSON), not PyYAML's

SCALARS = [
    ("1e9", 1000000000),
    ("1e21", 1e21),
    ("1.5e-3", 0.0015),
    ("0o10", 8),
    ("010", 8),
    ("0x10", 16),
    ("-0x10", -16),
    ("0b100", 4),
    ("1_0", 10),
    ("+4", 4),
    ("4.0", 4),
    ("08", 8),
    (".5", 0.5),
    ("18446744073709551615", 2**64 - 1),
    ("18446744073709551616", 2**64),
    ("-9223372036854775808", -(2**63)),
    ("4:30", "4:30"),
    ("12:30:45", "12:30:45"),
    ("2024-01-01", "2024-01-01"),
    ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
    ("1.2.3", "1.2.3"),
    ("1e", "1e"),
    ("0xg", "0xg"),
    ("+", "+"),
    (".", "."),
    ("=", "="),
    ("'1'", "1"),
    ('"true"', "true"),
    ("'~'", "~"),
    ('""', ""),
    ("", None),
    ("~", None),
    ("Null", None),
    ("nULL", "nULL"),
    ("!!str 1", "1"),
    ("!!str", ""),
    ('!!int "4"', 4),
    ("!!int 4", 4),
    ("!!bool yes", True),
    ("!!null ''", None),
    ("!!float 4", 4),
    ("!!binary aGk=", "hi"),
    ("!custom x", "x"),
    ("!custom 1", "1"),
    ("! 1", "1"),
    ("! &x 1", "1"),
    ("&x ! 1", "1"),
    ("&x # c\n  ! 1", "1"),
    ("&x 1", 1),
    ("!", ""),
    ("! ''", ""),
    ("!!binary /w==", "\ufffd"),
    ("1e400", "1e400"),
    (".5e400", ".5e400"),
    (".1_0", ".1_0"),
    ("9" * 400, "9" * 400),
    ("0" * 99 + "7", 7),
    ("+18446744073709551615", 2**64),
    ("0x10000000000000000", "0x10000000000000000"),
    ("0b+11", 3),
    ("0b-11", -3),
    ("0o8", "0o8"),
    ("-0", 0),
    ("-0.0", -0.0),
    ("!!float 18446744073709551616", 2**64),
    ("!!timestamp 2024-01-01", "2024-01-01"),
    ("|\n  1", "1"),
    *((word, True) for word in ("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE")),
    *((word, False) for word in ("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE")),
    *((word, word) for word in ("yEs", "tRUE", "oN", "nO")),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_a_scalar_is_what_the_device_plugin_takes_it_for(text: str, value: Any) -> None:
    found = value_of(f"k: {text}")["k"]
    assert found == value
    assert type(found) is type(value)


KEYS = [
    *(
        ("18446744073709551616", "1.8446744e+19"),
        ("1e6", "1e+06"),
        ("1e39", ".inf"),
        ("1e-5", "1e-05"),
        ("0.10", "0.1"),
    ),
    *(
        ("0.10", "0.1"),
        ("-0.0", "-0"),
        ("123456.75", "123456.75"),
        ("1e3", "1000"),
        ("1e-60", "0"),
        ("16777217.0", "1.6777216e+07"),
    ),
    *(("1", "1"), ("1.5", "1.5"), ("y", "true"), ("No", "false"), ("0x10", "16"), ("2024-01-01", "2024-01-01")),
]


@pytest.mark.parametrize(("text", "key"), KEYS)
def test_a_key_is_the_text_that_json_would_have(text: str, key: str) -> None:
    assert value_of(f"{text}: v") == {key: "v"}


@pytest.mark.parametrize("text", ["k:\tv", "k: v\t", "k: v \t # c", "k:\n  - v\t"])
def test_tabs_may_stand_beside_values(text: str) -> None:
    assert value_of(text) in ({"k": "v"}, {"k": ["v"]})


REFUSED = [
    ("~: 1", "a key"),
    ("? [a]\n: 1", "a key"),
    ("? {a: b}\n: 1", "a key"),
    ("&x [a]: 1", "a key"),
    ("a: &x [1]\n*x : 2", "a key"),
    ("a: .inf", "JSON"),
    ("a: -.INF", "JSON"),
    ("a: .nan", "JSON"),
    ("%YAML 1.2\n---\na: 1", ""),
    ("a:\n\t b: 1", ""),
    ("\ta: 1", ""),
    ("a: @x", ""),
    ("a: 1\n\ufeffa: 2", "byte order mark"),
    ("a: é\n\ufeffb: 2", "byte order mark"),
    ("a: `x`", ""),
    ("a: !!binary '*'", "binary"),
    ("a: !!int abc", ""),
    ("a: !undefined!x 1", ""),
    ("a: *nowhere", "nowhere"),
    ("a: &a [*a]", "inside"),
    ("a: &a {b: {c: *a}}", "inside"),
    ("<<: 3", "<<"),
    ("<<: [{a: 1}, 2]", "<<"),
    ("a: 1\na: 2", "duplicate key"),
    ("{a: 1, b: {c: 1, c: 2}}", "duplicate key"),
    ("1: a\n'1': b", "duplicate key"),
    ("y: a\ntrue: b", "duplicate key"),
    ("a: \x00", "control"),
    ("a: '\x1b[31m'", "control"),
    ("a: \x7f", "control"),
    ("# \x08", "control"),
    ("a: \ud800", "control"),
    ('a: "\\ud800"', ""),
    ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "deep"),
    ("- " * (MAX_DEPTH + 1) + "x", "deep"),
    ("[" * 100_000, "deep"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED, ids=[repr(text[:20]) for text, _ in REFUSED])
def test_what_the_device_plugin_refuses_is_unreadable(text: str, words: str) -> None:
    with pytest.raises(Unreadable) as raised:
        parse(text)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_problem_quotes_no_long_text() -> None:
    name = "x" * 100_000
    for text in (f"a: *{name}", f"a: &{name} [*{name}]", f"{name}: 1\n{name}: 2", f"a: !!int {name}"):
        with pytest.raises(Unreadable) as raised:
            parse(text)
        assert len(str(raised.value)) < 500


def bomb(levels: int, width: int) -> str:
    rows = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels))]
    return "\n".join(rows)


def test_an_alias_bomb_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="aliases"):
        parse(bomb(9, 9))


def test_a_bomb_of_merges_is_unreadable() -> None:
    rows = ["a0: &a0 {x: 1}"]
    rows += [f"a{n}: &a{n} {{k{n}: [{', '.join([f'*a{n - 1}'] * 9)}], <<: *a{n - 1}}}" for n in range(1, 9)]
    with pytest.raises(Unreadable, match="aliases"):
        parse("\n".join(rows))


def test_an_alias_bomb_in_json_clothes_is_a_problem() -> None:
    documents, problems = read("{" + bomb(9, 9).replace("\n", ", ") + "}", "f.yaml")
    assert documents == []
    assert len(problems) == 1


def test_aliases_may_be_used_in_moderation() -> None:
    assert value_of("a: &x {b: [1]}\nc: *x") == {"a": {"b": [1]}, "c": {"b": [1]}}
    assert value_of("d: &z 2\ne: [*z, *z]") == {"d": 2, "e": [2, 2]}
    assert value_of("a: &x 1\nb: &x 2\nc: *x") == {"a": 1, "b": 2, "c": 2}


MERGES = [
    ("a: &a {x: 1, z: 2}\nb:\n  <<: *a\n  z: 3", {"x": 1, "z": 3}),
    ("a: &a {x: 1, z: 2}\nb:\n  z: 3\n  <<: *a", {"x": 1, "z": 2}),  # YAML would have 3; go-yaml v2 has the last
    ("a: 0\nb:\n  <<: [{x: 1, v: 2}, {v: 9, z: 3}]\n  w: 0", {"x": 1, "v": 2, "z": 3, "w": 0}),
    ("a: 0\nb: {'<<': {x: 1}}", {"<<": {"x": 1}}),
]


@pytest.mark.parametrize(("text", "merged"), MERGES)
def test_a_merge_key_puts_in_a_map_where_it_stands(text: str, merged: dict[str, Any]) -> None:
    assert value_of(text)["b"] == merged


def test_the_last_of_two_keys_wins_only_when_it_is_told_to() -> None:
    text = "a: 1\nb: 2\na:\n  c: 3\n"
    value, mark = parse(text, last_key_wins=True)
    assert value == {"a": {"c": 3}, "b": 2}
    assert mark.at(("a",)).line == 3
    assert mark.at(("a", "c")).line == 4
    with pytest.raises(Unreadable) as raised:
        parse(text)
    assert raised.value.line == 3


def test_nesting_up_to_the_limit_is_read() -> None:
    assert value_of("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None


def test_parsing_reads_the_first_document_only() -> None:
    assert value_of("a: 1\n---\n: [broken") == {"a": 1}
    assert value_of("---\n---\na: 1") is None


def test_lines_count_from_where_the_text_stands() -> None:
    _, mark = parse("a:\n  b: 1\n", first_line=10)
    assert mark.at(("a", "b")).line == 11
    with pytest.raises(Unreadable) as raised:
        parse("a: 1\na: 2\n", first_line=10)
    assert raised.value.line == 11


def test_a_line_within_a_block_scalar_is_a_line_of_the_file() -> None:
    text = (
        "kind: ConfigMap\ndata:\n  a: |\n    one\n    two\n  b: |-\n    three\n  c: 'four'\n  d: >\n    five\n    six\n"
    )
    (document,), _ = read(f"x: 0\n---\n{text}", "f.yaml")[0][1:], None
    assert [document.line(("data", "a"), line) for line in (0, 1, 2)] == [5, 6, 7]
    assert document.line(("data", "b"), 1) == 9
    assert document.line(("data", "c"), 1) == 10  # no block: the line where it starts


# For all inputs


@given(st.one_of(st.lists(json_values(), max_size=3), json_maps()))
def test_any_json_value_survives_json(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=2, ensure_ascii=False), json.dumps(value, indent="\t")):
        documents, problems = read(text, "f.json")
        assert problems == []
        assert [document.value for document in documents] == [value]


@given(json_values())
def test_any_json_value_survives_quoted_yaml(value: Any) -> None:
    # A key of the shape ? "…" : is no simple key, but a scalar all the same.
    assert value_of(yaml.safe_dump(value, default_style='"', allow_unicode=True)) == value


WORDS = st.sampled_from(["plain", "two words", "a-b", "x/y.z", "true story", "kein", "ü", "a: b", "# c", "- d", ""])


@given(
    st.recursive(
        st.one_of(WORDS, st.integers(-(2**63), 2**64 - 1), st.booleans(), st.none(), st.floats(-1e300, 1e300)),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)),
        max_leaves=12,
    ),
    st.booleans(),
)
def test_plain_values_survive_yaml_in_block_and_flow_style(value: Any, flow: bool) -> None:
    assert value_of(yaml.safe_dump(value, default_flow_style=flow)) == value


@given(json_values())
def test_json_with_many_lines_marks_every_value_on_its_own(value: Any) -> None:
    text = json.dumps({"before": 1, "value": value, "after": [2]}, indent=1)
    (document,), _ = read(text, "f.json")
    rows = text.split("\n")
    assert document.line(("before",)) == 2
    assert document.line(("value",)) == 3
    assert document.line(("after", 0)) == len(rows) - 2


@settings(max_examples=3 * settings().max_examples)
@given(st.one_of(st.text(), mutilated_yaml()), st.booleans())
@example("\ud800", False)
@example("a\u2028---\u2029b: 1", False)
@example("? ? : :", False)
@example("\x85a: 1\x85\x85b: [", False)
@example("!!binary é", False)
@example("!<> x", False)
@example("--- !!int\n", False)
def test_any_text_is_read_or_unreadable(text: str, last_key_wins: bool) -> None:
    error = None
    try:
        value, mark = parse(text, last_key_wins=last_key_wins)
    except Unreadable as raised:
        error = raised
    if error is None:
        assert mark.line >= 1
        json.dumps(value, allow_nan=False)
    else:
        assert error.line >= 1
        assert str(error)


@given(st.one_of(st.text(), mutilated_yaml()), st.sampled_from(["f.yaml", "f.json"]))
@example('{"a": 1e999}', "f.json")
@example("---\n?\n0\x85", "f.yaml")
def test_reading_any_text_gives_json_values_and_lines_within_it(text: str, file: str) -> None:
    documents, problems = read(text, file)
    last = len(f"{text}x".splitlines()) + 1  # a text breaks off in the line after its last, which kubectl's reader ends
    for document in documents:
        json.dumps(document.value, allow_nan=False)
        assert 1 <= document.line() <= last
    for problem in problems:
        assert 1 <= problem.line <= last


def test_a_mapping_mark_knows_its_children() -> None:
    _, mark = parse("a:\n  - b\n  - c: d\n")
    assert mark.at(("a", 1, "c")).line == 3
    assert mark.at(("a", 1, "c", "deeper", 3)).line == 3
    assert mark.at(("nowhere",)).line == 1


@pytest.mark.parametrize("text", ["y", "No", "on", "1e3", "0o7", "1_000", ".5", "~", "", "0b+1", "12", "a", "12:30:45"])
def test_a_text_is_written_so_that_it_is_read_as_one(text: str) -> None:
    assert parse(goyaml_writer.write({text: [text]}))[0] == {text: [text]}


COMMANDS = st.lists(
    st.sampled_from(
        ("::error::", "##[x]", "##vso[x]", "##", "[", "\n", " ", "\t", "\u2028", "a", "a " * 520, '"', "\\", "'")
    )
).map("".join)


@given(COMMANDS)
@example("a " * 520 + "::error::x")
@example("##[add-mask]x")
def test_a_build_server_finds_no_command_in_what_is_written(text: str) -> None:
    value = {"k": {text: [text, {"m": text}]}}
    written = goyaml_writer.write(value)
    assert not re.search(r"(^|[\n\r\x85\u2028])\s*::|##\w*\[", written)
    assert parse(written)[0] == value


@pytest.mark.parametrize(
    ("end", "seen"),
    [
        ("\udcff", True),
        ("\udcc3x", True),
        ("\udcc3", False),  # the file ends within the character, and go-yaml asks for no more
        ("\udce2\udc82", False),
        ("\udce2\udc82x", True),
        ("\udcf0\udc9f\udc98", False),
        ("\x07", True),
    ],
)
@pytest.mark.parametrize(("filler", "near"), [(0, True), (2000, False)])
def test_bytes_after_the_first_document_count_only_where_go_yaml_reads_them(
    end: str, filler: int, *, seen: bool, near: bool
) -> None:
    text = f"a: 1\n---\n#{'x' * filler}\n{end}"
    if seen and near:
        with pytest.raises(Unreadable, match=r"only text in UTF-8|control characters"):
            parse(text)
    else:
        assert parse(text)[0] == {"a": 1}


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_line_of_an_item_is_known_without_a_parse_of_its_marks(form: str) -> None:
    value = {
        "apiVersion": "v1",
        "items": [{"kind": "Pod", "text": "x" * documents.SMALL}, {"kind": "Pod"}],
        "kind": "List",
    }
    text = json.dumps(value, indent=1) if form == "json" else goyaml_writer.write(value)
    (document,), _ = read(text, "f")
    for index in range(2):
        item = document.item(index)
        assert item.line(("items", index)) == document.line(("items", index)) == item.source.mark.line
    fresh = read(text, "f")[0][0].item(1)
    assert fresh.line(("items", 1)) > 1
    assert "mark" not in vars(fresh.source)


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\n---\nb:\n- c\n",
        '{"a": 1}\n{"b":\n [2]}\n',
        "[{op: add}]",
        "a: [\n",
        '{"a": \n',
        "---\na: 1\n--- b\n",
        "{{ x }}",
    ],
)
def test_a_text_within_a_file_begins_in_its_line(text: str) -> None:
    there = documents.read(text, "f", 7)
    padded = documents.read("\n" * 6 + text, "f")
    assert [(each.value, each.first_line, each.line()) for each in there[0]] == [
        (each.value, each.first_line, each.line()) for each in padded[0]
    ]
    assert there[1] == padded[1]


@pytest.mark.parametrize(
    "text",
    [
        "args: [a:]",
        'a: "\n\ufeffb"',
        f"a: &a {['x'] * 1_000}\nb: {['y'] * 4_000}\nc: [{', '.join(['*a'] * 230)}]",
        '{"a": ' + "[" * 1_200 + "]" * 1_200 + "}",
        '{"a": 1e999}kind: Pod\nb: c\n# %{',
        "a: " + "[" * 120 + "]" * 120,
    ],
    ids=["colon", "mark", "aliases", "levels of JSON", "number", "levels"],
)
def test_what_only_this_reader_refuses_is_no_template(text: str, tmp_path: File) -> None:
    """kubectl creates the object of such a file, so it is an error, whatever a comment says."""
    if text.startswith("{"):
        texts = {"pod.json": f"{text}\n", "pod.yaml": f"{text}\n"}
    else:
        texts = {"pod.yaml": f"{text}\n# %{{\n", "pod.json": f"{{{text.replace(chr(10), ', ')}\n}}\n# %{{\n"}
    for name, written in texts.items():
        file = tmp_path / name
        file.write_text(written, "utf-8")
        (problem,) = [each for each in files.read(str(file)) if isinstance(each, Problem)]
        assert problem.message.endswith(documents.READ)


def test_long_broken_json_is_not_read_as_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump of a cluster has 40 MB. What is short is read, to say whether kubectl finds an object in it."""
    monkeypatch.setattr(documents, "LONG", 100)
    for size, said in ((50, ""), (200, documents.READ)):
        _, (problem,) = read('{"a": "' + "x" * size, "f.json")
        assert problem.message == f"not JSON: Unterminated string starting at{said}"
    _, (problem,) = read("{a: b}", "f.json")
    assert problem.message.endswith(documents.READ)
