"""Tests whether the driver of a real card limits a whole container, and no other container."""

from bench.gpu.containers import Program, containers
from bench.gpu.nvml import Card
from bench.gpu.tables import Measured
from webhook.agent.observe.nvml import Cards

LIMIT, CHUNK = 2048, 64
"""MiB of the limit for a whole container, and of each allocation."""

HEAD = ("limit (MiB)", "two processes took", "reported by NVML", "a neighbour took", "after the limit's end", "verdict")

UNTRIED = "not tried: NVIDIA's hook, which sets the limit before a container starts, and MPS with `memacct`"


def run(_: Card) -> Measured:
    """Test, and return the table. It is good if the limit worked or is not supported.

    Raises Unwritable and Unavailable.
    """
    with containers() as made:
        cards = Cards()
        try:
            held, free = made.make(), made.make()
            cgroup = str(held)
            if why := cards.limit(cards.whole[0], cgroup, LIMIT):
                return Measured(HEAD, [(f"{LIMIT}", "", "", "", "", f"not tried: {why}")], notes=(UNTRIED,))
            try:
                one, two, other = made.run(held), made.run(held), made.run(free)
                took = fill((one, two))
                reported = _reported(cards, {one.pid, two.pid})
                rounding = _rounding(cards, cgroup)
                neighbour = fill((other,))
            finally:
                cards.limit(cards.whole[0], cgroup, None)
            after = fill((one,), CHUNK)
            notes = (rounding, _lowered(cards, cgroup, (one, two)), UNTRIED)
        finally:
            cards.close()
    good = 0 < took <= LIMIT and neighbour > LIMIT and after == CHUNK
    verdict = "enforced, and for nobody else" if good else "**not enforced**" if took > LIMIT else "**wrong**"
    return Measured(HEAD, [(str(LIMIT), str(took), reported, str(neighbour), f"{after} more", verdict)], good, notes)


def fill(programs: tuple[Program, ...], most: int = LIMIT + 8 * CHUNK) -> int:
    """Make programs allocate in turn until none gets more, with a maximum for each. Returns the MiB of each."""
    took = 0
    for _ in range(most // CHUNK):
        given = [program.take(CHUNK) for program in programs]
        took += CHUNK * sum(given)
        if not any(given):
            break
    return took


def _rounding(cards: Cards, cgroup: str) -> str:
    """Say which limit the driver reports after one was set: how it rounds is in no document."""
    read = cards.limit_of(cards.whole[0], cgroup)
    return f"a limit of {LIMIT} MiB is reported as {'nothing' if read is None else f'{read} MiB'}"


def _lowered(cards: Cards, cgroup: str, programs: tuple[Program, ...]) -> str:
    """Say what the driver does with a limit below the memory that a container has taken, as the agent may set it."""
    why = cards.limit(cards.whole[0], cgroup, LIMIT // 2)
    try:
        more = sum(program.take(CHUNK) for program in programs)
        left = _reported(cards, {each.pid for each in programs})
        alive = sum(each.alive for each in programs)
    except (OSError, ValueError):
        return f"a limit of {LIMIT // 2} MiB for a container that has taken more ends its processes"
    finally:
        cards.limit(cards.whole[0], cgroup, None)
    said = f"is refused ({why})" if why else "is accepted"
    return (
        f"a limit of {LIMIT // 2} MiB for a container that has taken more {said}; then NVML reports {left} MiB, "
        f"{alive} of {len(programs)} processes run, and {more} of them got {CHUNK} MiB more"
    )


def _reported(cards: Cards, pids: set[int]) -> str:
    (reading, *_) = cards.look()
    return str(sum(each.mib or 0 for each in reading.processes if each.pid in pids))
