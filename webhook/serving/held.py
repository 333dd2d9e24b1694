"""What the workers of a replica hold: policies that all have loaded, and whether the replica may begin to serve.

It is in memory that all workers share, since the health port is answered by any one of them.
"""

import mmap

MOST = 8
"""Policies that a replica holds at most. Two are in force at a time, and one more is on its way."""

_MAY_SERVE = 0


class Held:
    """The shared memory of a replica: for each worker the digests that it holds, as numbers of 64 bits.

    The first number says whether the replica may serve: once it may, it may for as long as it runs.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._numbers = memoryview(mmap.mmap(-1, 8 * (1 + MOST * workers))).cast("Q")

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self._workers

    def write(self, place: int, digests: frozenset[str]) -> None:
        """Set what the worker of a place holds: at most MOST digests of 16 hexadecimal digits."""
        numbers = [int(each, 16) for each in sorted(digests)]
        numbers += [0] * (MOST - len(numbers))
        for index, number in enumerate(numbers):
            self._numbers[1 + place * MOST + index] = number

    def everywhere(self) -> list[str]:
        """Return the digests that every worker holds, sorted."""
        places = (self._numbers[1 + place * MOST : 1 + (place + 1) * MOST] for place in range(self._workers))
        shared = frozenset.intersection(*map(frozenset, places)) - {0}
        return sorted(f"{number:016x}" for number in shared)

    def begin(self) -> None:
        """Say that the replica may serve."""
        self._numbers[_MAY_SERVE] = 1

    @property
    def may_serve(self) -> bool:
        """Whether the replica may serve."""
        return self._numbers[_MAY_SERVE] == 1
