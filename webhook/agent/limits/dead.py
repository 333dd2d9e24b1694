"""Decides which cards are dead: by events of NVML, or because they no longer answer on the bus. Has no side effects."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from webhook.agent.observe.nvml import INDEX, CardReading, NvmlEvent

LOST = "it has fallen off its bus"

REASON = "GPUDead"
"""The reason of the Events."""


class DeadCards(NamedTuple):
    """The dead cards by UUID, each with its first cause. `new` are the cards that died since the last look."""

    cards: Mapping[str, str]
    new: tuple[str, ...] = ()


NONE = DeadCards({})


def update(before: DeadCards, readings: Iterable[CardReading], events: Iterable[NvmlEvent]) -> DeadCards:
    """Return the dead cards after a look.

    A lost card is dead until it answers again. After a fatal event a card may still answer, so it stays dead until the
    agent is restarted: nothing in NVML proves that it was repaired. A lost card that NVML cannot open has no UUID. It
    is taken for one of the dead cards that NVML does not show. If there is none, its index is its name.
    """
    seen = [*readings]
    lost = {each.parent or each.uuid for each in seen if each.lost and each.opened}
    present = {each.parent or each.uuid for each in seen if each.opened}
    cards = {
        card: why
        for card, why in before.cards.items()
        if not card.startswith(INDEX) and (why != LOST or card not in present - lost)
    }
    for event in events:
        if event.fatal and cards.get(event.uuid, LOST) == LOST:
            cards[event.uuid] = event.what
    for card in lost:
        cards.setdefault(card, LOST)
    unopened = sorted(each.uuid for each in seen if each.lost and not each.opened)
    cards |= dict.fromkeys(unopened[len(cards.keys() - present) :], LOST)
    return DeadCards(cards, tuple(sorted(cards.keys() - before.cards.keys())))


def note(card: str, why: str) -> str:
    """Return the text of the node's Event about a dead card."""
    return (
        f"GPU {card} is dead: {why}; cordon the node, and reset or replace the card. NVIDIA's device plugin withdraws "
        "only one slice of a dead card, so the kubelet may still assign pods to it"
    )
