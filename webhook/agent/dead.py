"""Which cards are dead: by the events of NVML, or since they have fallen off their bus."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from webhook.agent.nvml import Reading, Trouble

LOST = "it has fallen off its bus"

REASON = "GPUDead"
"""The reason of the Events."""


class Dead(NamedTuple):
    """The cards that are dead, each with what happened first, by UUID; and those of them that are so since now."""

    cards: Mapping[str, str]
    new: tuple[str, ...] = ()


NONE = Dead({})


def update(before: Dead, readings: Iterable[Reading], troubles: Iterable[Trouble]) -> Dead:
    """Return the dead cards after a look.

    A lost card is dead until it answers again. After an event a card may still answer, so it stays dead until the agent
    is started anew: nothing that NVML tells proves that it was repaired.
    """
    seen = [*readings]
    lost = {each.parent or each.uuid for each in seen if each.lost}
    answering = {each.parent or each.uuid for each in seen} - lost
    cards = {card: why for card, why in before.cards.items() if why != LOST or card not in answering}
    for trouble in troubles:
        if trouble.fatal:
            cards[trouble.uuid] = cards.get(trouble.uuid, trouble.what)
    for card in lost:
        cards.setdefault(card, LOST)
    return Dead(cards, tuple(sorted(cards.keys() - before.cards.keys())))


def note(card: str, why: str) -> str:
    """Write what an Event says of a dead card."""
    return (
        f"GPU {card} is dead: {why}; cordon the node, and reset or replace the card. NVIDIA's device plugin takes back "
        "only one slice of a dead card, so pods may still be sent to it"
    )
