"""`slicewarden usage` and `slicewarden idle`: sums that reconcile with the cards, from agents and from files."""

import csv
import html
import io
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.node_agents import cluster
from tests.support.strangers import HOSTILE, harmful
from webhook.cli import main as cli
from webhook.reports import usage_report
from webhook.usage import document
from webhook.usage.account import AccountState, CardShare, HolderLook, NodeLook, advance
from webhook.usage.document import NodeUsage, collapsed, present
from webhook.usage.record import HOUR, Amounts, Book, CardAmounts, CardKey, SlicedCard
from webhook.usage.store import FILE, SavedAt, UsageStore

START = 490_000 * HOUR
A10 = SlicedCard("GPU-0", 4, "shared", "NVIDIA-A10")


def holder(name: str, share: CardShare, namespace: str = "team") -> HolderLook:
    return HolderLook(name, namespace, f"Job/{name}", name, "main", (share,))


BUSY, LAZY = CardShare("GPU-0", 1, True, 3000, 5000), CardShare("GPU-0", 1, False, 4000, 5000)


def state(*holders: HolderLook, cards: tuple[SlicedCard, ...] = (A10,), minutes: int = 60) -> AccountState:
    """A node that has looked once a second."""
    look, now = NodeLook(cards, holders), AccountState(0, START)
    for second in range(minutes * 60 + 1):
        now = advance(now, look, second * 1000, START + second * 1000)
    return now


def usage(found: AccountState, node: str = "node-1", **more: Any) -> NodeUsage:
    return NodeUsage(node, START, found.wall, collapsed(found.book, 0), present(found), **more)


@pytest.fixture(scope="module")
def four() -> AccountState:
    return state(*(holder(f"p{number}", LAZY if number else BUSY, f"team-{number % 2}") for number in range(4)))


def saved(folder: Path, *usages: NodeUsage) -> list[str]:
    words = []
    for each in usages:
        file = folder / f"{each.node}.json"
        file.write_text(document.write(each))
        words += ["--from", str(file)]
    return words


