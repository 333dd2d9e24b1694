"""The memory of cards as bars, and who shares a card with whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import strangers
from webhook.agent.observe.view import UseState
from webhook.reports import top_report
from webhook.reports.top_report import NOT_REQUESTED, NodeNow, TopCard, TopRow
from webhook.ui import memory_view, parts
from webhook.ui.memory_view import CardMemory, Neighbours
from webhook.usage.document import ContainerNow, NodeUsage
from webhook.usage.scraped import CardNow, NodeScrape, UseNow

HOSTILE = f"<script>alert(1)</script>\"'><img src=x onerror=y>{strangers.HOSTILE}"
A10 = CardNow("GPU-0", "0", "NVIDIA A10", 10_000, 24_000, 500, 90)


def use(namespace: str, mib: int | None, cap: int | None, state: str = "within", card: str = "GPU-0") -> TopRow:
    return TopRow(UseNow(namespace, "p", "c", card, mib, cap, 0, state))


def test_the_word_is_the_agents() -> None:
    assert UseState.UNREQUESTED == NOT_REQUESTED


def test_strangers_are_what_was_not_admitted() -> None:
    rows = (use("a", 3000, 5000), use("b", None, 5000, "no process"), use("c", 700, None, NOT_REQUESTED))
    found = memory_view.memory(TopCard("n", A10, rows))
    assert found == CardMemory(24_000, 10_000, 3000, 1200, 5800)
    assert found.words == "24,000 MiB: 10,000 promised, 3,000 used, 1,200 by strangers, 5,800 other"
    widths = [(part.style, round(part.start), round(part.width)) for part in found.segments]
    assert widths == [("cap", 0, 125), ("stranger", 125, 50), ("reserve", 175, 242)]


def test_a_card_whose_memory_is_not_known_has_no_bar() -> None:
    found = memory_view.memory(TopCard("n", CardNow(""), (use("a", None, 5000, card=""),)))
    assert (found.words, found.mark) == ("memory unknown, 5,000 MiB promised", 0.0)
    assert {part.width for part in found.segments} == {0.0}


amounts = st.integers(0, 2**50)


@given(st.builds(CardMemory, *[amounts] * 5))
def test_no_part_of_a_bar_leaves_it(memory: CardMemory) -> None:
    ends = [part.start + part.width for part in memory.segments]
    assert all(0 <= part.start <= 1000 and part.width >= 0 for part in memory.segments)
    assert max(ends) <= 1000.001
    assert 0 <= memory.mark <= 1000


def test_neighbours_are_on_the_same_card() -> None:
    cards = [
        TopCard("n", A10, (use("a", 1, 1), use("b", 1, 1), use("a", 1, 1))),
        TopCard("n", CardNow("GPU-1"), (use("a", 1, 1, card="GPU-1"), use("b", 1, 1), use("c", 1, 1))),
        TopCard("n", CardNow(""), (use("d", 1, 1, card=""),)),
        TopCard("m", CardNow("GPU-2"), (use("e", 1, 1),)),
    ]
    assert memory_view.neighbours(cards) == (
        Neighbours("a", 2, (("b", 2), ("c", 1))),
        Neighbours("b", 2, (("a", 2), ("c", 1))),
        Neighbours("c", 1, (("a", 1), ("b", 1))),
        Neighbours("e", 1, ()),
    )


def container(pool: str, card: str = "GPU-0", namespace: str = "a") -> ContainerNow:
    return ContainerNow(namespace, "Job/p", "p", "c", card, pool, 1, 7_200_000, 3_600_000, 100, 5000, True)


def test_the_pool_of_a_card_is_that_of_the_record_or_of_the_nodes_labels() -> None:
    node = NodeNow("n", NodeScrape((A10, CardNow("GPU-1"))), NodeUsage("n", 0, 1, now=(container("shared"),)))
    cards = top_report.cards([node, NodeNow("m", NodeScrape((CardNow("GPU-2"),)))])
    found = memory_view.pools(cards, memory_view.by_record([node], {"n": "by label"}))
    assert [(pool.name, len(pool.cards), pool.tenants) for pool in found] == [
        ("by label", 1, 0),
        ("shared", 1, 1),
        ("", 1, 0),
    ]


@pytest.mark.parametrize("namespace", ["", HOSTILE])
def test_no_name_of_a_tenant_is_markup(namespace: str) -> None:
    evil = UseNow(HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1, 1, 1, HOSTILE)
    now = container(HOSTILE, HOSTILE, HOSTILE)._replace(pod=HOSTILE, container=HOSTILE)
    node = NodeNow(HOSTILE, NodeScrape((CardNow(HOSTILE, HOSTILE, HOSTILE, 1, 2, 0),), (evil,)))
    node = node._replace(usage=NodeUsage(HOSTILE, 0, 1, now=(now,)))
    cards = top_report.cards([node], "name", namespace)
    text = parts.cards([node], cards, [HOSTILE], {HOSTILE: HOSTILE}, namespace)
    assert "forged" in text
    assert "<script" not in text
    assert "<img" not in text
    assert not [character for character in text if not character.isprintable() and character != "\n"]


def test_what_is_idle_is_named() -> None:
    works = container("shared")._replace(pod="works", idle=1)
    node = NodeNow("n", None, NodeUsage("n", 0, 1, now=(container("shared"), works)))
    text = parts.cards([node], top_report.cards([node]), [], {}, "")
    assert text.count("1h 00m</td>") == 1 + 1, "once with its card, and once among the idle"


def test_a_bounded_number_of_containers_is_shown_and_the_others_are_counted() -> None:
    cards = [TopCard(f"n{number}", A10, tuple(use(f"t{each}", 1, 1) for each in range(30))) for number in range(100)]
    text = parts.cards([], cards, [], {}, "")
    assert "And 1,000 more containers" in text
    assert text.count(">within</td>") == parts.MOST_ROWS
    assert "3,000 used" in text, "the bar has the use of all"
