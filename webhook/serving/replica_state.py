"""Keeps the state that a replica's workers share: the policies of each worker, and whether the replica may serve.

Any worker may answer on the health port, so each of them must know the state of all.
"""

import mmap

MOST = 8
"""The maximum number of policies in a replica. During a change three are needed: two in force, and the next one."""

_MAY_SERVE = 0


class ReplicaState:
    """The shared memory of a replica: the digests of each worker's policies, as 64-bit numbers.

    The first number says whether the replica may serve. It is never reset.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._numbers = memoryview(mmap.mmap(-1, 8 * (1 + MOST * workers))).cast("Q")

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self._workers

    def write(self, place: int, digests: frozenset[str]) -> None:
        """Set the policies that one worker has loaded: at most MOST digests of 16 hexadecimal digits."""
        numbers = [int(each, 16) for each in sorted(digests)]
        numbers += [0] * (MOST - len(numbers))
        for index, number in enumerate(numbers):
            self._numbers[1 + place * MOST + index] = number

    def everywhere(self) -> list[str]:
        """Return the sorted digests of the policies that every worker has loaded."""
        places = (self._numbers[1 + place * MOST : 1 + (place + 1) * MOST] for place in range(self._workers))
        shared = frozenset.intersection(*map(frozenset, places)) - {0}
        return sorted(f"{number:016x}" for number in shared)

    def begin(self) -> None:
        """Record that the replica may serve."""
        self._numbers[_MAY_SERVE] = 1

    @property
    def may_serve(self) -> bool:
        """Whether the replica may serve."""
        return self._numbers[_MAY_SERVE] == 1
