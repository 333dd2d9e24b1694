"""The agent and the thawer as processes: killed, stopped, told to end. All that were frozen run, by real freezes."""

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.agent.bed import SLEEP, Container, Node, containers, node, writable
from tests.support.waiting import LONG, until
from webhook.agent.observe import cgroups
from webhook.agent.turns import thawer as thawers
from webhook.agent.turns.freezer import Freezer
from webhook.agent.turns.ledger import Ledger
from webhook.agent.turns.thawer import DEAD, LATE, OVERDUE, SILENT, UNSAFE, Thawer, thaw
from webhook.cli import main as cli
from webhook.cli.commands import agent

LOST = 15


@pytest.mark.thorough
def test_it_freezes_those_that_wait_and_lets_all_run_when_it_is_told_to_end(card: Any, tmp_path: Path) -> None:
    with node(tmp_path, card, 50) as one, one.agent() as agent:
        one.waits(49)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(LONG) == 0
        assert one.frozen == 0
        assert Ledger(one.run).read().until == {}


@pytest.mark.thorough
def test_when_the_agent_is_killed_or_stopped_the_thawer_lets_all_run(card: Any, tmp_path: Path) -> None:
    with node(tmp_path, card) as one, one.thawer():
        with one.agent() as agent:
            one.waits(2)
            agent.kill()
            one.waits(0)
        with one.agent() as agent:
            one.waits(2)
            agent.send_signal(signal.SIGSTOP)
            one.waits(0)
            agent.send_signal(signal.SIGCONT)  # it finds that they were thawed, lets them rest, and goes on
            until(lambda: bool(Ledger(one.run).beaten), "it looks again")
            assert agent.poll() is None
        assert {line["why"] for line in one.log("thaw") if line["message"] == "thawed"} == {DEAD, SILENT}


@pytest.mark.thorough
def test_when_both_are_killed_a_command_by_hand_or_a_new_start_lets_all_run(card: Any, tmp_path: Path) -> None:
    with node(tmp_path, card) as one:
        with one.agent() as agent:
            one.waits(2)
            agent.kill()
            agent.wait()
        assert one.frozen == 2
        with one.command("thaw") as by_hand:
            assert by_hand.wait(LONG) == 0
        assert one.frozen == 0
        with one.agent() as agent:
            one.waits(2)
            agent.kill()
            agent.wait()
        assert one.frozen == 2
        (one.folder / "broken").mkdir()
        (one.folder / "broken" / "pynvml.py").write_text("import time; time.sleep(600)")
        with _without_nvml(one):  # it hangs as it is imported
            one.waits(0)


def _without_nvml(one: Node) -> Any:
    words = ("agent", "--node", "n", "--kubeconfig", one.kubeconfig, "--policy", one.policy)
    return one.command(*words, PYTHONPATH=str(one.folder / "broken"))


@pytest.mark.thorough
def test_a_lost_card_lets_all_run(card: Any, tmp_path: Path) -> None:
    with node(tmp_path, card) as one, one.agent() as agent:
        one.waits(2)
        card.set(fault=LOST)
        one.waits(0)
        assert agent.poll() is None


@pytest.mark.thorough
def test_watching_alone_freezes_nobody_and_a_second_agent_says_that_it_is_one(card: Any, tmp_path: Path) -> None:
    with node(tmp_path, card) as one:
        with one.agent("--watch-only"):
            time.sleep(2.5)
            assert one.frozen == 0
            assert not one.run.exists()
        with one.agent() as first:
            one.waits(2)
            with one.agent():
                said = {"message": "no turns", "error": "another agent runs on this node"}
                until(lambda: any(said.items() <= line.items() for line in one.log("agent")), "it says so")
                assert any(line.get("thawed") == 2 for line in one.log("agent")), "it thaws whom the other one froze"
                one.waits(2)  # the first one lives, and goes on after their rest
                first.kill()
                first.wait()
                until(
                    lambda: any(
                        line.get("message") == "thawed the containers in the ledger" for line in one.log("agent")
                    )
                )


