"""The pretended card itself: real processes take its memory, and it holds them to what the driver was told."""

from typing import Any

import pynvml
import pytest

from bench.gpu.containers import Containers
from tests.support.card.state import MIB, NO_RESERVED, State
from webhook.agent.observe import look, nvml
from webhook.agent.observe.nvml import Cards
from webhook.agent.observe.processes import Processes
from webhook.reports import use_report


def used() -> int | None:
    cards = Cards()
    (reading,) = cards.look()
    cards.close()
    return reading.used


def test_a_cards_memory_is_shared_and_comes_back_with_the_end_of_a_process(card: State, made: Containers) -> None:
    one, two = made.run(None), made.run(None)
    assert one.take(20000)
    assert not two.take(5000)
    assert two.take(4000)
    assert used() == 24000
    one.end()
    assert used() == 4000
    assert two.take(20000)
    assert two.ask("give") == 0
    assert used() == 4000
    assert (card.get("peak") >> 20, card.get("refused")) == (24000, 1)


def test_memory_is_told_by_process_and_so_by_container(card: State, made: Containers) -> None:
    first, second = made.make(), made.make()
    programs = made.run(first), made.run(first), made.run(second), made.run(None)
    for number, program in enumerate(programs):
        assert program.take(100 + number)
    cards = Cards()
    (seen,) = look.look(cards, Processes())
    cards.close()
    assert [use.mib for use in seen.uses] == [201, 102]
    assert [(each.process.pid, each.mib) for each in seen.host] == [(programs[3].pid, 103)]
    assert seen.unattributed == 103
    assert card.get("refused") == 0


@pytest.mark.parametrize("missing", [0, NO_RESERVED], ids=["a driver that names it", "an older driver"])
def test_the_memory_that_the_driver_keeps_counts_as_nobodys(card: State, made: Containers, missing: int) -> None:
    """An H200 showed 615 MiB outside any container while nobody used it."""
    card.set(reserved=615 * MIB, missing=missing)
    program = made.run(made.make())
    assert program.take(1000)
    cards = Cards()
    (seen,) = look.look(cards, Processes())
    cards.close()
    assert (seen.reading.used, seen.reading.errors) == (1615, ())
    assert (seen.reading.kept, seen.unattributed) == ((None, 615) if missing else (615, 0))
    line = ", 615 of them outside any container" if missing else ", 615 of them by the driver, 0 outside any container"
    assert line in use_report.table([seen], {})


def test_a_limit_of_the_driver_holds_all_processes_of_a_container_together_and_nobody_else(
    card: State, made: Containers
) -> None:
    card.set(limits=1)
    held, free = made.make(), made.make()
    one, two, other = made.run(held), made.run(held), made.run(free)
    cards = Cards()
    assert cards.limit(cards.whole[0], str(held), 5000) == ""
    assert one.take(3000)
    assert not two.take(2001)
    assert two.take(2000)
    assert not one.take(1)
    assert other.take(6000)
    one.end()
    assert two.take(3000)
    assert cards.limit(cards.whole[0], str(held), 7000) == ""
    assert two.take(2000)
    assert not two.take(1)
    assert cards.limit(cards.whole[0], str(held), None) == ""
    assert two.take(5000)
    cards.close()


def test_a_limit_also_holds_what_runs_in_cgroups_below_the_containers(card: State, made: Containers) -> None:
    card.set(limits=1)
    folder = made.make()
    assert folder is not None
    below = folder / "own"
    below.mkdir()
    made.folders.append(below)
    program = made.run(below)
    cards = Cards()
    assert cards.limit(cards.whole[0], str(folder), 1000) == ""
    cards.close()
    assert not program.take(1001)
    assert program.take(1000)


@pytest.mark.usefixtures("card")
def test_a_driver_that_does_not_tell_what_it_keeps_casts_no_doubt_on_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a card stops its turns, and makes all work on it unmeasured."""

    def refused(_: Any) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo_v2", refused)
    cards = Cards()
    (reading,) = cards.look()
    cards.close()
    assert (reading.errors, reading.kept, reading.used) == ((), None, 0)
