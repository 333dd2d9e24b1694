"""Makes the agent's view of the cards: a row for each container on each card, a table for people, JSON for programs."""

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from webhook.agent.look import CardUse, Held, Use
from webhook.agent.nvml import Reading
from webhook.agent.pods import Name
from webhook.agent.standing import UNKNOWN, Standing
from webhook.policy.model import API_VERSION
from webhook.text import tables


class State(StrEnum):
    """How a container's use of a card stands to what it was admitted with."""

    WITHIN = "within"
    OVER = "over"
    STRANGER = "stranger"
    """It asked for no GPU, so that it came through a door that the policy should have shut."""
    EXEMPT = "exempt"
    UNBOUNDED = "no allowance"
    UNKNOWN = "unknown"


class Known(NamedTuple):
    """A container that was found: its names, its pod's uid (empty if unknown), and what it was admitted with."""

    name: Name
    uid: str = ""
    standing: Standing = UNKNOWN


class Row(NamedTuple):
    """One container's use of one card. `known` is None for a container of which not even the names are known."""

    reading: Reading
    use: Use
    known: Known | None

    @property
    def allowance(self) -> int | None:
        """MiB that it may take of the card."""
        return self.known.standing.allowance if self.known else None

    def over(self, slack: int) -> bool:
        """Tell whether it takes more than its allowance and `slack` MiB."""
        return self.allowance is not None and self.use.mib > self.allowance + slack

    def state(self, slack: int = 0) -> State:
        """Return how its use stands to what it was admitted with."""
        standing = self.known.standing if self.known else UNKNOWN
        if standing.asks is None:
            return State.UNKNOWN
        if standing.exempt:
            return State.EXEMPT
        if not standing.asks:
            return State.STRANGER
        if self.allowance is None:
            return State.UNBOUNDED
        return State.OVER if self.over(slack) else State.WITHIN


def rows(cards: Iterable[CardUse], known: Mapping[str, Known]) -> tuple[Row, ...]:
    """Return a row for each container on each card; `known` are the containers of this node by id."""
    return tuple(Row(card.reading, use, known.get(use.place.container)) for card in cards for use in card.uses)


HEAD = ("card", "pod", "container", "MiB", "allowance", "SM %", "state")


def table(cards: Iterable[CardUse], known: Mapping[str, Known], slack: int = 0) -> str:
    """Write a line for each card, and below them the table of what is on them."""
    every = [*cards]
    lines = [line for card in every for line in _card(card)]
    body = [*(_cells(row, slack) for row in rows(every, known)), *(each for card in every for each in _host(card))]
    if body:
        lines += ["", *tables.columns([HEAD, *sorted(body)], right=range(3, 6))]
    return "\n".join(lines) + "\n"


def _card(card: CardUse) -> Iterator[str]:
    reading, missing = card.reading, card.unattributed
    memory = "memory unknown" if reading.used is None else f"{reading.used} of {reading.total} MiB in use"
    other = "" if missing is None else f", {max(missing, 0)} of them by no container"
    busy = "" if reading.busy is None else f", busy {reading.busy} %"
    yield f"{reading.number} {reading.name} {reading.uuid}: {memory}{other}{busy}"
    yield from (f"  {fault}" for fault in reading.faults)


def _cells(row: Row, slack: int) -> tuple[str, ...]:
    name = row.known.name if row.known else Name("", f"uid {row.use.place.pod}", row.use.place.container[:12])
    pod = f"{name.namespace}/{name.pod}" if name.namespace else name.pod
    mib = str(row.use.mib) if row.use.known else "-"
    return (row.reading.number, pod, name.container, mib, _number(row.allowance), _number(row.use.sm), row.state(slack))


def _host(card: CardUse) -> Iterator[tuple[str, ...]]:
    for each in card.host:
        what = f"{each.process.name} {each.process.pid}"
        yield card.reading.number, "(no pod)", what, _number(each.mib), "-", _number(each.sm), "host"


def write(cards: Iterable[CardUse], known: Mapping[str, Known], slack: int = 0) -> str:
    """Write a GPUUse as JSON (docs/schemas/gpuuse.json)."""
    value = {"apiVersion": API_VERSION, "kind": "GPUUse", "cards": [_value(card, known, slack) for card in cards]}
    return json.dumps(value, indent=2) + "\n"


def _value(card: CardUse, known: Mapping[str, Known], slack: int) -> dict[str, Any]:
    reading = card.reading
    return {
        "number": reading.number,
        "name": reading.name,
        "uuid": reading.uuid,
        "usedMiB": reading.used,
        "totalMiB": reading.total,
        "noContainerMiB": card.unattributed if card.unattributed is None else max(card.unattributed, 0),
        "busyPercent": reading.busy,
        "faults": [*reading.faults],
        "containers": [_container(row, slack) for row in rows([card], known)],
        "host": [{"pid": each.process.pid, "name": each.process.name, **_taken(each)} for each in card.host],
    }


def _container(row: Row, slack: int) -> dict[str, Any]:
    name = row.known.name if row.known else Name("", "", "")
    return {
        "namespace": name.namespace,
        "pod": name.pod,
        "container": name.container,
        "podUid": row.known.uid if row.known and row.known.uid else row.use.place.pod,
        "containerId": row.use.place.container,
        "pids": [each.process.pid for each in row.use.held],
        "usedMiB": row.use.mib if row.use.known else None,
        "smPercent": row.use.sm,
        "allowanceMiB": row.allowance,
        "state": row.state(slack).value,
    }


def _taken(held: Held) -> dict[str, Any]:
    return {"usedMiB": held.mib, "smPercent": held.sm}


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
