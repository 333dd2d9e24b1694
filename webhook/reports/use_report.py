"""Writes the report of `slicewarden agent --once`: the use of the cards, as a table for people or JSON for programs."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webhook.agent.observe.limited import LimitedContainer
from webhook.agent.observe.look import CardUse, ProcessUse
from webhook.agent.observe.nvml import UNLIMITED
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.view import ContainerRow, NodeContainer, rows
from webhook.policy.model import API_VERSION
from webhook.text import tables
from webhook.text.words import shown

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
