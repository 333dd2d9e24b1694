"""Reports dead cards, and taints the node while it has one."""

from collections.abc import Iterator, Mapping

from webhook.agent.actions import DONE, NodeAction, Watcher
from webhook.agent.limits import dead, enforce, taint
from webhook.agent.limits.calls import ApiCalls
from webhook.agent.limits.dead import DeadCards
from webhook.agent.limits.taint import NodeTaint
from webhook.agent.observe.view import Observation
from webhook.cluster.client import Api
from webhook.policy.model import REPORT, TAINT


class CardHealth(Watcher):
    """Finds out which cards are dead. Without an `api` the node is not tainted."""

    def __init__(self, node: str, api: Api | None, node_taint: NodeTaint) -> None:
        self._node, self._api, self._taint = node, api, node_taint
        self._dead, self.calls = dead.NONE, ApiCalls()

    @property
    def dead(self) -> Mapping[str, str]:
        """The dead cards by UUID, with their causes."""
        return self._dead.cards

    @property
    def restart_nvml(self) -> bool:
        """Whether a card is lost, so that NVML must be restarted."""
        return dead.LOST in self._dead.cards.values()

    def look(self, seen: Observation, now: float) -> Iterator[NodeAction]:
        """Report the cards that have died since the last look, on the node and on the pods that use them."""
        yield from self.calls.finished()
        before = DeadCards({**self._taint.restored(), **self._dead.cards})
        self._dead = dead.update(before, [card.reading for card in seen.cards], seen.events)
        for card in self._dead.new:
            yield from self._report(card, self._dead.cards[card], seen)
        patch = self._taint.change(now, self._dead.cards)
        api = self._api
        if api is not None and patch is not None:
            tainted = any(map(taint.ours, taint.taints(patch)))
            action = NodeAction(
                TAINT, "", "a card is dead" if tainted else "no card is dead, or the policy has changed"
            )
            self.calls.submit(action, lambda: enforce.patch_node(api, self._node, patch))

    def close(self) -> Iterator[NodeAction]:
        """Drop the patches of the node that have not been sent."""
        return self.calls.close()

    def _report(self, card: str, why: str, seen: Observation) -> Iterator[NodeAction]:
        yield NodeAction(REPORT, "", dead.note(card, why), dead.REASON, card, outcome=DONE)
        affected = {
            row.use.place.container: row.container
            for row in seen.rows
            if row.container is not None and card in (row.reading.uuid, row.reading.parent)
        }
        for container, target in affected.items():
            yield NodeAction(REPORT, container, f"uses {dead.note(card, why)}", dead.REASON, card, target, outcome=DONE)
