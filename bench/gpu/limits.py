"""Tests whether the driver of a real card limits a whole container, and no other container."""

from bench.gpu.containers import Program, containers
from bench.gpu.nvml import Card
from bench.gpu.tables import Measured
from webhook.agent.observe.nvml import Cards

LIMIT, CHUNK = 2048, 64
"""MiB of the limit for a whole container, and of each allocation."""

HEAD = ("limit (MiB)", "two processes took", "reported by NVML", "a neighbour took", "after the limit's end", "verdict")


def run(_: Card) -> Measured:
    """Return the table. It is good if the limit worked or is not supported. Raises Unwritable and Unavailable."""
    with containers() as made:
        cards = Cards()
        try:
            held, free = made.make(), made.make()
            cgroup = str(held)
            if why := cards.limit(cards.whole[0], cgroup, LIMIT):
                return Measured(HEAD, [(f"{LIMIT}", "", "", "", "", f"not tried: {why}")])
            try:
                one, two, other = made.run(held), made.run(held), made.run(free)
                took = fill((one, two))
                reported = _reported(cards, {one.pid, two.pid})
                neighbour = fill((other,))
            finally:
                cards.limit(cards.whole[0], cgroup, None)
            after = fill((one,), CHUNK)
        finally:
            cards.close()
    good = 0 < took <= LIMIT and neighbour > LIMIT and after == CHUNK
    verdict = "enforced, and for nobody else" if good else "**not enforced**" if took > LIMIT else "**wrong**"
    return Measured(HEAD, [(str(LIMIT), str(took), reported, str(neighbour), f"{after} more", verdict)], good)


def fill(programs: tuple[Program, ...], most: int = LIMIT + 8 * CHUNK) -> int:
    """Make programs allocate in turn until none gets more, with a maximum for each. Returns the MiB of each."""
    took = 0
    for _ in range(most // CHUNK):
        given = [program.take(CHUNK) for program in programs]
        took += CHUNK * sum(given)
        if not any(given):
            break
    return took


def _reported(cards: Cards, pids: set[int]) -> str:
    (reading, *_) = cards.look()
    return str(sum(each.mib or 0 for each in reading.processes if each.pid in pids))
