"""Shows the use of the cards: a row for each container on each card, as a table for people or JSON for programs."""

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from webhook.agent.observe.admitted import UNKNOWN, Admitted
from webhook.agent.observe.limited import LimitedContainer
from webhook.agent.observe.look import CardUse, ContainerUse, ProcessUse
from webhook.agent.observe.nvml import UNLIMITED, CardReading, Cards, NvmlEvent
from webhook.agent.observe.pods import ContainerName
from webhook.policy.model import API_VERSION, Over
from webhook.text import tables
from webhook.text.words import shown


class UseState(StrEnum):
    """A container's use of a card, compared with what it was admitted with."""

    WITHIN = "within"
    OVER = "over"
    UNREQUESTED = "not requested"
    """It requests no GPU, so it got access in a way that the policy should have refused."""
    EXEMPT = "exempt"
    UNBOUNDED = "no allowance"
    UNKNOWN = "unknown"


class NodeContainer(NamedTuple):
    """A container of the node: its names, its pod's uid (empty if unknown), and what it was admitted with."""

    name: ContainerName
    uid: str = ""
    admitted: Admitted = UNKNOWN


class ContainerRow(NamedTuple):
    """One container's use of one card. `container` is None if not even the container's names are known."""

    reading: CardReading
    use: ContainerUse
    container: NodeContainer | None

    @property
    def allowance(self) -> int | None:
        """MiB of the card that the container may use; None if there is no limit, or none is known."""
        return self.container.admitted.allowance if self.container else None

    def over(self, slack: int) -> bool:
        """Whether it uses more than its allowance and `slack` MiB."""
        return self.allowance is not None and self.use.mib > self.allowance + slack

    def state(self, slack: int = 0) -> UseState:
        """Compare its use with what it was admitted with."""
        admitted = self.container.admitted if self.container else UNKNOWN
        if admitted.requests is None:
            return UseState.UNKNOWN
        if admitted.exempt:
            return UseState.EXEMPT
        if not admitted.requests:
            return UseState.UNREQUESTED
        if self.allowance is None:
            return UseState.UNBOUNDED
        return UseState.OVER if self.over(slack) else UseState.WITHIN


class Observation(NamedTuple):
    """One look at a node: its cards, its containers by id, a row for each container on each card, and NVML's events.

    `nvml` is the session that was asked. `rules` is the policy of the node's pool for containers above their allowance.
    `pods` are those with containers that the driver must limit, by uid, each as a container that may be any of them.
    """

    nvml: Cards
    cards: tuple[CardUse, ...]
    containers: Mapping[str, NodeContainer]
    rows: tuple[ContainerRow, ...]
    events: tuple[NvmlEvent, ...]
    rules: Over
    pods: Mapping[str, NodeContainer] = {}


def rows(cards: Iterable[CardUse], containers: Mapping[str, NodeContainer]) -> tuple[ContainerRow, ...]:
    """Return a row for each container on each card. `containers` are those of the node, by id."""
    return tuple(
        ContainerRow(card.reading, use, containers.get(use.place.container)) for card in cards for use in card.uses
    )


HEAD = ("card", "pod", "container", "MiB", "allowance", "SM %", "state")


LIMITS_HEAD = ("driver's limit of", "container", "card", "MiB", "allowance", "difference")


def table(
    cards: Iterable[CardUse],
    containers: Mapping[str, NodeContainer],
    slack: int = 0,
    limits: Iterable[LimitedContainer] = (),
) -> str:
    """Write a line for each card, and below them a table of the containers and processes on them.

    A second table has the driver's `limits`, if there are containers that it must limit.
    """
    every = [*cards]
    lines = [line for card in every for line in _card(card)]
    body = [*(_cells(row, slack) for row in rows(every, containers)), *(each for card in every for each in _host(card))]
    if body:
        lines += ["", *tables.columns([HEAD, *sorted(body)], right=range(3, 6))]
    numbers = {card.reading.uuid: card.reading.number for card in every}
    if held := [cells for each in limits for cells in _limit_cells(each, numbers)]:
        lines += ["", *tables.columns([LIMITS_HEAD, *held], right=range(3, 5))]
    return "\n".join(lines) + "\n"


