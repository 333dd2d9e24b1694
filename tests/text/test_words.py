"""Tenants' values in messages."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.support.cost import calls, peak
from webhook.text.words import MOST, line, one_line, shown


@given(st.text() | st.text(alphabet='"\\\x00\ud800é😀a', min_size=70, max_size=90))
def test_a_long_text_is_cut_as_it_would_be_after_it_was_written(text: str) -> None:
    whole = json.dumps(text)
    for written, quotes in ((whole, True), (whole[1:-1], False)):
        cut = written if len(written) <= 80 else f"{written[:77]}..."
        assert "##" in cut or shown(text, quotes=quotes) == cut


def test_of_a_long_text_only_the_part_that_is_shown_is_read() -> None:
    """Many findings may show the same text."""
    long = "a" * 10_000_000
    assert peak(lambda: shown(long)) < 10_000


@given(st.text() | st.text(alphabet="a\x7f\x00 :#[\n", min_size=MOST - 20, max_size=MOST + 20))
def test_a_long_message_is_cut_as_it_would_be_after_it_was_made_printable(text: str) -> None:
    whole = one_line(text[: MOST + 1])
    assert line(text) == (whole if len(whole) <= MOST else f"{whole[: MOST - 3]}...")
    assert len(line(text)) <= MOST


def test_of_a_message_only_the_part_that_is_kept_is_made_printable() -> None:
    """A name of 50,000 control characters, in a finding for each of 400 templates, took a minute."""
    assert calls(lambda: line("\x7f" * 100_000)) == calls(lambda: line("\x7f" * 2 * MOST))
