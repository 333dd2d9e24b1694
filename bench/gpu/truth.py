"""Tests whether the agent reports the use of a real card correctly, with programs of known sizes in cgroups."""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.gpu.containers import Program, containers
from bench.gpu.nvml import Card
from bench.gpu.tables import Measured
from webhook.agent.observe import look
from webhook.agent.observe.nvml import Cards
from webhook.agent.observe.processes import Processes

SIZES = ((256, 512), (1024,), (128,))
"""MiB that each process takes, by container; the last is in no container."""
GONE_SECONDS = 10.0
"""Seconds within which the memory of killed processes has to be gone."""

HEAD = ("processes in", "took (MiB)", "reported by NVML", "of it contexts", "seconds until gone", "verdict")


class Reported(NamedTuple):
    """The agent's report about a process: the id of its container (empty for none), and its MiB."""

    container: str
    mib: int


def run(_: Card) -> Measured:
    """Test, and return the table. It is good if every report was correct. Raises Unwritable and Unavailable.

    Without a cgroup to write to, reports are checked only by the PID.
    """
    with containers(needed=False) as made:
        cards, processes = Cards(), Processes()
        try:
            places = [*(made.make() for _ in SIZES[:-1]), None]
            groups = [[made.run(place) for _ in sizes] for place, sizes in zip(places, SIZES, strict=True)]
            for programs, sizes in zip(groups, SIZES, strict=True):
                if not all(program.take(size) for program, size in zip(programs, sizes, strict=True)):
                    return Measured(HEAD, [("", "", "", "", "", "**the card has not enough free memory**")], good=False)
            reported, rows, right = _reported(cards, processes), list[Sequence[str]](), True
            for place, programs, sizes in zip(places, groups, SIZES, strict=True):
                found = [reported.get(program.pid) for program in programs]
                known = sum(each.mib for each in found if each)
                name = place.name if place else ""
                good = all(each and each.container == name for each in found) and known >= sum(sizes)
                gone = _gone(cards, processes, programs)
                right &= good and gone is not None
                rows.append(
                    (
                        f"container {name[-4:]}" if place else "no container",
                        " + ".join(map(str, sizes)),
                        str(known),
                        str(known - sum(sizes)),
                        "never" if gone is None else f"{gone:.2f}",
                        "reported in its place" if good and gone is not None else "**wrong**",
                    )
                )
        finally:
            cards.close()
    notes = [] if made.root else ["no cgroup v2 that this user may write to: by the PID alone"]
    return Measured(HEAD, rows, right, notes)


def _reported(cards: Cards, processes: Processes) -> Mapping[int, Reported]:
    (seen, *_) = look.look(cards, processes)
    in_containers = {
        each.process.pid: Reported(use.place.container, each.mib or 0) for use in seen.uses for each in use.processes
    }
    return {**in_containers, **{each.process.pid: Reported("", each.mib or 0) for each in seen.host}}


def _gone(cards: Cards, processes: Processes, programs: list[Program]) -> float | None:
    """Kill programs, and return the seconds until no look shows them; None if that takes too long."""
    begin, pids = time.monotonic(), {program.pid for program in programs}
    for program in programs:
        program.end()
    while pids & _reported(cards, processes).keys():
        if time.monotonic() - begin > GONE_SECONDS:
            return None
        time.sleep(0.01)
    return time.monotonic() - begin
