"""What a misspelt word was meant to be."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.text.spelling import LONGEST, nearest

KNOWN = ("maxReplicas", "minSliceMemory", "namespaces", "rules")


def test_the_most_alike_is_meant_and_case_does_not_count() -> None:
    assert [nearest(word, KNOWN) for word in ("rule", "RULES", "namespace", "colour", "")] == [
        "rules",
        "rules",
        "namespaces",
        "",
        "",
    ]


def test_no_less_alike_than_is_asked_for() -> None:
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
