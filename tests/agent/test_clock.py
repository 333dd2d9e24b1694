"""The time of the pretended card: as the study's Table 1 has it, and shared by real processes."""

import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from bench.gpu import contention, nvml
from bench.gpu.containers import Containers, Unwritable
from bench.gpu.tables import DRY
from tests import ROOT
from tests.support.card import clock
from tests.support.card.clock import Clock
from tests.support.card.state import State
from tests.support.waiting import until
from webhook.agent.observe.nvml import Cards

TABLE_1 = {1: 11.30, 2: 23.84, 5: 58.97, 10: 117.09}
"""Seconds until the last of so many containers has ended that run at once, by the study."""
START, COPY, KERNEL, END = 0.083, 0.106, 10.7946, 0.3185
"""Seconds of one container: of its host, of the one copy engine, of the card, and of its host again."""


class Queues(State):
    """Work of processes that are not there."""

    def __init__(self, file: Path, work: dict[int, int]) -> None:
        super().__init__(file)
        self.left = work

    def due(self) -> dict[int, int]:
        return {slot: left for slot, left in self.left.items() if left}

    def work(self, slot: int, microseconds: int) -> None:
        self.left[slot] -= microseconds

    def sample(self, slot: int, sm: int, stamp: int) -> None:
        pass


@pytest.mark.parametrize("count", TABLE_1)
def test_kernels_that_share_the_card_take_as_long_as_in_the_studys_table(tmp_path: Path, count: int) -> None:
    queues = Queues(tmp_path / "card", dict.fromkeys(range(count), round(KERNEL * 1e6)))
    one, steps = Clock(queues), 0
    while queues.due():
        one.step(20_000)
        steps += 1
    total = START + count * COPY + steps * 0.02 + END
    assert total == pytest.approx(TABLE_1[count], rel=0.01)


def test_work_of_real_processes_is_done_by_and_by_and_nvml_tells_whose(card: State, made: Containers) -> None:
    programs = made.run(made.make()), made.run(made.make())
    with clock.running(card):
        for program in programs:
            assert program.take(100)
            assert program.ask("work 60000000000") == 0  # a minute
        cards = Cards()
        shares = dict[int, int]()

        def told() -> bool:
            (reading,) = cards.look()
            shares.update({each.pid: each.sm for each in reading.processes if each.sm})
            halves = len(shares) == 2 and all(20 <= share <= 60 for share in shares.values())
            return halves and bool(reading.busy and reading.busy > 50)

        until(told, "both have used about half of the card")
        cards.close()


def test_contention_is_not_measured_where_a_card_takes_no_time(
    card: State, made: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    del made
    monkeypatch.setenv("LD_LIBRARY_PATH", card.environment["LD_LIBRARY_PATH"])
    found = nvml.first()
    with pytest.raises(Unwritable, match="does all work at once"):
        contention.run(found)
    pynvml.nvmlInit()  # the binding may end only what it began
    for _ in range(2):
        pynvml.nvmlShutdown()


@pytest.mark.thorough
def test_a_dry_run_of_contention_says_in_each_row_that_it_is_none(card: State, made: Containers) -> None:
    del made
    settings = "contention.COUNTS, contention.ALONE = (2,), 0.5; from bench.gpu.__main__ import main"
    program = f"import sys; from bench.gpu import contention; {settings}; sys.exit(main())"
    with clock.running(card):
        ran = subprocess.run(
            [sys.executable, "-c", program, "contention"],
            cwd=ROOT,
            env=card.environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    first, *lines = ran.stdout.splitlines()
    _, _, *rows = [line for line in lines if line.startswith("|")]
    assert first.startswith(f"**{DRY}**; Pretended Card")
    assert [row.split("|")[1:3] for row in rows] == [[" dry run ", " 2 "]]
    assert "a step has" in ran.stdout
