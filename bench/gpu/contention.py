"""Measures the benefit of turns on a real card: programs compute at once, in sequence, or in the agent's turns."""

import os
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.gpu.containers import Containers, Program, Unwritable, container_id, containers
from bench.gpu.nvml import Card
from bench.gpu.tables import Measured
from webhook.agent.agent import build
from webhook.agent.observe.cgroups import mount
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.view import NodeContainer
from webhook.agent.turns.freezer import Freezer
from webhook.agent.turns.ledger import Ledger
from webhook.agent.turns.turns import CardTurns
from webhook.gpu.pauses import Pause
from webhook.memory.admitted import Admitted
from webhook.policy.model import FIRST_COME, Contention, Over

COUNTS = (2, 3)
MIB = 256
STEP, ALONE = 0.02, 6.0
"""Seconds of a step, and of all steps of a program that runs by itself on the card."""
TRIES = 3
"""Times that a step is timed; the shortest counts."""
ENOUGH = 2**44
"""Rounds that take longer than a step on every card."""
RULES = Contention(FIRST_COME, longest=600)

HEAD = ("programs", "together", "one after the other", "FirstCome", "verdict")


def run(card: Card, counts: Sequence[int] = (), alone: float = 0.0, rules: Contention = RULES) -> Measured:
    """Measure, and return the table: seconds until the last program ended, and the mean over all. Raises Unwritable.

    The table is not good if the work took less than half of the intended time: then the card was not contended. Without
    a cgroup to write to, the agent is replaced by SIGSTOP. `counts` and `alone` are those above unless given.
    """
    del card  # the programs take the first one, too
    counts, alone = counts or COUNTS, alone or ALONE
    with containers(needed=False) as made:
        rounds = rounds_of(made.run(None))
    work, rows, good = f"steps {max(round(alone / STEP), 1)} {rounds}", list[Sequence[str]](), True
    for count in counts:
        with containers(needed=False) as made:
            together = _ends(_started(made, count), work)
        with containers(needed=False) as made:
            after = _in_turn(_started(made, count), work)
        with containers(needed=False) as made:
            programs = _started(made, count)
            with _managed(count, rules) if made.root else _by_signals(programs) as ended:
                managed = _ends(programs, work, ended)
        enough = after[0] >= alone / 2
        good &= enough
        gain = 1 - sum(managed) / sum(together)
        verdict = f"{100 * gain:+.0f} % on average" if enough else f"**too short: {after[0]:.2f} s for {alone:.2f} s**"
        times = (f"{max(ends):.1f} s / {sum(ends) / count:.1f} s" for ends in (together, after, managed))
        rows.append((str(count), *times, verdict))
    how = "by the agent" if made.root else "by SIGSTOP: no cgroup v2 that this user may write to"
    return Measured(HEAD, rows, good, [f"FirstCome {how}; a step has {rounds} rounds"])


def rounds_of(program: Program) -> int:
    """Return how many rounds of the kernel take one step of time on this card.

    The first launch is not timed, because it compiles the kernel.
    """
    program.ask("steps 1 1")
    rounds = 2**10
    while rounds < ENOUGH:
        times = []
        for _ in range(TRIES):
            begin = time.monotonic()
            program.ask(f"steps 1 {rounds}")
            times.append(time.monotonic() - begin)
        if min(times) > STEP:
            return max(round(rounds * STEP / min(times)), 1)
        rounds *= 2
    raise Unwritable("the card does all work at once")


def _started(made: Containers, count: int) -> list[Program]:
    """Start programs in containers. Each has its context, memory and kernel before any of them computes."""
    programs = [made.run(made.make()) for _ in range(count)]
    if not all(program.take(MIB) for program in programs):
        raise Unwritable("the card has not enough free memory")
    for program in programs:
        program.ask("steps 1 1")
    return programs


def _ends(programs: Sequence[Program], work: str, ended: Callable[[], None] = lambda: None) -> list[float]:
    """Run all programs at once, and return when each has ended. `ended` is called after each."""
    begin = time.monotonic()

    def end(program: Program) -> float:
        program.ask(work)
        taken = time.monotonic() - begin
        program.end()  # it leaves the card, so the next turn begins
        ended()
        return taken

    with ThreadPoolExecutor(len(programs)) as pool:
        return list(pool.map(end, programs))


def _in_turn(programs: Sequence[Program], work: str) -> list[float]:
    """Start each program when the one before it has ended, and return when each has ended."""
    begin, ends = time.monotonic(), list[float]()
    for program in programs:
        program.ask(work)
        ends.append(time.monotonic() - begin)
    return ends


@contextmanager
def _by_signals(programs: Sequence[Program]) -> Iterator[Callable[[], None]]:
    """Stop all programs but the first. Yields the function that lets the next one run."""
    waiting = deque(programs[1:])
    for program in waiting:
        os.kill(program.pid, signal.SIGSTOP)

    def ended() -> None:
        if waiting:
            os.kill(waiting.popleft().pid, signal.SIGCONT)

    try:
        yield ended
    finally:
        for program in waiting:
            os.kill(program.pid, signal.SIGCONT)


@contextmanager
def _managed(count: int, rules: Contention) -> Iterator[Callable[[], None]]:
    """Let the agent give turns to containers until the block ends. Yields a function that does nothing."""
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
            yield lambda: None
        finally:
            ended.set()
            thread.join()
            agent.close()
