"""A misspelt word is matched with the word that was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.text.spelling import LONGEST, hint, nearest

KNOWN = ("maxReplicas", "minSliceMemory", "namespaces", "rules")


def test_the_hint_is_the_nearest_word_whatever_its_case() -> None:
    assert [nearest(word, KNOWN) for word in ("rule", "RULES", "namespace", "colour", "")] == [
        "rules",
        "rules",
        "namespaces",
        "",
        "",
    ]


def test_the_hint_is_at_least_as_similar_as_required() -> None:
    assert nearest("nvidia.com/gpus", ["nvidia.com/gpu"], 0.8) == "nvidia.com/gpu"
    assert nearest("nvidia.com/rdma", ["nvidia.com/gpu"], 0.8) == ""


@given(word=st.text(), known=st.lists(st.text()), more=st.text())
def test_nearest_ignores_order_and_truncates_long_words(word: str, known: list[str], more: str) -> None:
    known = list({each.casefold(): each for each in known}.values())
    found = nearest(word, known)
    assert found in (*known, "")
    assert found == nearest(word, reversed(known))
    long = word.ljust(LONGEST, "x")
    assert nearest(long, known) == nearest(long[:LONGEST] + more, known)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("minSlice", ", did you mean minSliceMemory?"),
        ("SPACE", ", did you mean namespaces?"),
        ("les", ", did you mean rules?"),
        ("ce", "; known are maxReplicas, minSliceMemory, namespaces, rules"),
        ("min", ", did you mean minSliceMemory?"),
        ("rul", ", did you mean rules?"),
        ("colour", "; known are maxReplicas, minSliceMemory, namespaces, rules"),
    ],
)
def test_a_part_of_a_word_means_that_word(word: str, said: str) -> None:
    assert hint(word, KNOWN) == said


def test_a_part_of_several_words_means_all_of_them_unless_they_are_many() -> None:
    assert hint("Policy", ["GPUSharingPolicy", "PolicyTest"]) == ", did you mean GPUSharingPolicy or PolicyTest?"
    assert hint("gpu", [f"gpu-{number}-of-the-many" for number in range(6)]).startswith("; known are ")
