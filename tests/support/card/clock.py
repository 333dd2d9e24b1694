"""Simulates how the processes of a card share its time, as the study measured it (its Table 1, RTX 3090).

SIMULATION. Processes that have queued work take turns of 2 ms; each turn costs 147 µs when there is another process,
which follows from the table's kernel times. Queued work is done whether its process runs or is frozen. All times are in
microseconds.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.card.state import State

SLICE, SWITCH = 2000, 147
PERIOD = 166_667
"""NVML's sample period lies between 1/6 and 1 s (nvml.h)."""
TICK = 0.002
"""Seconds of the wall between two steps."""


class Clock:
    """Divides the time of one card among its processes."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._last = -1
        self._window, self._busy = 0, 0
        self._worked: dict[int, int] = {}
        state.start(1)

    def step(self, microseconds: int) -> None:
        """Advance the card's time."""
        left = microseconds
        while left > 0 and (due := self.state.due()):
            slot = next((each for each in due if each > self._last), min(due))
            shared = len(due) > 1
            work = min(due[slot], max(left - SWITCH, 1), SLICE) if shared else min(due[slot], left)
            self.state.work(slot, work)
            self._last = slot
            self._worked[slot] = self._worked.get(slot, 0) + work
            cost = work + SWITCH * shared
            self._busy += cost
            left -= cost
        self._window += microseconds
        self.state.start(microseconds)
        if self._window >= PERIOD:
            self._sample()

    def _sample(self) -> None:
        """Record for NVML how busy the card was, and each process's share."""
        stamp = time.time_ns() // 1000
        self.state.set(busy=min(100, round(100 * self._busy / self._window)))
        for slot, work in self._worked.items():
            self.state.sample(slot, min(100, round(100 * work / self._window)), stamp)
        self._window, self._busy, self._worked = 0, 0, {}


@contextmanager
def running(state: State) -> Iterator[None]:
    """Advance the card's time with the wall clock until the block ends."""
    clock, ended = Clock(state), threading.Event()

    def run() -> None:
        last = time.monotonic()
        while not ended.wait(TICK):
            now = time.monotonic()
            clock.step(round((now - last) * 1e6))
            last = now

    thread = threading.Thread(target=run, daemon=True, name="card")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
