"""The quick reader says what `goyaml.parse` says, or gives up."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from webhook.documents import goyaml, goyaml_quick, goyaml_writer
from webhook.documents.goyaml_composer import MAX_DEPTH
from webhook.documents.marks import Unreadable

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab1y~<?", max_size=3), inner, max_size=3),
    max_leaves=12,
)
BLANK = ["\n", "\n  ", "\t", "\r\n", "\u2028", "\ufeff", "#", " # x", "---\n", "...\n", "%YAML 1.2\n---\n"]
PLAIN = ["a", "b: ", "yes", "~", "0x1F", "1_0", "1e3", ".inf", "-0.0", "1.0", "2001-01-01", "é", "items:\n- a\n"]
MARKED = [
    "- ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "? ",
    "?",
    ": ",
    "&a ",
    "*a",
    "<<: ",
    "| \n  x",
    ">-\n  x",
    "'",
    '"',
    "!",
    "!!str ",
]
PIECES = st.sampled_from([*BLANK, *PLAIN, *MARKED])


def agrees(text: str) -> bool:
    """Whether the quick reader read a text, which then says the same as the other."""
    try:
        value, outline = goyaml_quick.parse(text, 3)
    except goyaml_quick.Peculiar:
        return False
    whole, mark = goyaml.parse(text, first_line=3, alone=True)
    assert repr(value) == repr(whole)  # True is no 1, and -0.0 no 0
    assert outline.line == mark.line
    for key in value:
        assert outline.at((key,)).line == mark.at((key,)).line
        if isinstance(value[key], list):
            lines = [each.line for each in mark.at((key,)).children]
            assert [each.line for each in outline.at((key,)).children] == lines
    return True


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_written_values_are_read_as_by_the_other_reader(value: dict[str, Any]) -> None:
    text = goyaml_writer.write(value)
    if goyaml.is_clean(text):
        agrees(text)


@given(st.lists(PIECES, max_size=14).map("".join))
@example("a: {b?: c}\n")
@example("a: 1\na: 2\n")
@example("a:\n- b\n- - c\n  - d: 1\nb: x\n")
def test_any_text_is_read_as_by_the_other_reader_or_not_at_all(text: str) -> None:
    try:
        goyaml.parse(text, alone=True)
    except Unreadable:
        with pytest.raises(goyaml_quick.Peculiar):
            goyaml_quick.parse(text, 1)
        return
    agrees(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\nb: *x\n",
        "a: !!str 1\n",
        "<<: {a: 1}\n",
        "a: 1\na: 2\n",
        "1: a\n",
        "yes: a\n",
        "a: .inf\n",
        "[a]: b\n",
        "- a\n",
        "a\n",
        "",
        "a: [b?]\n",
        "a: {b? : c}\n",
        "%YAML 1.2\n---\na: b\n",
        "a: b\n--- \nc: d\n",
        "a: [\n",
        f"a: {'[' * MAX_DEPTH}{']' * MAX_DEPTH}\n",
    ],
)
def test_the_quick_reader_gives_up_on_what_is_peculiar(text: str) -> None:
    with pytest.raises(goyaml_quick.Peculiar):
        goyaml_quick.parse(text, 1)


@pytest.mark.parametrize(
    "text",
    [
        (Path(__file__).parents[2] / "policies/sample.yaml").read_text("utf-8"),
        "{a: [b, {c: d}], e: 1.5}",
        'a: "é"\n\'b\': |-\n  x\n  y\nc: >\n  z\n"1": "yes"\nd: ["?"]\n',
        "%YAML 1.1\n---\na: b\n...\n",
        f"a: {'[' * (MAX_DEPTH - 1)}{']' * (MAX_DEPTH - 1)}\n",
    ],
)
def test_the_quick_reader_reads_what_is_not_peculiar(text: str) -> None:
    assert agrees(text)
