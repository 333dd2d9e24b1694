"""Decides what to do about a container that uses more of a card than its allowance. Has no side effects."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from webhook.agent.actions import NodeAction
from webhook.agent.observe.view import ContainerRow, UseState
from webhook.policy.model import REPORT, Over

Key = tuple[str, str]
"""A container's id and a card's UUID."""

ABOVE, UNREQUESTED = "GPUMemoryOver", "GPUNotRequested"
"""The reasons of the Events."""

QUIET = 600.0
"""Seconds in which a container that goes over its allowance repeatedly is reported only once."""


@dataclass(frozen=True)
class OverState:
    """The state between looks: since when each container is over its allowance, and its last action and reports.

    `clear` has those that were over before: the moment from which that no longer counts if they stay within.
    """

    over: Mapping[Key, float] = field(default_factory=dict)
    acted: Mapping[Key, float] = field(default_factory=dict)
    reported: Mapping[tuple[Key, str], float] = field(default_factory=dict)
    clear: Mapping[Key, float] = field(default_factory=dict)


def decide(
    before: OverState, now: float, rows: Iterable[ContainerRow], rules: Over, present: Collection[str] = ()
) -> tuple[OverState, tuple[NodeAction, ...]]:
    """Return the next state and the actions. `now` is in seconds of a monotonic clock.

    `rules` come from the policy of the node's pool, and `present` has the ids of the node's containers. A container
    that goes over its allowance is reported once, and again only after QUIET seconds. A container that did not request
    a GPU is reported once, even if its processes come and go. While a container stays over, the policy's action is
    repeated every `grace` seconds. Each second within the allowance takes back one above it: a use that drops for a
    moment before each end of the grace would never be over otherwise.
    """
    clear = {key: at for key, at in before.clear.items() if at > now}
    clear |= {key: now + min(now - since, rules.grace) for key, since in before.over.items()}
    over, acted, actions = dict[Key, float](), dict[Key, float](), list[NodeAction]()
    reported = {
        (key, reason): at
        for (key, reason), at in before.reported.items()
        if key[0] in present and (reason == UNREQUESTED or now - at < QUIET)
    }
    for row in rows:
        key = row.use.place.container, row.reading.uuid
        match row.state(rules.slack):
            case UseState.UNREQUESTED:
                last = before.reported.get((key, UNREQUESTED))
                reported[key, UNREQUESTED] = now if last is None else last
                if last is None:
                    why = f"has processes on GPU {row.reading.uuid}, but requests no GPU; find out how it got access"
                    actions.append(_action(REPORT, row, UNREQUESTED, why))
            case UseState.OVER:
                left = clear.get(key, now) - now  # seconds above it that have not been taken back
                over[key] = before.over.get(key, now - left)
                if now - over[key] < rules.grace:
                    continue
                last = reported.get((key, ABOVE), before.reported.get((key, ABOVE)) if key in before.over else None)
                reported[key, ABOVE] = now if last is None else last
                why = (
                    f"uses more than its {row.allowance} MiB of GPU {row.reading.uuid}; "
                    f"allocate less memory, or request a larger slice"
                )
                if last is None:
                    actions.append(_action(REPORT, row, ABOVE, why))
                done = before.acted.get(key)
                if done is not None:
                    acted[key] = done
                if _enforces(row, rules) and (done is None or now - done >= rules.grace):
                    acted[key] = now
                    actions.append(_action(rules.action, row, ABOVE, why))
    return OverState(over, acted, reported, {key: at for key, at in clear.items() if key not in over}), tuple(actions)


def _action(verb: str, row: ContainerRow, reason: str, why: str) -> NodeAction:
    details = {"mib": row.use.mib, "allowance": row.allowance}
    return NodeAction(verb, row.use.place.container, why, reason, row.reading.uuid, row.container, details)


def _enforces(row: ContainerRow, rules: Over) -> bool:
    """Whether to do more than report: not for an init container or a pod that ends, nor while the card has room.

    Nor for a pod of a namespace that the policy leaves alone: it was never judged, so nobody has capped it.
    """
    admitted = row.container.admitted if row.container else None
    if rules.action == REPORT or admitted is None or admitted.ending or admitted.init or admitted.alone:
        return False
    used, total = row.reading.used, row.reading.total
    return used is not None and total is not None and 100 * used >= rules.pressure * total
