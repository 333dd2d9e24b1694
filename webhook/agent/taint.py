"""Taints the node while a card of it is dead, where the policy says so, and takes its own taint away again.

The node itself remembers, so that an agent may end at any moment: an annotation beside the taint names the dead cards,
why, and since which boot. Both are written at once, and only over the version of the node that was read.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from webhook.agent.dead import LOST
from webhook.api.lenient import mapping, mappings, string
from webhook.model import Object

KEY, EFFECT = "slicewarden.dev/dead-gpu", "NoSchedule"
NOTE = "slicewarden.dev/dead-gpus"
"""The annotation that says which cards the taint is for. A taint without it belongs to somebody else."""

AGAIN, HOLD = 10.0, 60.0
"""Seconds between two writes, and for which all cards have to be alive before the taint is taken away."""


class Written(NamedTuple):
    """An agent's note on a node: the dead cards and what happened to each, the boot, and whether the taint is there."""

    cards: Mapping[str, str]
    boot: str
    tainted: bool


def kept(item: Object, part: Object | None) -> Object | None:
    """Return `part` of an object, and of a node also the note and the version, by which it can be changed."""
    metadata = mapping(item.get("metadata"))
    if part is None or string(item.get("kind")) != "Node":
        return part
    note = {key: value for key, value in mapping(metadata.get("annotations")).items() if key == NOTE}
    version = {"resourceVersion": metadata.get("resourceVersion"), "annotations": note}
    return {**part, "metadata": {**mapping(part.get("metadata")), **version}}


def written(node: Object) -> Written | None:
    """Read what an agent wrote on a node; None where it wrote nothing. An unreadable note names no cards."""
    text = mapping(mapping(node.get("metadata")).get("annotations")).get(NOTE)
    if text is None:
        return None
    try:
        note = mapping(json.loads(string(text)))
    except (ValueError, RecursionError):
        note = {}
    cards = {card: string(why) for card, why in mapping(note.get("cards")).items()}
    return Written(cards, string(note.get("boot")), any(map(ours, taints(node))))


def patch(node: Object, cards: Mapping[str, str], boot: str) -> Object | None:
    """Return the merge patch by which a node is tainted for these cards; None if it is so already, as for no cards.

    Taints of others stay as they are. So does one of this key that no note belongs to.
    """
    before, every = written(node), [*taints(node)]
    others = [taint for taint in every if not ours(taint)]
    if before is None and (not cards or len(others) < len(every)):
        return None
    if before is not None and before.tainted and before == Written(cards, boot, tainted=True):
        return None
    note = json.dumps({"boot": boot, "cards": dict(sorted(cards.items()))}) if cards else None
    own = [{"key": KEY, "effect": EFFECT}] if cards else []
    version = mapping(node.get("metadata")).get("resourceVersion")
    return {
        "metadata": {"resourceVersion": version, "annotations": {NOTE: note}},
        "spec": {"taints": [*others, *own] or None},
    }


class Taints:
    """Keeps a node's taint in step with its dead cards.

    `node` returns the node as it was last seen, or None; `on` tells whether the policy wants the taint, `boot` is the
    id of this boot, and `write` sends a patch. A write that fails is tried again.
    """

    def __init__(
        self,
        node: Callable[[], Object | None],
        on: Callable[[], bool],
        boot: str,
        write: Callable[[Object], None] = lambda _: None,
    ) -> None:
        self._node, self._on, self._boot, self.write = node, on, boot, write
        self._dismissed: frozenset[str] = frozenset()
        self._restored = False
        self._alive: float | None = None
        self._next = float("-inf")

    def restored(self) -> Mapping[str, str]:
        """Return the cards that were dead before this agent began: once, as soon as the node is known.

        One that died before the node was started anew counts as lost, and so is alive as soon as it answers.
        """
        node = None if self._restored else self._node()
        if node is None:
            return {}
        self._restored = True
        before = written(node)
        if before is None or not before.tainted:
            return {}
        return before.cards if before.boot == self._boot else dict.fromkeys(before.cards, LOST)

    def keep(self, now: float, dead: Mapping[str, str]) -> None:
        """Have a patch written if there is something to change. A taint that a person took away is not set again."""
        node = self._node()
        if node is None or not self._restored:
            return
        before, on = written(node), self._on()
        self._dismissed &= dead.keys()
        if before is not None and not before.tainted:
            self._dismissed |= before.cards.keys() & dead.keys()
        cards = {card: why for card, why in dead.items() if on and card not in self._dismissed}
        self._alive = None if cards else now if self._alive is None else self._alive
        if on and self._alive is not None and now - self._alive < HOLD and before is not None and before.tainted:
            return
        change = patch(node, cards, self._boot)
        if change is not None and now >= self._next:
            self._next = now + AGAIN
            self.write(change)


def taints(node: Object) -> Iterable[Object]:
    """Return the taints of a node, or of a patch of it."""
    return mappings(mapping(node.get("spec")).get("taints"))


def ours(taint: Object) -> bool:
    """Tell whether a taint has the agent's key and effect."""
    return taint.get("key") == KEY and taint.get("effect") == EFFECT
