"""Decides whether a node must be tainted because of a dead card, if the policy asks for a taint. Has no side effects.

The state is stored on the node, so the agent may end at any moment. An annotation next to the taint names the dead
cards, the causes, and the boot in which they died. Both are written at once, and only over the version of the node that
was read.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from webhook.agent.limits.dead import LOST
from webhook.agent.observe.node import DEAD_CARDS
from webhook.api.lenient import mapping, mappings, string
from webhook.model import Object

KEY, EFFECT = "slicewarden.dev/dead-gpu", "NoSchedule"

AGAIN, HOLD = 10.0, 60.0
"""Seconds between two writes, and how long all cards must be alive before the taint is removed."""


class TaintNote(NamedTuple):
    """The agent's annotation on a node: the dead cards with their causes, the boot, and whether the node is tainted."""

    cards: Mapping[str, str]
    boot: str
    tainted: bool


def written(node: Object) -> TaintNote | None:
    """Read the annotation of a node; None if there is none. An unreadable one names no cards."""
    text = mapping(mapping(node.get("metadata")).get("annotations")).get(DEAD_CARDS)
    if text is None:
        return None
    try:
        note = mapping(json.loads(string(text)))
    except (ValueError, RecursionError):
        note = {}
    cards = {card: string(why) for card, why in mapping(note.get("cards")).items()}
    return TaintNote(cards, string(note.get("boot")), any(map(ours, taints(node))))


def patch(node: Object, cards: Mapping[str, str], boot: str) -> Object | None:
    """Return the merge patch that taints a node for these cards, or removes the taint; None if nothing changes.

    Other taints stay as they are. So does a taint with the agent's key but without its annotation.
    """
    before, every = written(node), [*taints(node)]
    others = [taint for taint in every if not ours(taint)]
    if before is None and (not cards or len(others) < len(every)):
        return None
    if before is not None and before.tainted and before == TaintNote(cards, boot, tainted=True):
        return None
    note = json.dumps({"boot": boot, "cards": dict(sorted(cards.items()))}) if cards else None
    own = [{"key": KEY, "effect": EFFECT}] if cards else []
    version = mapping(node.get("metadata")).get("resourceVersion")
    return {
        "metadata": {"resourceVersion": version, "annotations": {DEAD_CARDS: note}},
        "spec": {"taints": [*others, *own] or None},
    }


class NodeTaint:
    """Keeps a node's taint in step with its dead cards.

    `node` returns the node as it was last seen, or None. `on` is whether the policy asks for the taint. `boot` is the
    id of this boot. With the defaults no node is tainted.
    """

    def __init__(
        self, node: Callable[[], Object | None] = lambda: None, on: Callable[[], bool] = lambda: False, boot: str = ""
    ) -> None:
        self._node, self._on, self._boot = node, on, boot
        self._dismissed: frozenset[str] = frozenset()
        self._restored = False
        self._alive: float | None = None
        self._next = float("-inf")

    def restored(self) -> Mapping[str, str]:
        """Return the cards that died before this agent started. Returns them only once, when the node becomes known.

        A card that died before the node was restarted counts as lost, so it is alive as soon as it answers.
        """
        node = None if self._restored else self._node()
        if node is None:
            return {}
        self._restored = True
        before = written(node)
        if before is None or not before.tainted:
            return {}
        return before.cards if before.boot == self._boot else dict.fromkeys(before.cards, LOST)

    def change(self, now: float, dead: Mapping[str, str]) -> Object | None:
        """Return the patch that is due, or None. A taint that a person removed is not set again for the same cards.

        A patch is returned again every AGAIN seconds until the node shows it.
        """
        node = self._node()
        if node is None or not self._restored:
            return None
        before, on = written(node), self._on()
        self._dismissed &= dead.keys()
        if before is not None and not before.tainted:
            self._dismissed |= before.cards.keys() & dead.keys()
        cards = {card: why for card, why in dead.items() if on and card not in self._dismissed}
        self._alive = None if cards else now if self._alive is None else self._alive
        if on and self._alive is not None and now - self._alive < HOLD and before is not None and before.tainted:
            return None
        change = patch(node, cards, self._boot)
        if change is None or now < self._next:
            return None
        self._next = now + AGAIN
        return change


def taints(node: Object) -> Iterable[Object]:
    """Return the taints of a node, or of a patch of one."""
    return mappings(mapping(node.get("spec")).get("taints"))


def ours(taint: Object) -> bool:
    """Whether a taint has the agent's key and effect."""
    return taint.get("key") == KEY and taint.get("effect") == EFFECT
