"""The watchdog: reports containers that use more than their allowance, and evicts or kills them."""

from collections.abc import Iterator
from functools import partial

from webhook.agent.actions import DONE, NodeAction, Watcher
from webhook.agent.limits import enforce, over
from webhook.agent.limits.calls import ApiCalls
from webhook.agent.limits.over import Key, OverState
from webhook.agent.observe.processes import Processes
from webhook.agent.observe.view import ContainerRow, Observation
from webhook.cluster.client import Api
from webhook.policy.model import EVICT, KILL, REPORT


class Watchdog(Watcher):
    """Carries out the decisions of `over`. With `watch_only` it only reports, whatever the policy says."""

    def __init__(self, api: Api | None, *, watch_only: bool) -> None:
        self._api, self._watch_only = api, watch_only
        self._state, self._processes, self.calls = OverState(), Processes(), ApiCalls()

    @property
    def reported(self) -> frozenset[Key]:
        """The reported pairs of container and card: without a request until its end, others for at least 10 minutes."""
        return frozenset(key for key, _ in self._state.reported)

    def look(self, seen: Observation, now: float) -> Iterator[NodeAction]:
        """Report, evict and kill. The outcome of an eviction is returned at a later look."""
        yield from self.calls.finished()
        rules = seen.rules._replace(action=REPORT) if self._watch_only else seen.rules
        self._state, actions = over.decide(self._state, now, seen.rows, rules, seen.containers.keys())
        rows = {(row.use.place.container, row.reading.uuid): row for row in seen.rows}
        for action in actions:
            if action.verb == EVICT and (api := self._api) is not None:
                self.calls.evict(action, partial(enforce.evict, api))
            elif action.verb == KILL:
                yield action._replace(outcome=self._kill(rows[action.container, action.gpu], rules.slack))
            elif action.verb == REPORT:
                yield action._replace(outcome=DONE)

    def close(self) -> Iterator[NodeAction]:
        """Drop the evictions that have not been sent."""
        return self.calls.close()

    def _kill(self, row: ContainerRow, slack: int) -> str:
        if row.allowance is None:  # then the row is not over, and nothing is decided about it
            return "no allowance is known"
        return enforce.kill(enforce.victims(row.use, row.allowance + slack), self._processes)
