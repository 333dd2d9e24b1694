"""The hours of a usage report: they add up to its table, and what has no record is a gap."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.cost import calls
from webhook.reports import usage_hours, usage_report
from webhook.reports.usage_hours import MOST_POOLS, UsageHour
from webhook.reports.usage_report import UNLISTED, UnseenNode
from webhook.usage.account import KEPT_HOURS
from webhook.usage.document import NodeUsage, collapsed
from webhook.usage.record import HOUR, Amounts, Book, CardAmounts, CardKey, HolderKey

START = 490_008
"""Midnight."""


def node(name: str, hours: list[int], at: int = 48 * HOUR, pool: str = "shared", working: int = HOUR // 2) -> NodeUsage:
    """A node with a card of four slices, of which one is held, half of the time with work, in these hours."""
    cards, holders = {}, {}
    for hour in hours:
        cards[CardKey(START + hour, name, pool, "A10")] = CardAmounts(HOUR, 4 * HOUR, HOUR, 2 * HOUR, HOUR)
        key = HolderKey(START + hour, name, pool, "A10", "team", "Job/x", "p", "main")
        holders[key] = Amounts(HOUR, working, HOUR - working)
    return NodeUsage(name, START * HOUR, START * HOUR + at, collapsed(Book(cards, holders), START))


def of(rows: tuple[UsageHour, ...], pool: str = "") -> list[UsageHour]:
    return [each for each in rows if each.pool == pool]


@given(st.lists(st.lists(st.integers(0, 47), unique=True), min_size=1, max_size=3))
def test_hours_and_days_add_up_to_the_table(hours: list[list[int]]) -> None:
    nodes = [node(f"n{number}", each, pool=f"pool-{number % 2}") for number, each in enumerate(hours)]
    report = usage_report.sums(nodes, [], "namespace", {})
    table = {row.names[0]: row.amounts for row in report.rows}
    everything = of(report.hours)
    assert sum(sum(each.amounts[1:]) for each in everything) == sum(each.held for each in table.values())
    if not any(hours):
        assert usage_hours.plots(report.hours) == []
        return
    assert sum(each.amounts.working for each in everything) == table["team"].working
    assert sum(each.amounts.free for each in everything) == table["(free)"].held
    assert sum(each.amounts.unseen for each in everything) == table["(not seen)"].held
    pools = {each.pool for each in report.hours} - {""}
    for number, each in enumerate(everything):
        assert [*each.amounts[1:]] == [
            sum(of(report.hours, pool)[number].amounts[place] for pool in pools) for place in range(1, 6)
        ]
    day, month = usage_hours.plots(report.hours)[:2]
    assert (len(day.bars), len(month.bars)) == (24, 2)
    assert [bar.amounts for bar in day.bars] == [
        [getattr(each.amounts, name) / HOUR for name in usage_hours.PARTS] for each in everything[-24:]
    ]
    for place in range(5):
        assert round(sum(bar.amounts[place] for bar in month.bars) * HOUR) == sum(
            each.amounts[1 + place] for each in everything
        )


def test_time_without_a_record_is_a_gap_and_is_not_filled() -> None:
    one, other = node("one", [*range(24)], 24 * HOUR), node("other", [0, 1, 2], 24 * HOUR)
    rows = of(usage_hours.of_nodes([one, other], 0))[:24]
    assert [each.missing / each.whole for each in rows] == [0.0] * 3 + [0.5] * 21
    assert [sum(each.amounts[1:]) // HOUR for each in rows] == [8] * 3 + [4] * 21
    both = of(usage_hours.of_nodes([one, other], 2))[:24]
    assert [each.missing / each.whole for each in both] == [0.5] * 3 + [0.75] * 21
    assert [each.amounts for each in both] == [each.amounts for each in rows]


def test_a_node_without_an_agent_is_a_gap_of_all_pools_and_of_no_pool() -> None:
    nodes, unseen = [node("one", [*range(24)], 24 * HOUR)], [UnseenNode("node-7", "no agent runs there")]
    found = usage_report.sums(nodes, unseen, "namespace", {}).hours
    assert {each.missing / each.whole for each in of(found)[:24]} == {0.5}
    assert {each.missing for each in of(found, "shared")[:24]} == {0}
    unlisted = usage_report.sums(nodes, [UnseenNode(UNLISTED, "not known")], "namespace", {}).hours
    assert {each.missing for each in of(unlisted)[:24]} == {0}


def test_time_that_has_not_come_yet_is_no_gap() -> None:
    half = node("one", [0, 1], 90 * 60_000)
    (card,) = [key for key in half.book.hourly if key.hour == START + 1]
    short = half.book.hourly[card]._replace(counted=HOUR // 2)
    book = Book(half.book.cards, half.book.holders, half.book.hours, {**half.book.hourly, card: short})
    soon = NodeUsage("one", half.since, half.at, book)
    late = NodeUsage("two", half.since, half.at + 60_000, book)
    for nodes in ([soon], [soon, late]):
        assert [each.missing for each in of(usage_hours.of_nodes(nodes, 0))] == [0, 60_000 * (len(nodes) - 1)]


def test_an_agent_without_hours_is_a_gap() -> None:
    old = node("old", [*range(24)], 24 * HOUR)
    old = NodeUsage("old", old.since, old.at, Book(old.book.cards, old.book.holders, old.book.hours))
    assert usage_hours.of_nodes([old], 0) == ()
    rows = of(usage_hours.of_nodes([old, node("new", [*range(24)], 24 * HOUR)], 0))
    assert {each.missing / each.whole for each in rows[:24]} == {0.5}


def test_one_namespace_has_no_hours_because_they_are_of_all() -> None:
    assert usage_report.sums([node("one", [0])], [], "namespace", {}, "team").hours == ()


def test_a_lying_node_costs_linear_work_and_makes_no_more_rows() -> None:
    def lying(pools: int) -> list[NodeUsage]:
        found = node("one", [*range(48)])
        more = {
            key._replace(pool=f"p{number}"): each for number in range(pools) for key, each in found.book.hourly.items()
        }
        return [NodeUsage("liar", 0, 2**61, Book()), NodeUsage("one", 0, found.at, Book(hourly=more)), found]

    def cost(pools: int) -> int:
        nodes = lying(pools)[1:]
        return calls(lambda: usage_hours.of_nodes(nodes, 0))

    few, many = cost(50), cost(500)
    assert many < 12 * few
    rows = usage_hours.of_nodes(lying(500)[1:], 0)
    assert len(rows) <= (1 + MOST_POOLS) * KEPT_HOURS
    assert len(usage_hours.of_nodes(lying(3), 0)) <= (1 + MOST_POOLS) * KEPT_HOURS
