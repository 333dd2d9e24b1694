"""Runs work in threads of its own while a test changes something."""

import threading
from collections.abc import Callable
from typing import Self


class Stream:
    """Repeats each work in a thread of its own until the block ends."""

    def __init__(self, *works: Callable[[], None]) -> None:
        self.done = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(work,)) for work in works]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        for each in self._threads:
            each.join()

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self.done.is_set():
            work()
