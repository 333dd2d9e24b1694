"""Measures the benefit of turns on a real card: programs compute at once, in sequence, or in the agent's turns."""

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.gpu.containers import Containers, Program, Unwritable, container_id, containers
from bench.gpu.nvml import Card
from bench.gpu.tables import table
from webhook.agent.agent import build
from webhook.agent.observe.admitted import Admitted
from webhook.agent.observe.cgroups import mount
from webhook.agent.observe.pauses import Pause
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.view import NodeContainer
from webhook.agent.turns.freezer import Freezer
from webhook.agent.turns.ledger import Ledger
from webhook.agent.turns.turns import CardTurns
from webhook.policy.model import FIRST_COME, Contention, Over

COUNTS = (2, 3)
MIB = 256
STEP, ALONE = 0.02, 6.0
"""Seconds of a step, and of all steps of a program that runs by itself on the card."""
ENOUGH = 2**44
"""Rounds that take longer than a step on every card."""
RULES = Contention(FIRST_COME, longest=600)

HEAD = ("programs", "together", "one after the other", "FirstCome by the agent")


def run(card: Card, alone: float = ALONE, rules: Contention = RULES) -> tuple[str, bool]:
    """Return the table: seconds until the last has ended, and until each has on average. Raises Unwritable."""
    with containers() as made:
        rounds = _rounds(made.run(None))
        steps = max(round(alone / STEP), 1)
    work, rows = f"steps {steps} {rounds}", []
    for count in COUNTS:
        with containers() as made:
            together = _ends(made, count, work)
        with containers() as made:
            after = _in_turn(made, count, work)
        with containers() as made, _managed(count, rules):
            managed = _ends(made, count, work)
        rows.append(
            (str(count), *(f"{max(ends):.1f} s / {sum(ends) / count:.1f} s" for ends in (together, after, managed)))
        )
    return table(card, HEAD, rows), True


def _rounds(program: Program) -> int:
    """Return the rounds of a kernel that takes a step on this card."""
    rounds = 2**10
    while rounds < ENOUGH:
        begin = time.monotonic()
        program.ask(f"steps 1 {rounds}")
        if time.monotonic() - begin > STEP:
            return rounds
        rounds *= 2
    raise Unwritable("the card does all work at once")


def _started(made: Containers, count: int) -> list[Program]:
    """Start programs in containers; each takes memory, and so is on the card."""
    programs = [made.run(made.make()) for _ in range(count)]
    if not all(program.take(MIB) for program in programs):
        raise Unwritable("the card has not enough free memory")
    return programs


def _ends(made: Containers, count: int, work: str) -> list[float]:
    """Run all programs at once, and return when each has ended."""
    programs, begin = _started(made, count), time.monotonic()

    def end(program: Program) -> float:
        program.ask(work)
        ended = time.monotonic() - begin
        program.end()  # it leaves the card, so the next turn begins
        return ended

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(end, programs))


def _in_turn(made: Containers, count: int, work: str) -> list[float]:
    """Start each program when the one before it has ended, and return when each has ended."""
    programs, begin, ends = _started(made, count), time.monotonic(), list[float]()
    for program in programs:
        program.ask(work)
        ends.append(time.monotonic() - begin)
    return ends


@contextmanager
def _managed(count: int, rules: Contention) -> Iterator[None]:
    """Let the agent give turns to new containers until the block ends."""
    root = mount()
    if root is None:
        raise Unwritable("no cgroup v2")
    standing = Admitted(requests=True, pause=Pause(600, 0))
    known = {
        container_id(each): NodeContainer(ContainerName("bench", f"job-{each}", "main"), "", standing)
        for each in range(count)
    }
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder))
        ledger.take()
        turns = CardTurns(Freezer(root), ledger, lambda _: None, lambda: rules)
        agent = build(lambda: known, Over, lambda _: None, watch_only=False, turns=turns)
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(agent.round()):
                pass

        thread = threading.Thread(target=look, name="agent")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            agent.close()
