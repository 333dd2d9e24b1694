"""The study's contention manager to the letter (its Algorithm 2), to show what its gaps do."""

from collections.abc import Sequence


def manage(count: int, use: int, memory: float, tasks: Sequence[str]) -> tuple[int, list[str]]:
    """Go once through the loop. Returns how many are let run, and which stand still.

    `tasks` are in the order of their PIDs; `use` is the card's in percent, and `memory` the part that is taken.
    """
    still: set[str] = set()
    if count > 0:  # 3
        if use == 100:  # 4
            still = {*tasks[count:]}  # 5, 6
        else:
            count, still = _let(count, use, memory, tasks)  # 7 to 12
    elif tasks:  # 13
        count = 1  # 14
        count, still = _let(count, use, memory, tasks)  # 15 to 22
    return count, [task for task in tasks if task in still]


def _let(count: int, use: int, memory: float, tasks: Sequence[str]) -> tuple[int, set[str]]:
    while use < 100 and count < len(tasks):  # 8, 18: the use that was read does not change within a sample period
        count += 1  # 9, 10 and 19, 20
        if memory > 0.95:  # 11, 21
            return count, {*tasks[count - 1 :]}  # 12, 22
    return count, {*tasks[count:]}