def test_four_pods_with_a_quarter_each_are_one_card(
    four: AccountState, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = saved(tmp_path, usage(four))
    assert cli.main(["usage", "--price", "NVIDIA-A10=2", *files]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[2:] == [
        "namespace  slice-hours  card-hours  working h  idle h  unmeasured h  peak MiB  mean MiB  cap MiB  cost",
        "team-0             2.0        0.50        1.0     1.0           0.0      4000      3500     5000  1.00",
        "team-1             2.0        0.50        0.0     2.0           0.0      4000      4000     5000  1.00",
    ]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("workload", [{"namespace": f"team-{n % 2}", "workload": f"Job/p{n}"} for n in (0, 2, 1, 3)]),
        ("pool", [{"pool": "shared"}]),
        ("card", [{"node": "node-1", "card": "GPU-0"}]),
    ],
)
def test_rows_are_what_was_asked_for(
    by: str, names: list[dict[str, str]], four: AccountState, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = saved(tmp_path, usage(four))
    assert cli.main(["usage", "--by", by, "-o", "json", *files]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [{key: row[key] for key in names[0]} for row in rows] == names
    assert sum(row["cardHours"] for row in rows) == pytest.approx(1.0)


def test_free_and_unseen_slices_have_rows_and_gaps_have_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = advance(state(holder("a", BUSY), minutes=30), NodeLook((A10,)), 3_600_000, START + 3_600_000)
    late = usage(state(minutes=6), "node-2", trouble="usage.sqlite: No space left on device")
    late = NodeUsage(late.node, START, START + HOUR, late.book, late.now, late.trouble)
    assert cli.main(["usage", "--by", "card", *saved(tmp_path, usage(found), late)]) == 0
    out, err = capsys.readouterr()
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert lines["node-1"][2:4] == ["0.5", "0.12"]
    assert lines["(free)"][1:3] == ["1.9", "0.47"]
    assert lines["(not"][2:4] == ["2.0", "0.50"]
    assert err.splitlines() == [
        "note: node-2: usage.sqlite: No space left on device",
        "note: not counted all the time: node-2 GPU-0: 0.1 of 1.0 h",
    ]


@pytest.mark.parametrize("command", ["usage", "idle"])
def test_no_text_of_an_agent_or_a_pod_is_a_command(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = (A10._replace(pool=HOSTILE, product=HOSTILE),)
    evil = HolderLook("e", HOSTILE, HOSTILE, HOSTILE, HOSTILE, (LAZY,))
    written = document.write(usage(state(evil, cards=cards), HOSTILE, trouble=HOSTILE))
    (tmp_path / "usage.json").write_text(written)
    for options in (
        ["-o", "table"],
        ["-o", "json"],
        *([["-o", "csv"], ["-o", "html"], ["--by", "card"]] if command == "usage" else ()),
    ):
        status = cli.main([command, *options, "--from", str(tmp_path / "usage.json")])
        out, err = capsys.readouterr()
        assert "forged" in out or status, err
        assert harmful(out, "") == []
        assert harmful(err, "") == []


def test_the_page_has_the_tables_numbers_and_a_bar_for_each_row(
    four: AccountState, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = advance(four, NodeLook((A10,)), four.at + 1000, four.wall + 1000)
    files = saved(tmp_path, usage(advance(found, NodeLook((A10,)), found.at + 4000, found.wall + 4000)))
    assert cli.main(["usage", "-o", "html", "--price", "2", *files]) == 0
    page = capsys.readouterr().out
    assert cli.main(["usage", "--price", "2", *files]) == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    assert [re.findall(r"<bdi>(.*)</bdi>|<td class=\"number\">(.*?)</td>", row) for row in _table(page)] == [
        [(line.split()[0], ""), *(("", cell) for cell in line.split()[1:])] for line in lines
    ]
    words = [html.unescape(each) for each in re.findall(r'role="img" aria-label="(.*?)"', page)]
    assert words[0] == "0.5 card-hours: 1.0 h working, 1.0 h idle, 0.0 h unmeasured"
    bars = [re.findall(r'<rect class="(\w+)" x="([\d.]+)" .*? width="([\d.]+)"', row) for row in _table(page)]
    assert bars[0] == [("cap", "0.00", "500.00"), ("context", "500.00", "500.00"), ("reserve", "1000.00", "0.00")]
    assert [each[0] for each in bars[-1]] == ["reserve"]


def test_the_page_and_the_json_have_what_became_of_each_hour(
    four: AccountState, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = saved(tmp_path, usage(four))
    assert cli.main(["usage", "-o", "json", *files]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["hours"][0] == {
        "pool": None,
        "hour": START,
        "workingSliceHours": 1.0,
        "idleSliceHours": 3.0,
        "unmeasuredSliceHours": 0.0,
        "freeSliceHours": 0.0,
        "unseenSliceHours": 0.0,
        "notRecorded": 0.0,
    }
    assert [(each["pool"], each["hour"]) for each in found["hours"]] == [(pool, START) for pool in (None, "shared")]
    assert cli.main(["usage", "-o", "html", *files]) == 0
    page = capsys.readouterr().out
    tables = [re.sub(r"<[^>]*>", " ", each).split() for each in re.findall(r"<table>.*?</table>", page, re.DOTALL)[1:]]
    assert len(tables) == 2, "the hours of all pools, and of one; no days"
    for table in tables:
        assert table[:7] == ["hour", "working", "idle", "unmeasured", "free", "not", "seen"]
        assert table[7:14] == ["2025-11-24", "16:00", "1.0", "3.0", "0.0", "0.0", "0.0"]
    assert cli.main(["usage", "-o", "html", "--namespace", "team-0", *files]) == 0
    assert "Hours and days" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["(free)", "(not seen)"])
def test_a_namespace_of_a_hostile_node_is_no_headline(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The row of what nobody held is chosen by what it is: any name comes from a node."""
    totals = []
    for namespace in ("team", name):
        found = state(holder("a", BUSY, namespace), minutes=30)
        files = saved(tmp_path, usage(advance(found, NodeLook((A10,)), 3_600_000, START + 3_600_000)))
        assert cli.main(["usage", "-o", "html", *files]) == 0
        totals.append(re.findall(r"<li><strong>([\d.]+)</strong> (.*?)</li>", capsys.readouterr().out))
    assert totals[0] == totals[1]
    assert totals[0][0][1] == "card-hours held"
    assert cli.main(["usage", *files]) == 0
    held, rest, _ = (re.split(" {2,}", line) for line in capsys.readouterr().out.splitlines()[3:])
    assert (held[0], rest[0]) == (name, "(free)")
    assert ("-" in held, "-" in rest) == (False, True)


def _table(page: str) -> list[str]:
    rows = page.partition("<tbody>")[2].partition("</tbody>")[0].split("<tr>")[1:]
    return [re.sub(r"</t[hd]>\s*", "</td>", row.replace("\n", " ")) for row in rows]


shares = st.builds(CardShare, st.sampled_from(("GPU-0", "GPU-1", "")), st.integers(0, 5), st.booleans(), st.just(5))


@given(
    st.lists(st.tuples(shares, st.sampled_from(("a", "b"))), max_size=6),
    st.integers(1, 8),
    st.sampled_from([*usage_report.GROUPS]),
)
def test_all_card_hours_are_those_of_the_cards(given: list[tuple[CardShare, str]], slices: int, by: str) -> None:
    """Slices of a card that is not known count twice: in their row, and as not seen."""
    cards = (A10._replace(slices=slices), SlicedCard("GPU-1", slices, "shared", "NVIDIA-A10"))
    look = NodeLook(cards, tuple(holder(str(n), share, space) for n, (share, space) in enumerate(given)))
    found = advance(advance(AccountState(0, START), look, 0, START), look, 4000, START)
    report = usage_report.sums([usage(found)], [], by, {})
    unknown = sum(each.held for key, each in found.book.holders.items() if not key.card) / slices
    assert sum(row.cards for row in report.rows) == pytest.approx(2 * 4000 + unknown)


def test_csv_is_read_by_others_and_holds_no_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = HolderLook("e", '=HYPERLINK("x")\x1b[2J', "", "p", "main", (BUSY,))
    assert cli.main(["usage", "-o", "csv", *saved(tmp_path, usage(state(evil, minutes=1)))]) == 0
    out = capsys.readouterr().out
    (first, _free) = csv.DictReader(io.StringIO(out))
    assert first["namespace"] == '\'=HYPERLINK("x")?[2J'
    assert float(first["sliceHours"]) == pytest.approx(1 / 60)
    assert cli.main(["usage", *saved(tmp_path, usage(state(evil, minutes=1)))]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_copy_of_a_nodes_file_is_read(four: AccountState, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = UsageStore(tmp_path / "usage")
    assert store.save(four.book, SavedAt("node-9", "boot", four.at, four.wall, (A10,))) == ""
    assert cli.main(["usage", "--by", "card", "-o", "json", "--from", str(tmp_path / "usage" / FILE)]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["node"], row["sliceHours"], row["cardHours"]) == ("node-9", 4.0, 1.0)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "[" * 100_000, "SQLite format 3\0 but no more"])
def test_an_unusable_file_is_one_error(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f").write_text(text)
    for command in ("usage", "idle"):
        assert cli.main([command, "--from", str(tmp_path / "f")]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)


def test_a_file_with_absurd_numbers_does_not_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = CardKey(0, "GPU-0", "p", "A10")
    huge = NodeUsage("n", 1, 2**61, Book({card: CardAmounts(0, 2**60, 2**60, 0, 0)}, {}))
    files = saved(tmp_path, huge)
    for form in ("table", "json", "csv", "html"):
        assert cli.main(["usage", "-o", form, "--price", "1", *files]) == 0
    assert "an unknown time" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--since", "36d"],
        ["--since", "0h"],
        ["--since", "1"],
        ["--since", "²h"],
        ["--since", "-1h"],
        ["--price", "much"],
        ["--price", "nan"],
        ["--price", "-1"],
        ["--price", "A=1", "--price", "A=2"],
        ["--by", "team"],
        ["--from", "x.json", "--context", "c"],
    ],
)
def test_wrong_words_are_refused(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.json").write_text(document.write(NodeUsage("n", 0, 0)))
    assert cli.main(["usage", *words]) == 2


# Idle containers


def test_containers_without_work_are_named_and_no_others(
    four: AccountState, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = saved(tmp_path, usage(four))
    assert cli.main(["idle", "-o", "json", *files]) == 0
    found = json.loads(capsys.readouterr().out)["containers"]
    assert {(each["pod"], each["idleSeconds"]) for each in found} == {("p1", 3600), ("p2", 3600), ("p3", 3600)}
    assert cli.main(["idle", "--after", "61m", *files]) == 0
    assert capsys.readouterr().out == "no container holds a slice without work for so long\n"
    assert cli.main(["idle", "--namespace", "team-0", *files]) == 0
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["team-0", "p2", "main", "Job/p2", "node-1", "GPU-0", "1", "1h", "00m", "4000"]
    ]
    assert err == "note: node-1: as of 2025-11-24 17:00 UTC\n"


def test_a_container_on_a_whole_card_is_not_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = state(holder("a", LAZY), cards=(A10._replace(slices=1),))
    assert cli.main(["idle", "-o", "json", *saved(tmp_path, usage(whole))]) == 0
    assert json.loads(capsys.readouterr().out)["containers"] == []


# A cluster


def test_every_agent_is_asked_and_nodes_that_do_not_answer_are_named(
    four: AccountState, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {
        "node-1": (200, document.write(usage(four)).encode()),
        "node-2": (404, b"only /metrics and /healthz\n"),
        "node-3": (403, b"{}"),
        "node-4": (200, document.write(usage(four, "node-1")).encode()),
        "node-5": (200, b"x" * (document.MOST_BYTES + 2)),
        "node-6": (503, b"no route"),
    }
    with cluster(tmp_path, answers, [*answers, "node-7"]) as options:
        assert cli.main(["usage", *options]) == 1
        out, err = capsys.readouterr()
        assert "team-0             2.0        0.50" in out
        assert err.splitlines() == [
            "not seen: node-7: no agent runs there",
            "not seen: node-2: HTTP 404: does the agent run with --usage?",
            "not seen: node-3: HTTP 403: you may not `get` pods/proxy in the namespace of the agents",
            "not seen: node-4: its agent answers for another node",
            "not seen: node-5: its agent's answer cannot be used: it has more than 8 MiB",
            "not seen: node-6: HTTP 503: does a NetworkPolicy keep the API server from the agent?",
        ]
        assert cli.main(["idle", "-o", "json", *options]) == 1
        found = json.loads(capsys.readouterr().out)
        assert {each["node"] for each in found["containers"]} == {"node-1"}
        assert len(found["unseenNodes"]) == 6


@pytest.mark.parametrize("command", ["usage", "idle", "top"])
def test_an_agent_that_never_ends_its_answer_is_given_up(
    command: str,
    four: AccountState,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webhook.cli.usages.LONGEST_SECONDS", 0.0)
    answer = {"node-1": (200, document.write(usage(four)).encode())}
    with cluster(tmp_path, answer, ["node-1"], answer) as options:
        assert cli.main([command, *options]) == 1
    assert capsys.readouterr().err == "not seen: node-1: the answer takes longer than 0 s\n"


def test_without_the_right_to_list_nodes_the_agents_are_still_asked(
    four: AccountState, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster(tmp_path, {"node-1": (200, document.write(usage(four)).encode())}, None) as options:
        assert cli.main(["usage", *options]) == 1
    out, err = capsys.readouterr()
    assert "team-1" in out
    assert err.startswith("not seen: (nodes): nodes without an agent are not known: ")


def test_amounts_of_another_shape_are_refused(tmp_path: Path) -> None:
    assert len(Amounts()) == 11, "the file's tables have these columns: raise its version when they change"
    with sqlite3.connect(tmp_path / "x") as file:
        file.execute("CREATE TABLE cards (a)")
    file.close()
    assert cli.main(["usage", "--from", str(tmp_path / "x")]) == 2
