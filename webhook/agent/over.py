"""Decides what to do about a container that takes more of a card than it was admitted with. Values in, values out."""

from collections.abc import Collection, Iterable, Mapping
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
    """The state between looks: since when each is over, when it was last acted on, and when each reason was told."""

    over: Mapping[Key, float] = field(default_factory=dict)
    acted: Mapping[Key, float] = field(default_factory=dict)
    told: Mapping[tuple[Key, str], float] = field(default_factory=dict)


QUIET = 600.0
"""Seconds for which a container that goes over again and again is not told again."""


def decide(
    before: Since, now: float, rows: Iterable[Row], rules: Over, present: Collection[str] = ()
) -> tuple[Since, tuple[Act, ...]]:
    """Return what is remembered after a look, and what to do. `now` is in seconds of a monotonic clock.

    `rules` are what the policy says of the node's pool, `present` the ids of the containers on the node. A crossing is
    told once, and of a container at most once in QUIET; a stranger is told once, though its processes come and go. A
    deed is repeated after another `grace` for as long as the container is over.
    """
    over, acted, acts = dict[Key, float](), dict[Key, float](), list[Act]()
    told = {
        (key, reason): at
        for (key, reason), at in before.told.items()
        if key[0] in present and (reason == STRANGER or now - at < QUIET)
    }
    for row in rows:
        key = row.use.place.container, row.reading.uuid
        match row.state(rules.slack):
            case State.STRANGER:
                known = before.told.get((key, STRANGER))
                told[key, STRANGER] = now if known is None else known
                if known is None:
                    why = (
                        f"has processes on GPU {row.reading.uuid}, but asks for no GPU; find the way by which it got in"
                    )
                    acts.append(Act(TELL, row, STRANGER, why))
            case State.OVER:
                over[key] = before.over.get(key, now)
                if now - over[key] < rules.grace:
                    continue
                known = told.get((key, ABOVE), before.told.get((key, ABOVE)) if key in before.over else None)
                told[key, ABOVE] = now if known is None else known
                why = (
                    f"takes more than its {row.allowance} MiB of GPU {row.reading.uuid}; "
                    f"lower what it allocates, or ask for a larger slice"
                )
                if known is None:
                    acts.append(Act(TELL, row, ABOVE, why))
                last = before.acted.get(key)
                if last is not None:
                    acted[key] = last
                if _acts(row, rules) and (last is None or now - last >= rules.grace):
                    acted[key] = now
                    acts.append(Act(rules.action, row, ABOVE, why))
    return Since(over, acted, told), tuple(acts)


def _acts(row: Row, rules: Over) -> bool:
    """Tell whether more than telling is right: never for one that starts or ends, and not while the card has room."""
    if rules.action == TELL or row.known is None or row.known.standing.ending or row.known.standing.init:
        return False
    used, total = row.reading.used, row.reading.total
    return used is not None and total is not None and 100 * used >= rules.pressure * total