def _card(card: CardUse) -> Iterator[str]:
    reading, missing = card.reading, card.unattributed
    memory = "memory unknown" if reading.used is None else f"{reading.used} of {reading.total} MiB in use"
    kept = "" if reading.kept is None else f", {reading.kept} of them by the driver"
    other = "" if missing is None else f", {max(missing, 0)}{'' if kept else ' of them'} outside any container"
    busy = "" if reading.busy is None else f", busy {reading.busy} %"
    yield f"{' '.join(filter(None, (reading.number, reading.name, reading.uuid)))}: {memory}{kept}{other}{busy}"
    yield from (f"  {error}" for error in reading.errors)


def _cells(row: ContainerRow, slack: int) -> tuple[str, ...]:
    name = (
        row.container.name
        if row.container
        else ContainerName("", f"uid {row.use.place.pod}", row.use.place.container[:12])
    )
    pod = f"{name.namespace}/{name.pod}" if name.namespace else name.pod
    mib = str(row.use.mib) if row.use.known else "-"
    return (row.reading.number, pod, name.container, mib, _number(row.allowance), _number(row.use.sm), row.state(slack))


def _limit_cells(each: LimitedContainer, numbers: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    for card, limit in each.limits.items():
        mib = "none" if limit is not None and limit >= UNLIMITED else _number(limit)
        pod = f"{each.name.namespace}/{each.name.pod}"
        yield pod, each.name.container, numbers.get(card, card), mib, str(each.most), each.fault or "-"


def _host(card: CardUse) -> Iterator[tuple[str, ...]]:
    for each in card.host:
        what = f"{shown(each.process.name, quotes=False)} {each.process.pid}"  # a process may give itself any name
        yield card.reading.number, "(no pod)", what, _number(each.mib), "-", _number(each.sm), "host"


def write(
    cards: Iterable[CardUse],
    containers: Mapping[str, NodeContainer],
    slack: int = 0,
    limits: Iterable[LimitedContainer] = (),
) -> str:
    """Write a GPUUse as JSON (docs/schemas/gpuuse.json)."""
    value = {
        "apiVersion": API_VERSION,
        "kind": "GPUUse",
        "cards": [_value(card, containers, slack) for card in cards],
        "limits": [_limit(each) for each in limits],
    }
    return json.dumps(value, indent=2) + "\n"


def _value(card: CardUse, containers: Mapping[str, NodeContainer], slack: int) -> dict[str, Any]:
    reading = card.reading
    return {
        "number": reading.number,
        "name": reading.name,
        "uuid": reading.uuid,
        "usedMiB": reading.used,
        "totalMiB": reading.total,
        "driverMiB": reading.kept,
        "noContainerMiB": card.unattributed if card.unattributed is None else max(card.unattributed, 0),
        "busyPercent": reading.busy,
        "errors": [*reading.errors],
        "containers": [_container(row, slack) for row in rows([card], containers)],
        "host": [{"pid": each.process.pid, "name": each.process.name, **_use(each)} for each in card.host],
    }


def _container(row: ContainerRow, slack: int) -> dict[str, Any]:
    name = row.container.name if row.container else ContainerName("", "", "")
    return {
        "namespace": name.namespace,
        "pod": name.pod,
        "container": name.container,
        "podUid": row.container.uid if row.container and row.container.uid else row.use.place.pod,
        "containerId": row.use.place.container,
        "pids": [each.process.pid for each in row.use.processes],
        "usedMiB": row.use.mib if row.use.known else None,
        "smPercent": row.use.sm,
        "allowanceMiB": row.allowance,
        "state": row.state(slack).value,
    }


def _limit(each: LimitedContainer) -> dict[str, Any]:
    return {
        **each.name._asdict(),
        "podUid": each.uid,
        "containerId": each.id,
        "allowanceMiB": each.most,
        "cards": [
            {
                "uuid": card,
                "limited": None if limit is None else limit < UNLIMITED,
                "limitMiB": None if limit is None or limit >= UNLIMITED else limit,
            }
            for card, limit in each.limits.items()
        ],
        "difference": each.fault and each.fault.value,
    }


def _use(use: ProcessUse) -> dict[str, Any]:
    return {"usedMiB": use.mib, "smPercent": use.sm}


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
