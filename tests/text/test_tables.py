"""Tables: what stands in one column is aligned, and what stands in a cell stays there."""

import pytest

from webhook.text import tables


def test_columns_are_as_wide_as_their_widest_cell_and_lines_have_no_blanks_at_their_end() -> None:
    rows = [("pool", "card", "MiB"), ("shared", "", "15360"), ("a", "A100", "")]
    assert [*tables.columns(rows, right=[2])] == [
        "pool    card    MiB",
        "shared        15360",
        "a       A100",
    ]
    assert [*tables.columns([])] == []


def test_rows_of_different_lengths_are_a_fault() -> None:
    with pytest.raises(ValueError, match="zip"):
        [*tables.columns([("a", "b"), ("c",)])]


def test_a_markdown_table_has_its_head_and_a_cell_cannot_end_early() -> None:
    assert [*tables.markdown(("a", "b"), [("1", tables.escaped("2 | 3"))])] == [
        "| a | b |",
        "| --- | --- |",
        "| 1 | 2 \\| 3 |",
    ]
