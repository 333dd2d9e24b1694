"""Compares the driver's limits of a container with its allowance. Has no side effects."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from webhook.agent.observe.look import CardUse
from webhook.agent.observe.nvml import UNLIMITED
from webhook.agent.observe.pods import ContainerName
from webhook.memory.driver import start
from webhook.memory.driver.start import StartNeed

ROUNDING = 64
"""MiB by which a driver may report more than was set. No card has shown how it rounds."""


class LimitFault(StrEnum):
    """The kind of difference between a container's limits by the driver and its allowance."""

    NO_HOOK = start.NO_HOOK
    """NVIDIA's hook should have set a limit before the start, and the agent found none at its first look."""
    MISSING = "missing"
    WIDER = "wider"
    OTHER_CARD = "other card"
    """It uses a card on which it has no limit, and has one on another card."""


class LimitCounts(NamedTuple):
    """The numbers of limits that are set and that failed. A limit is counted for each container and card.

    `faults` has the number of running containers for each kind of difference. `needs` says which needs of NVIDIA's hook
    the node meets; empty if the policy has no variables written for it.
    """

    set: int = 0
    failed: int = 0
    faults: Mapping[LimitFault, int] = {}
    needs: Mapping[StartNeed, bool] = {}


class WantedLimit(NamedTuple):
    """The limit of a container in MiB, and the limit that NVIDIA's hook sets by its variables before it starts.

    `stated` is None without these variables. It is more than `mib` if the card got more replicas since. `any` is true
    if only the pod is known, so that the limits may be those of any of its containers.
    """

    mib: int
    stated: int | None = None
    any: bool = False


def used(cards: Iterable[CardUse]) -> Mapping[str, frozenset[str]]:
    """Return the UUIDs of the cards on which each container has processes, by the container's id."""
    found: dict[str, set[str]] = {}
    for card in cards:
        for use in card.uses:
            found.setdefault(use.place.container, set()).add(card.reading.uuid)
    return {container: frozenset(uuids) for container, uuids in found.items()}


def fault(most: int, limits: Mapping[str, int | None], using: Collection[str]) -> LimitFault | None:
    """Compare a container's limits (MiB), by card, with its allowance. Returns None if no difference is known.

    NVIDIA's hook limits only the container's own cards, so one limit is enough until the container uses a card without
    one. `using` has the cards that it uses. A limit that cannot be read is None. A limit may exceed the allowance by
    ROUNDING.
    """
    known = {card: limit for card, limit in limits.items() if limit is not None}
    own = {card: limit for card, limit in known.items() if limit < UNLIMITED}
    if any(limit > most + ROUNDING for limit in own.values()):
        return LimitFault.WIDER
    if known and not own:
        return LimitFault.MISSING
    return LimitFault.OTHER_CARD if own and any(card in known and card not in own for card in using) else None


class LimitedContainer(NamedTuple):
    """A container that the driver must limit to `most` MiB: its limits (MiB) by card, and how they differ.

    `id` is the container's, `uid` its pod's. A limit is UNLIMITED if there is none, and None if it cannot be read.
    """

    id: str
    name: ContainerName
    uid: str
    most: int
    limits: Mapping[str, int | None]
    fault: LimitFault | None