@pytest.mark.thorough
def test_a_stopped_thawer_stays_while_the_agent_lives(card: Any, tmp_path: Path) -> None:
    with node(tmp_path, card) as one, one.thawer() as thawer:
        with one.agent() as agent:
            one.waits(2)
            thawer.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert thawer.poll() is None
            agent.kill()
            one.waits(0)
        assert thawer.wait(LONG) == 0


def test_without_a_mount_that_can_be_written_to_nobody_is_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On version 1 there is none; a read-only one refuses root as well, which os.access tells."""
    monkeypatch.setattr(cgroups, "mount", lambda: None)
    assert agent._thawed(tmp_path / "run")[1] is None
    assert cli.main(["thaw", "--ledger", str(tmp_path)]) == 2
    assert "the root of cgroup v2 is not mounted" in capsys.readouterr().err
    monkeypatch.setattr(cgroups, "mount", lambda: tmp_path / "missing")
    assert agent._thawed(tmp_path / "run")[1] is None
    assert not (tmp_path / "run").exists()


def test_by_hand_it_says_whom_it_thawed(frozen: "Frozen", capsys: pytest.CaptureFixture[str]) -> None:
    one, book, _ = frozen
    book.write({one.path: 1e12})
    book.leave()
    assert cli.main(["thaw", "--ledger", str(book.folder)]) == 0
    assert capsys.readouterr().out == f"{one.path}: thawed\n"
    assert cli.main(["thaw", "--ledger", str(book.folder)]) == 0
    assert capsys.readouterr().out == "the ledger names no container\n"


def test_by_hand_without_a_ledger_it_says_so_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cgroups, "mount", lambda: tmp_path)
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "missing", tmp_path / "empty"):
        assert cli.main(["thaw", "--ledger", str(folder)]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err == f"no ledger in {folder}: has an agent run here? Give its folder with --ledger\n"
    assert [*tmp_path.rglob("*")] == [tmp_path / "empty"]


def test_by_hand_after_an_agent_that_froze_nobody_it_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So the agent's preStop succeeds."""
    monkeypatch.setattr(cgroups, "mount", lambda: tmp_path)
    book = Ledger(tmp_path / "run")
    assert book.take() == ""
    assert cli.main(["thaw", "--ledger", str(book.folder)]) == 0
    assert capsys.readouterr().out == "the ledger names no container\n"
    book.leave()


def test_by_hand_it_thaws_what_can_be_read_of_a_torn_ledger_and_says_that_it_is_torn(
    frozen: "Frozen", capsys: pytest.CaptureFixture[str]
) -> None:
    one, book, freezer = frozen
    book.write({one.path: 1e12})
    with (book.folder / "frozen").open("ab") as file:
        file.write(b"12.5 /kubep")
    book.leave()
    assert cli.main(["thaw", "--ledger", str(book.folder)]) == 1
    said = capsys.readouterr()
    assert said.out == f"{one.path}: thawed\n"
    assert said.err == "part of the ledger is invalid: skipped 1 line\n"
    assert not freezer.requested(one.path)


def test_by_hand_it_does_not_say_of_a_ledger_of_garbage_that_it_names_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cgroups, "mount", lambda: tmp_path)
    (tmp_path / "frozen").write_bytes(b"\x00\xff\nnothing\n")
    assert cli.main(["thaw", "--ledger", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "part of the ledger is invalid: skipped 2 lines\n")


# The thawer's looks

Frozen = tuple[Container, Ledger, Freezer]


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Frozen]:
    freezer = Freezer(writable())
    with containers(1, SLEEP) as (one,):
        book = Ledger(tmp_path / "run")
        assert book.take() == ""
        assert freezer.freeze([one.path]) == {}
        yield one, book, freezer
        book.leave()


def test_the_thawer_thaws_what_is_frozen_for_too_long(frozen: Frozen) -> None:
    one, book, freezer = frozen
    book.write({one.path: 100.0})
    now = 100.0
    thawer = Thawer(Ledger(book.folder), freezer, clock=lambda: now)
    assert thawer.look() == ({}, OVERDUE)
    now = 100.0 + LATE + 0.1
    assert thawer.look() == ({one.path: ""}, OVERDUE)
    assert thawer.look() == ({}, OVERDUE)


