"""Tenants' values in messages."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.support.cost import peak
from webhook.text.words import shown


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
