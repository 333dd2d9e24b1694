"""Compares the driver's limits of a node's containers with the allowances of their admission. Changes nothing."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from webhook.agent.observe.limited import LimitedContainer, WantedLimit, fault, used
from webhook.agent.observe.look import CardUse
from webhook.agent.observe.nvml import Cards
from webhook.agent.observe.view import NodeContainer


def wanted(containers: Mapping[str, NodeContainer]) -> Mapping[str, WantedLimit]:
    """Return the limit of each container that the driver must limit, by id."""
    return {
        container: WantedLimit(each.admitted.limit, each.admitted.stated)
        for container, each in containers.items()
        if each.admitted.limit is not None
    }


def compare(
    nvml: Cards, cards: Iterable[CardUse], containers: Mapping[str, NodeContainer], folders: Mapping[str, Path]
) -> tuple[LimitedContainer, ...]:
    """Read the limits of every container that the driver must limit, in the order of their names.

    `containers` are those of the node, and `folders` their cgroups, by id. Without its cgroup no limit of a container
    can be read.
    """
    using, found = used(cards), list[LimitedContainer]()
    for container, want in wanted(containers).items():
        at = folders.get(container)
        limits = {card: None if at is None else nvml.limit_of(card, str(at)) for card in nvml.whole}
        wrong = fault(want.mib, limits, using.get(container, ()))
        name, uid, _ = containers[container]
        found.append(LimitedContainer(container, name, uid, want.mib, limits, wrong))
    return tuple(sorted(found, key=lambda each: (each.name, each.id)))