def test_the_thawer_goes_by_the_looks_of_the_agent_and_by_no_clock_of_the_day(
    frozen: Frozen,
) -> None:
    one, book, freezer = frozen
    book.write({one.path: 1000.0})
    now = 100.0
    thawer = Thawer(Ledger(book.folder), freezer, silence=3, clock=lambda: now)
    for _ in range(5):
        now += 2.9
        book.beat()
        assert thawer.look() == ({}, OVERDUE)
    now += 3.1
    assert thawer.look() == ({one.path: ""}, SILENT)


def test_the_thawer_empties_the_ledger_of_a_dead_agent_and_gives_the_lock_back(
    frozen: Frozen,
) -> None:
    one, book, freezer = frozen
    book.write({one.path: time.monotonic() + 1000})
    thawer = Thawer(Ledger(book.folder), freezer)
    assert thawer.look() == ({}, OVERDUE)
    book.leave()
    assert (thawer.look(), thawer.dead) == (({one.path: ""}, DEAD), True)
    assert book.read().until == {}
    assert book.take(tries=1) == ""


def test_the_thawer_leaves_alone_whom_the_ledger_does_not_name(frozen: Frozen) -> None:
    one, book, freezer = frozen
    book.write({})
    book.leave()
    assert Thawer(Ledger(book.folder), freezer).look() == ({}, DEAD)
    assert one.frozen


def test_by_hand_beside_a_living_agent_all_are_thawed_and_its_ledger_is_its_own(
    frozen: Frozen,
) -> None:
    one, book, freezer = frozen
    book.write({one.path: 1e12})
    assert thaw(Ledger(book.folder), freezer) == {one.path: ""}
    assert book.read().until == {one.path: 1e12}
    assert not freezer.requested(one.path)


def test_what_cannot_be_thawed_stays_in_the_ledger(frozen: Frozen) -> None:
    one, book, _ = frozen

    class Broken(Freezer):
        def thaw(self, path: str) -> str:
            return f"{path[:0]}Permission denied"

    book.write({one.path: 1e12})
    assert thaw(book, Broken(writable())) == {one.path: "Permission denied"}
    assert book.read().until == {one.path: 0.0}
    book.leave()
    assert Thawer(Ledger(book.folder), Broken(writable())).look() == ({one.path: "Permission denied"}, DEAD)
    assert book.read().until == {one.path: 0.0}


# A ledger that somebody else has


