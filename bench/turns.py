"""Measures the benefit of turns on a card in a simulation, and the real delays of the agent and the thawer."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import contended
from bench.contended import TABLE_1
from bench.generator import CannotRun
from bench.runs import Figure, Result, figure
from bench.tables import markdown
from tests.agent.bed import Container, Node, node
from tests.support.card import state
from tests.support.card.library import CannotCompile, library
from tests.support.waiting import until
from webhook.agent.observe.cgroups import mount
from webhook.agent.turns.freezer import Freezer

COUNTS = (2, 3, 5, 10)
TIMES = 5
SILENCE = 3.0
"""Seconds that the thawer waits for a silent agent, which is its default."""


def run() -> Result:
    """Simulate and measure. Raises CannotRun without a C compiler or a writable cgroup v2."""
    taken = measured()
    rows = [(each.name, f"{each.median:.0f} ms", f"{each.max:.0f} ms") for each in taken]
    table = markdown(("by real freezes, on a pretended card", "median", "longest"), rows)
    return Result(f"{played()}\n\n{table}", taken)


def played() -> str:
    """Simulate, and write the table."""
    rows = []
    for count in COUNTS:
        ways = (contended.together, contended.managed, contended.one_after_the_other, contended.to_the_letter)
        ends = [way(count) for way in ways]
        rows.append((str(count), f"{TABLE_1[count]:.2f}", *(f"{each.last:.1f} / {each.mean:.1f}" for each in ends)))
    head = ("containers", "Table 1", "together", "FirstCome", "one after the other", "Algorithm 2 to the letter")
    table = markdown(head, rows)
    return (
        "Simulation, fitted to the study's Table 1 (RTX 3090, products of matrices of 13,312²): seconds until the last "
        f"one has ended / until each has on average.\n\n{table}"
    )


def measured() -> list[Figure]:
    """Measure the delays of real processes in real cgroups, and write the table. Times are in milliseconds."""
    root = mount()
    if root is None or not os.access(root, os.W_OK):
        raise CannotRun("turns need a cgroup v2 that this user may write to")
    try:
        library()
    except CannotCompile as error:
        raise CannotRun(str(error)) from error
    return [
        figure(what, "ms", [1e3 * each for each in measure()])
        for what, measure in (
            ("arrival to frozen, three containers run already", _arrivals),
            ("agent told to end, to 50 thawed", _ends),
            ("agent killed, to 50 thawed", _deaths),
            (f"agent stopped, to 50 thawed (silence {SILENCE:.0f} s)", _stops),
        )
    ]


@contextmanager
def _node(count: int) -> Iterator[Node]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        card = state.State(folder / "card")
        with node(folder, card, count) as one:
            yield one


def _wait(holds: Callable[[], bool]) -> float:
    begin = time.monotonic()
    until(holds, pause=0.001)
    return time.monotonic() - begin


def _thawed(one: Node) -> bool:
    return all((each.folder / "cgroup.freeze").read_text().strip() == "0" for each in one.here)


def _after(number: signal.Signals, *, thawer: bool) -> Iterator[float]:
    with _node(50) as one, ExitStack() as stack:
        if thawer:
            stack.enter_context(one.thawer(str(SILENCE)))
        for _ in range(TIMES):
            with one.agent() as agent:
                one.waits(49)
                agent.send_signal(number)
                yield _wait(lambda: _thawed(one))


def _ends() -> Iterator[float]:
    yield from _after(signal.SIGTERM, thawer=False)


def _deaths() -> Iterator[float]:
    yield from _after(signal.SIGKILL, thawer=True)


def _stops() -> Iterator[float]:
    yield from _after(signal.SIGSTOP, thawer=True)


def _arrivals() -> Iterator[float]:
    with _node(4) as one:
        *_, last = one.here
        slot = one.slots[-1]
        one.card.free(slot)
        with one.agent():
            until(lambda: sum(each.frozen for each in one.here[:3]) == 2)
            for _ in range(TIMES):
                one.card.hold(last.process.pid, 1000, sm=30)
                yield _wait(lambda last=last: _asked(last))  # type: ignore[misc]
                one.card.free(slot)
                until(lambda last=last: not _asked(last))  # type: ignore[misc]


def _asked(one: Container) -> bool:
    return bool(Freezer(one.folder.parents[2]).requested(f"/{one.folder.relative_to(one.folder.parents[2])}"))
