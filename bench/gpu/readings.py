"""Measures NVML itself: how long a look takes, and the use it reports for loops that leave a card partly idle."""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.gpu.containers import Containers, Unwritable, containers
from bench.gpu.contention import STEP, rounds_of
from bench.gpu.nvml import Card
from bench.gpu.tables import Measured
from webhook.agent.observe.nvml import Cards

GAPS = (0, 1, 5, 10)
"""Percent of a step for which a loop waits on the host after each step."""
PROGRAMS, LOOKS, PERIOD = 3, 50, 0.1
"""Programs on the card, looks that are timed, and seconds between two looks at a loop."""
SECONDS = 5.0
"""How long a loop runs."""

HEAD = ("what", "least", "median", "most", "looks", "note")


def run(card: Card, seconds: float = 0.0) -> Measured:
    """Measure, and return the table. A loop runs for SECONDS unless another time is given. Raises Unavailable."""
    with containers(needed=False) as made:
        cards = Cards()
        try:
            rows: list[Sequence[str]] = [_look(made, cards)]
            try:
                rows += _loops(made, cards, seconds or SECONDS)
            except Unwritable as error:
                return Measured(HEAD, rows, notes=[f"no loops: {error}"])
        finally:
            cards.close()
    return Measured(HEAD, rows, notes=[f"driver {card.driver} lacks: {', '.join(sorted(cards.missing)) or 'nothing'}"])


def _look(made: Containers, cards: Cards) -> Sequence[str]:
    programs = [made.run(made.make()) for _ in range(PROGRAMS)]
    for program in programs:
        program.take(64)
    times = []
    for _ in range(LOOKS):
        begin = time.monotonic()
        cards.look()
        times.append(1e3 * (time.monotonic() - begin))
    for program in programs:
        program.end()
    return _row(f"a look at {PROGRAMS} programs (ms)", times, "{:.2f}".format, "")


def _loops(made: Containers, cards: Cards, seconds: float) -> list[Sequence[str]]:
    program = made.run(made.make())
    rounds, rows = rounds_of(program), list[Sequence[str]]()
    with ThreadPoolExecutor(1) as pool:
        for gap in GAPS:
            steps = max(round(seconds / STEP), 1)
            loop = pool.submit(program.ask, f"steps {steps} {rounds} {round(1e4 * STEP * gap)}")
            busy = list[int]()
            while not loop.done():
                (reading, *_) = cards.look()
                busy += [] if reading.busy is None else [reading.busy]
                time.sleep(PERIOD)
            if loop.result():
                raise Unwritable(f"the program on the card ended with error {loop.result()}")
            full = f"{sum(each == 100 for each in busy)} at 100 %"
            rows.append(_row(f"busy of a loop with a gap of {gap} % (%)", busy, "{:.0f}".format, full))
    return rows


def _row(what: str, values: Sequence[float], form: Callable[[float], str], note: str) -> Sequence[str]:
    if not values:
        return (what, "", "", "", "0", "not reported")
    middle = statistics.median(values)
    return (what, form(min(values)), form(middle), form(max(values)), str(len(values)), note)
