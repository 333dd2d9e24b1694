"""Decides what to do about a container that takes more of a card than it was admitted with. Values in, values out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.agent.view import Row, State
from webhook.policy.model import TELL, Over


class Act(NamedTuple):
    """Something to do about a container on a card, and why: one line that is the same each time."""

    do: str
    row: Row
    reason: str
    why: str


Key = tuple[str, str]
"""A container's id and a card's UUID."""

ABOVE, STRANGER = "GPUMemoryOver", "GPUStranger"
"""The reasons of the Events."""


@dataclass(frozen=True)
class Since:
    """The state between looks: since when each is over, when it was last acted on, and what was reported."""

    over: Mapping[Key, float] = field(default_factory=dict)
    acted: Mapping[Key, float] = field(default_factory=dict)
    told: frozenset[tuple[Key, str]] = frozenset()


def decide(before: Since, now: float, rows: Iterable[Row], rules: Over) -> tuple[Since, tuple[Act, ...]]:
    """Return what is remembered after a look, and what to do. `now` is in seconds of a monotonic clock.

    `rules` are what the policy says of the node's pool. A crossing is told once. A deed is repeated after another
    `grace` for as long as the container is over.
    """
    over, acted, told, acts = dict[Key, float](), dict[Key, float](), set[tuple[Key, str]](), list[Act]()
    for row in rows:
        key = row.use.place.container, row.reading.uuid
        match row.state(rules.slack):
            case State.STRANGER:
                told.add((key, STRANGER))
                if (key, STRANGER) not in before.told:
                    why = (
                        f"has processes on GPU {row.reading.uuid}, but asks for no GPU; find the way by which it got in"
                    )
                    acts.append(Act(TELL, row, STRANGER, why))
            case State.OVER:
                over[key] = before.over.get(key, now)
                if now - over[key] < rules.grace:
                    continue
                told.add((key, ABOVE))
                why = (
                    f"takes more than its {row.allowance} MiB of GPU {row.reading.uuid}; "
                    f"lower what it allocates, or ask for a larger slice"
                )
                if (key, ABOVE) not in before.told:
                    acts.append(Act(TELL, row, ABOVE, why))
                last = before.acted.get(key)
                if last is not None:
                    acted[key] = last
                if _acts(row, rules) and (last is None or now - last >= rules.grace):
                    acted[key] = now
                    acts.append(Act(rules.action, row, ABOVE, why))
    return Since(over, acted, frozenset(told)), tuple(acts)


def _acts(row: Row, rules: Over) -> bool:
    """Tell whether more than telling is right: never for one that starts or ends, and not while the card has room."""
    if rules.action == TELL or row.known is None or row.known.standing.ending or row.known.standing.init:
        return False
    used, total = row.reading.used, row.reading.total
    return used is not None and total is not None and 100 * used >= rules.pressure * total