MOMENTS = {
    "no number": "soon",
    "nan": "nan",
    "infinite": "inf",
    "huge": "1e300",
    "negative": "-5",
    "long ago": "1",
    "beyond the longest pause": str(100 + thawers.LONGEST + LATE + 1),
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_a_moment_that_no_policy_would_give_has_passed(frozen: Frozen, moment: str) -> None:
    one, book, freezer = frozen
    (book.folder / "frozen").write_text(f"{moment} {one.path}\n")
    assert Thawer(Ledger(book.folder), freezer, clock=lambda: 100.0).look() == ({one.path: ""}, OVERDUE)
    assert not freezer.requested(one.path)


def test_the_longest_pause_is_that_of_the_policys_schema() -> None:
    schema = json.loads((ROOT / "webhook" / "policy" / "policy.schema.json").read_text("utf-8"))
    most = {each["maximum"] for each in _named(schema, "longestSeconds")}
    assert most == {thawers.LONGEST}


def _named(schema: Any, name: str) -> Iterator[Any]:
    if isinstance(schema, dict):
        if name in schema:
            yield schema[name]
        for each in schema.values():
            yield from _named(each, name)


def test_a_stranger_with_the_lock_who_touches_and_rewrites_the_ledger_keeps_nobody_frozen(frozen: Frozen) -> None:
    """The agent is dead. He has its lock, touches the file before each look, and puts the moment off each time."""
    one, book, freezer = frozen
    now = 100.0
    book.write({one.path: now + 20})
    thawer = Thawer(Ledger(book.folder), freezer, clock=lambda: now)
    looks = list[dict[str, str]]()
    while not any(looks):
        assert now < 130, "the agent would have let it run at 120"
        done, why = thawer.look()
        looks.append(done)
        now += 0.5
        (book.folder / "frozen").write_text(f"{now + 20} {one.path}\n")
        book.beat()
    assert (why, looks[-1], freezer.requested(one.path)) == (OVERDUE, {one.path: ""}, False)


def test_a_stranger_who_empties_the_ledger_keeps_nobody_frozen(frozen: Frozen) -> None:
    one, book, freezer = frozen
    book.write({one.path: 120.0})
    thawer = Thawer(Ledger(book.folder), freezer, clock=lambda: 100.0)
    assert thawer.look() == ({}, OVERDUE)
    book.write({})
    assert thawer.look() == ({one.path: ""}, OVERDUE)
    assert thawer.look() == ({}, OVERDUE)
    assert freezer.freeze([one.path]) == {}  # by somebody else, later
    assert thawer.look() == ({}, OVERDUE)


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_all_run_whose_ledger_lies_in_a_folder_that_is_not_the_agents_own(frozen: Frozen, mode: int) -> None:
    one, book, freezer = frozen
    book.write({one.path: 120.0})
    thawer = Thawer(Ledger(book.folder), freezer, clock=lambda: 100.0)
    assert thawer.look() == ({}, OVERDUE)
    book.folder.chmod(mode)
    assert thawer.look() == ({one.path: ""}, UNSAFE)


def test_a_later_agent_thaws_what_a_ledger_names_whose_lock_another_has(
    frozen: Frozen,
) -> None:
    one, book, freezer = frozen
    book.write({one.path: time.monotonic() + 1000})
    later, _ = agent._thawed(book.folder)
    assert (later.locked, freezer.requested(one.path)) == (False, False)


# A long time of everything at once


def resident(pid: int) -> int:
    """KiB of a process's memory."""
    line = next(each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1])


WARM, GROWTH = 20, 8 * 1024
"""Readings of a process's memory until all that it needs once is loaded, and KiB by which it may grow after them."""


@pytest.mark.thorough
def test_after_arrivals_ends_and_kills_of_the_agent_nobody_is_frozen_and_no_memory_has_grown(
    card: Any, tmp_path: Path
) -> None:
    """SOAK_SECONDS=1200 goes on for 20 minutes."""
    rng, end = random.Random(58), time.monotonic() + float(os.environ.get("SOAK_SECONDS", "20"))  # noqa: S311
    words = {"mode": "Turns", "turnSeconds": 1, "longestSeconds": 5, "restSeconds": 1}
    jobs: dict[int, tuple[Any, int]] = {}
    sizes, kills, seen = dict[int, list[int]](), 0, 0
    with node(tmp_path, card, 6, **words) as one, one.thawer() as thawer, ExitStack() as started:
        try:
            agent = started.enter_context(one.agent())
            while time.monotonic() < end or not (kills and seen and any(len(own) > WARM for own in sizes.values())):
                assert time.monotonic() < end + LONG
                number = rng.randrange(6)
                if number in jobs:
                    job, slot = jobs.pop(number)
                    card.free(slot)
                    job.kill()
                    job.wait()
                elif not one.here[number].frozen:  # a process that enters a frozen cgroup stands still before its start
                    job = one.here[number].run("sleep", "600")
                    jobs[number] = job, card.hold(job.pid, 500, sm=20)
                card.set(busy=rng.choice((0, 60, 100, 100, 100)))
                if rng.random() < 0.01 or (kills == 0 and time.monotonic() > end - 10):
                    kills += 1
                    agent.send_signal(rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)))
                    agent.wait(LONG)
                    one.waits(0)
                    agent = started.enter_context(one.agent())
                seen = max(seen, one.frozen)
                for process in (agent, thawer) if agent.pid in sizes or one.frozen else ():  # once all is loaded
                    sizes.setdefault(process.pid, []).append(resident(process.pid))
                time.sleep(rng.uniform(0.05, 0.3))
            agent.kill()
            one.waits(0)
        finally:
            for job, _ in jobs.values():
                job.kill()
                job.wait()
        grown = {pid: max(own) - max(own[:WARM]) for pid, own in sizes.items()}
        assert max(grown.values()) < GROWTH
