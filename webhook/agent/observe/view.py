"""Combines the use of the cards with the containers of the node: one row for each container on each card."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from webhook.agent.observe.look import CardUse, ContainerUse
from webhook.agent.observe.nvml import CardReading, Cards, NvmlEvent
from webhook.agent.observe.pods import ContainerName
from webhook.cgroups import places
from webhook.cgroups.places import ContainerCgroup
from webhook.memory.admitted import UNKNOWN, Admitted
from webhook.policy.model import Over


class UseState(StrEnum):
    """How a container's use of a card compares with its allowance."""

    WITHIN = "within"
    OVER = "over"
    UNREQUESTED = "not requested"
    """It requests no GPU, so it got access in a way that the policy should have refused."""
    EXEMPT = "exempt"
    UNBOUNDED = "no allowance"
    UNKNOWN = "unknown"


class NodeContainer(NamedTuple):
    """A container of the node: its names, its pod's uid (empty if unknown), and how it was admitted."""

    name: ContainerName
    uid: str = ""
    admitted: Admitted = UNKNOWN


class ContainerRow(NamedTuple):
    """The use of one card by one container. `container` is None if not even the container's names are known."""

    reading: CardReading
    use: ContainerUse
    container: NodeContainer | None

    @property
    def allowance(self) -> int | None:
        """MiB of the card that the container may use; None if there is no limit, or none is known."""
        return self.container.admitted.allowance if self.container else None

    def over(self, slack: int) -> bool:
        """Return whether the container uses more than its allowance plus `slack` MiB."""
        return self.allowance is not None and self.use.mib > self.allowance + slack

    def state(self, slack: int = 0) -> UseState:
        """Compare the container's use of the card with its allowance."""
        admitted = self.container.admitted if self.container else UNKNOWN
        if admitted.requests is None:
            return UseState.UNKNOWN
        if admitted.exempt:
            return UseState.EXEMPT
        if not admitted.requests:
            return UseState.UNREQUESTED
        if self.allowance is None:
            return UseState.UNBOUNDED
        return UseState.OVER if self.over(slack) else UseState.WITHIN


class Observation(NamedTuple):
    """One look at a node: its cards, its containers by id, a row for each container on each card, and NVML's events.

    `nvml` is the session that was asked. `rules` is the policy of the node's pool on containers above their allowance.
    `pods` has the pods with containers that the driver must limit, by uid, each represented by a container without a
    name.
    """

    nvml: Cards
    cards: tuple[CardUse, ...]
    containers: Mapping[str, NodeContainer]
    rows: tuple[ContainerRow, ...]
    events: tuple[NvmlEvent, ...]
    rules: Over
    pods: Mapping[str, NodeContainer] = {}


def rows(cards: Iterable[CardUse], containers: Mapping[str, NodeContainer]) -> tuple[ContainerRow, ...]:
    """Return a row for each container on each card. `containers` are those of the node, by id."""
    return tuple(ContainerRow(card.reading, use, named(use.place, containers)) for card in cards for use in card.uses)


def named(place: ContainerCgroup, containers: Mapping[str, NodeContainer]) -> NodeContainer | None:
    """Return the container of a cgroup; None if its names are unknown.

    The kernel shows the uid of the pod. Names with another uid are those of another pod: a program that may write to
    /var/log/containers has changed the link of a log. A static pod has another uid in the API.
    """
    known = containers.get(place.container)
    own = known is None or known.uid in ("", place.pod) or places.is_static(place.pod)
    return known if own else None
