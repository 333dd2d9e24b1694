"""Finds the containers of the processes that use the cards of a node."""

from collections.abc import Mapping
from typing import NamedTuple

from webhook.agent.observe.nvml import CardReading, Cards
from webhook.agent.observe.processes import Process, Processes
from webhook.cgroups.places import ContainerCgroup


class ProcessUse(NamedTuple):
    """A process on a card, and its use: memory in MiB, and percent of the SMs' time. Each is None if unknown.

    `mps` is whether the process is a client of MPS. `other` is whether it used the card's memory, or its video encoder
    or decoder; None if unknown.
    """

    process: Process
    mib: int | None
    sm: int | None
    mps: bool = False
    other: bool | None = False


class ContainerUse(NamedTuple):
    """One container's use of one card, by its processes, oldest first."""

    place: ContainerCgroup
    processes: tuple[ProcessUse, ...]

    @property
    def mib(self) -> int:
        """The MiB of all processes together. A process whose memory the driver does not report counts as 0."""
        return sum(each.mib or 0 for each in self.processes)

    @property
    def known(self) -> bool:
        """Whether the driver reported the memory of every process."""
        return all(each.mib is not None for each in self.processes)

    @property
    def sm(self) -> int | None:
        """Percent of the SMs' time used by all processes; None if the card does not report it."""
        shares = [each.sm for each in self.processes if each.sm is not None]
        return sum(shares) if shares else None

    @property
    def work(self) -> bool | None:
        """Whether a process used the SMs, the card's memory, or its video encoder or decoder; None if unknown."""
        if any(each.sm or each.other for each in self.processes):
            return True
        return None if any(None in (each.sm, each.other) for each in self.processes) else False


class CardUse(NamedTuple):
    """A card at one look: its reading, the containers on it, and its processes outside any container."""

    reading: CardReading
    uses: tuple[ContainerUse, ...]
    host: tuple[ProcessUse, ...] = ()

    @property
    def unattributed(self) -> int | None:
        """MiB in use outside any container: by the host, by processes that have just ended, and by an older driver.

        It can be negative, because NVML reads the card and its processes at different moments.
        """
        used, kept = self.reading.used, self.reading.kept or 0
        return None if used is None else used - kept - sum(use.mib for use in self.uses)


def look(cards: Cards, processes: Processes) -> tuple[CardUse, ...]:
    """Read every card, and find the containers of the processes on them."""
    readings = cards.look()
    found = processes.find({each.pid for reading in readings for each in reading.processes})
    return tuple(join(reading, found) for reading in readings)


def join(reading: CardReading, processes: Mapping[int, Process]) -> CardUse:
    """Group the processes of a card by container. A process that has ended since it was read is left out."""
    places: dict[ContainerCgroup | None, list[ProcessUse]] = {}
    for each in reading.processes:
        process = processes.get(each.pid)
        if process is not None:
            places.setdefault(process.place, []).append(ProcessUse(process, each.mib, each.sm, each.mps, each.other))
    for found in places.values():
        found.sort(key=lambda each: (each.process.start, each.process.pid))
    host = tuple(places.pop(None, ()))
    uses = (ContainerUse(place, tuple(found)) for place, found in places.items() if place is not None)
    return CardUse(reading, tuple(sorted(uses, key=lambda use: use.place)), host)
