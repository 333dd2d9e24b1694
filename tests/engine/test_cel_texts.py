"""Every text of a policy is a literal of CEL, whatever characters it has."""

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.conditions import compiled
from webhook.cel.write import text


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("a\nb\r")
@example("'\\\x00\x7f\u2028'")
def test_a_text_is_read_back_as_it_was(value: str) -> None:
    assert compiled(text(value)).eval(data={}).plain_value() == value
