"""Joins what the cards say with the containers that their processes belong to."""

from collections.abc import Mapping
from typing import NamedTuple

from webhook.agent.nvml import Reading
from webhook.agent.places import Place
from webhook.agent.processes import Process


class Held(NamedTuple):
    """A process that is on a card, with what it takes of it: MiB, and percent of the SMs' time, or None if unknown."""

    process: Process
    mib: int | None
    sm: int | None
    mps: bool = False


class Use(NamedTuple):
    """One container's use of one card, by its processes. The one that was started first comes first."""

    place: Place
    held: tuple[Held, ...]

    @property
    def mib(self) -> int:
        """MiB of all its processes. One whose memory the driver does not tell counts as 0."""
        return sum(each.mib or 0 for each in self.held)

    @property
    def known(self) -> bool:
        """Whether the driver told the memory of every process."""
        return all(each.mib is not None for each in self.held)

    @property
    def sm(self) -> int | None:
        """Percent of the SMs' time, of all its processes; None where the card does not tell."""
        shares = [each.sm for each in self.held if each.sm is not None]
        return sum(shares) if shares else None


class CardUse(NamedTuple):
    """A card at one look: what it said, the containers on it, and the processes on it that belong to no pod."""

    reading: Reading
    uses: tuple[Use, ...]
    host: tuple[Held, ...] = ()

    @property
    def unattributed(self) -> int | None:
        """MiB in use that no container has: of the driver, of the host, and of processes that have just ended.

        It is below 0 where the two questions were answered at different moments.
        """
        used = self.reading.used
        return None if used is None else used - sum(use.mib for use in self.uses)


def join(reading: Reading, processes: Mapping[int, Process]) -> CardUse:
    """Group what is taken of a card by container. A PID without a process has ended since, and is left out."""
    places: dict[Place | None, list[Held]] = {}
    for each in reading.taken:
        process = processes.get(each.pid)
        if process is not None:
            places.setdefault(process.place, []).append(Held(process, each.mib, each.sm, each.mps))
    for held in places.values():
        held.sort(key=lambda each: (each.process.start, each.process.pid))
    host = tuple(places.pop(None, ()))
    uses = (Use(place, tuple(held)) for place, held in places.items() if place is not None)
    return CardUse(reading, tuple(sorted(uses, key=lambda use: use.place)), host)
