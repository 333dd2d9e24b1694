"""Sets of names, prefixes and suffixes."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.catalog.gpu_requests import ANNOTATIONS
from webhook.catalog.names import Names

WORDS = st.text("ab.\n/", max_size=4)
PATTERNS = st.lists(WORDS.filter(bool) | WORDS.map(lambda word: f"*{word}b") | WORDS.map(lambda word: f"{word}*"))


@given(PATTERNS, PATTERNS, st.lists(WORDS))
def test_names_are_found_at_once_as_they_are_one_by_one(
    patterns: list[str], others: list[str], names: list[str]
) -> None:
    known = Names(patterns, other_than=others)
    assert known.among(names) == [name for name in names if name in known]
    assert known.among(dict.fromkeys(names)) == [name for name in dict.fromkeys(names) if name in known]


def test_a_suffix_is_found_at_the_end_of_a_name_only() -> None:
    names = ["a", "x.gpu-memory.limit", "x.gpu-memory.limit.y", "x.gpu-memory.limit\ny", "gpu-fraction"]
    assert ANNOTATIONS.among(names) == ["x.gpu-memory.limit", "gpu-fraction"]
