"""Reports containers that have a slice and do no work, and evicts their pods if the policy says so."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from webhook.agent.actions import DONE, ConditionLog, NodeAction, Watcher
from webhook.agent.limits import enforce
from webhook.agent.limits.calls import ApiCalls
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.sight import key
from webhook.agent.observe.view import NodeContainer, Observation
from webhook.cluster.client import Api
from webhook.policy.model import EVICT, REPORT, Idle
from webhook.telemetry.log import Log
from webhook.usage import idle
from webhook.usage.account import QuietTime
from webhook.usage.idle import IdleState

IDLE = "GPUIdle"
"""The reason of the Events."""

UNCOUNTED, UNTOLD = "idle containers are not looked for", "idle pods are not evicted"


class IdleWatch(Watcher):
    """Carries out the decisions of `idle`. It only reports with `watch_only`, and if no Events are written (`tells`).

    `quiet` returns for how long each container has not worked at this look; None if this is not recorded. `rules`
    returns the policy of the node's pool on idle containers; None if there is none.
    """

    def __init__(
        self,
        quiet: Callable[[], Mapping[str, QuietTime]] | None,
        rules: Callable[[], Idle | None],
        api: Api | None,
        log: Log,
        *,
        watch_only: bool,
        tells: bool,
    ) -> None:
        self._quiet, self._rules, self._api, self._watch_only, self._tells = quiet, rules, api, watch_only, tells
        self._state, self.calls, self._conditions = IdleState(), ApiCalls(), ConditionLog(log)
        self.reported: frozenset[ContainerName] = frozenset()
        """The containers that have been reported and have not worked since."""

    def look(self, seen: Observation, now: float) -> Iterator[NodeAction]:
        """Report idle containers, and evict their pods. The outcome of an eviction is returned at a later look."""
        yield from self.calls.finished()
        rules = self._rules()
        lacking = rules is not None and self._quiet is None
        why = "the policy has node.idle, and the agent runs without --usage" if lacking else ""
        self._conditions.set(UNCOUNTED, why)
        if rules is None or self._quiet is None:
            self._forget()
            return
        if self._watch_only:
            rules = rules._replace(action=REPORT)
        untold = rules.action == EVICT and not self._tells
        self._conditions.set(UNTOLD, "the agent runs without --events, so nobody would be told" if untold else "")
        if untold:
            rules = rules._replace(action=REPORT)
        liable = {
            key(each.uid, each.name.container): (id_, each) for id_, each in seen.containers.items() if _liable(each)
        }
        quiet = self._quiet()
        waiting = quiet.keys() - {key(each.uid, each.name.container) for each in seen.containers.values()}
        self._state, decision = idle.decide(self._state, now, quiet, liable, rules, waiting)
        self.reported = frozenset(liable[each][1].name for each in self._state.reported if each in liable)
        for each in decision.report:
            yield _action(REPORT, *liable[each], _warning(rules))._replace(outcome=DONE)
        for each in decision.evict:
            if (api := self._api) is not None:
                self.calls.evict(_action(EVICT, *liable[each], _why(rules)), partial(self._still, api))

    def blind(self, now: float) -> Iterator[NodeAction]:  # noqa: ARG002 - of the interface
        """Forget which containers were idle, because without NVML it is unknown which ones work."""
        self._forget()
        return self.calls.finished()

    def close(self) -> Iterator[NodeAction]:
        """Drop the evictions that have not been sent."""
        return self.calls.close()

    def _forget(self) -> None:
        self._state, self.reported = IdleState(), frozenset()

    def _still(self, api: Api, target: NodeContainer) -> str:
        """Evict a pod that is still idle. Its call may have waited for others."""
        return enforce.evict(api, target) if target.uid in self._state.ready else "it is no longer idle"


def _liable(container: NodeContainer) -> bool:
    """Whether it is known to have requested a GPU, runs, and is neither exempt, left alone nor an init container."""
    admitted = container.admitted
    exempt = admitted.exempt or admitted.alone or admitted.ending or admitted.init
    return bool(container.uid) and admitted.requests is True and not exempt


def _action(verb: str, container: str, target: NodeContainer, why: str) -> NodeAction:
    return NodeAction(verb, container, why, IDLE, target=target)


def _why(rules: Idle) -> str:
    return f"has held a slice of a shared GPU without work for {rules.after // 60} minutes or longer"


def _warning(rules: Idle) -> str:
    end = f"; its pod is evicted unless it works within {rules.notice // 60} minutes" if rules.action == EVICT else ""
    return f"{_why(rules)}; use the GPU, or end the pod{end}"
