"""Reports on which nodes pods would run: a table for people, JSON for programs."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from webhook.placing.placing import Left, Placing, PodPlacement
from webhook.policy.model import API_VERSION
from webhook.text import tables
from webhook.text.terminal import Look
from webhook.text.words import listed, several

_NAMED = 3
"""How many pods or nodes a line names."""


def table(placing: Placing, look: Look, *, everything: bool = False) -> str:
    """Write each pod that asks for a GPU, waits or is refused; with `everything`, each pod.

    Unless everything is shown, the pods of one object that are refused for the same reasons are written once.
    """
    lines = [str(problem) for problem in placing.problems]
    shown = [place for place in placing.places if everything or _tells(place)]
    alike = Counter(map(_refusal, shown))
    for place in shown:
        if everything or not place.player.refused:
            lines += _lines(place, look)
        elif count := alike.pop(_refusal(place), 0):
            lines += _lines(place, look, count)
    if placing.left:
        lines += ["", *_left(placing.left)]
    if not look.quiet:
        lines += ["", *(f"note: {note}" for note in placing.notes), *look.wrap(_summary(placing, len(shown)), "")]
    return "".join(f"{line}\n" for line in lines)


def _tells(place: PodPlacement) -> bool:
    return bool(place.player.has_gpus or place.player.refused or place.outcome is None or not place.outcome.node)


def _refusal(place: PodPlacement) -> tuple[int, tuple[str, ...]]:
    """Return the object that a pod is of, and why it is refused."""
    return id(place.player.item), place.player.refused


def _lines(place: PodPlacement, look: Look, count: int = 1) -> Iterator[str]:
    player, outcome = place.player, place.outcome
    indent = " " * 9
    if outcome is None:
        name = player.name if count == 1 else f"{player.name.partition(' #')[0]} ({several(count, 'pod')})"
        yield from look.beside(look.paint("refused", "denied"), name, indent, "strong")
        for reason in player.refused:
            yield from look.wrap(reason, indent)
        return
    if not outcome.node:
        yield from look.beside(look.paint("waits  ", "warned"), player.name, indent, "strong")
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(outcome.reasons.items()))
        yield from look.wrap(reasons or "the cluster has no node", indent)
    else:
        yield from look.beside(look.paint("lands  ", "allowed"), player.name, indent, "strong")
        pool = f" (pool {place.pool.name})" if place.pool else "" if player.unplayed else " (no pool)"
        others = f", or on {listed(list(outcome.others), _NAMED)}" if outcome.others else ""
        yield from look.wrap(f"on {outcome.node}{pool}{others}{_asks(place)}", indent)
        if place.clique:
            yield from look.wrap(f"NVLink clique {place.clique}", indent)
        if place.shares:
            shares = "shares a device" if place.held else "may share a GPU"
            yield from look.wrap(f"{shares} with {listed(list(place.shares), _NAMED)}", indent)
        if place.risk:
            yield from look.wrap(f"{place.pool.sharing if place.pool else ''}: {place.risk}", indent)
    for reason in player.unplayed:
        yield from look.wrap(f"its claims are not counted: {reason}", indent)
    if outcome.evicted:
        yield from look.wrap(f"evicts {listed([each.name for each in outcome.evicted], _NAMED)}", indent)
    if outcome.evictor:
        yield from look.wrap(f"was evicted by {outcome.evictor}", indent)


def _asks(place: PodPlacement) -> str:
    asks = [f"{amount} of {name}" for name, amount in place.player.gpus.items()]
    asks += [f"device {each.id[2]} of {each.driver}" for each in place.held]
    return f": {', '.join(asks)}" if asks else ""


def _left(left: tuple[Left, ...]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("pool", "resource", "offered", "free", "most on a node")]
    rows += [
        (each.pool or "(none)", each.resource, *map(str, (each.offered, each.free, each.largest))) for each in left
    ]
    yield from tables.columns(rows, right=(2, 3, 4))


def _summary(placing: Placing, shown: int) -> str:
    total = len(placing.places)
    landed = total - placing.waiting - placing.refused
    counts = [f"{landed} {'lands' if landed == 1 else 'land'}"]
    counts += [f"{placing.waiting} wait"] if placing.waiting else []
    counts += [f"{placing.refused} refused"] if placing.refused else []
    hidden = f"; {total - shown} that land without a GPU not shown (--all)" if shown < total else ""
    return f"{several(total, 'pod')}, by policy {placing.policy}: {', '.join(counts)}{hidden}"


def write(placing: Placing) -> str:
    """Write a PlacingReport in JSON: every pod, what is left, the notes, and what could not be read."""
    value = {
        "apiVersion": API_VERSION,
        "kind": "PlacingReport",
        "policy": placing.policy,
        "pods": [_value(place) for place in placing.places],
        "left": [
            {
                "pool": each.pool or None,
                "resource": each.resource,
                "offered": each.offered,
                "free": each.free,
                "mostOnANode": each.largest,
            }
            for each in placing.left
        ],
        "notes": [*placing.notes],
        "problems": [str(problem) for problem in placing.problems],
        "summary": {"pods": len(placing.places), "waiting": placing.waiting, "refused": placing.refused},
    }
    return json.dumps(value, indent=2) + "\n"


def _value(place: PodPlacement) -> dict[str, Any]:
    player, outcome = place.player, place.outcome
    value: dict[str, Any] = {
        "pod": player.name,
        "object": f"{player.item.value['kind']} {player.name.partition(' ')[0]}",
        "file": player.item.document.file,
        "asks": dict(player.gpus),
        "notCounted": [*player.unplayed],
    }
    if outcome is None:
        return {**value, "refused": [*player.refused]}
    return {
        **value,
        "node": outcome.node or None,
        "alternatives": [*outcome.others],
        "pool": place.pool.name if place.pool else None,
        "devices": ["/".join(each.id) for each in place.held],
        "sharesWith": [*place.shares],
        "risk": place.risk or None,
        "clique": place.clique or None,
        "waitsBecause": dict(sorted(outcome.reasons.items())),
        "evicts": [each.name for each in outcome.evicted],
        "evictedBy": outcome.evictor or None,
    }
