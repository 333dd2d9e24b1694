"""Writes the report of `slicewarden advise`: how much of a card each workload needs, and the changes this allows."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from webhook.memory.budget import MEMORY
from webhook.policy.model import API_VERSION
from webhook.reports.usage_report import UnseenNode, hours, moment
from webhook.text import tables
from webhook.usage import advice
from webhook.usage.advice import SizeAdvice, SizeChange, SizedPool, SizedWorkload
from webhook.usage.record import HOUR

_WORDS = {
    advice.MEMORY: MEMORY + ": {}",
    advice.POOL: "the pool {}",
    advice.PROFILE: "a MIG device nvidia.com/mig-{}",
    advice.SLICES: "{} slices a card",
}

_HEAD = ("namespace", "workload", "container", "pool", "slice-hours", "working h", "peak MiB", "mean MiB", "cap MiB")
_POOL_HEAD = ("pool", "product", "slices", "slice MiB", "slice-hours")
_TAIL = ("need MiB", "saves h", "advice")


def table(report: SizeAdvice) -> str:
    """Write tables for people: the workloads, then the pools. Each change has a line."""
    lines = [f"{moment(report.since)} to {moment(report.at)}", ""] if report.at else []
    if not report.workloads:
        return "\n".join([*lines, "nothing was counted"]) + "\n"
    body = [row for each in report.workloads for row in _lines(_cells(each), each)]
    lines += tables.columns([(*_HEAD, *_TAIL), *body], range(len(_HEAD) - 5, len(_HEAD) + 2))
    if report.pools:
        body = [row for each in report.pools for row in _lines(_pool_cells(each), each)]
        lines += ["", *tables.columns([(*_POOL_HEAD, *_TAIL), *body], range(2, len(_POOL_HEAD) + 2))]
    return "\n".join(lines) + "\n"


def _cells(each: SizedWorkload) -> tuple[str, ...]:
    used = each.amounts
    mean = str(used.memory // used.measured) if used.measured else "-"
    names = each.namespace, each.workload, each.container, ", ".join(each.pools) or "-"
    numbers = hours(used.held), hours(used.working), str(used.peak), mean, str(each.cap) if each.cap else "-"
    return (*names, *numbers)


def _pool_cells(each: SizedPool) -> tuple[str, ...]:
    return (each.pool, each.product or "-", str(each.slices), str(each.mib) if each.mib else "-", hours(each.held))


def _lines(cells: tuple[str, ...], each: SizedWorkload | SizedPool) -> Iterator[tuple[str, ...]]:
    if each.unknown:
        yield (*cells, "-", "-", f"not known: {each.unknown}")
    elif not each.changes:
        yield (*cells, str(each.need), "-", "none: nothing smaller is enough")
    for change in each.changes:
        saved = hours(change.saved) if change.saved else "-"
        yield (*cells, str(each.need), saved, _WORDS[change.kind].format(change.value))


def write(report: SizeAdvice, notes: Sequence[str], unseen: Sequence[UnseenNode]) -> str:
    """Write a SizeAdvice as JSON."""
    value = {
        "apiVersion": API_VERSION,
        "kind": "SizeAdvice",
        "since": report.since,
        "at": report.at,
        "workloads": [_workload(each) for each in report.workloads],
        "pools": [_pool(each) for each in report.pools],
        "notes": [note.removeprefix("note: ") for note in notes],
        "unseenNodes": [each._asdict() for each in unseen],
    }
    return json.dumps(value, indent=2) + "\n"


def _workload(each: SizedWorkload) -> dict[str, Any]:
    used = each.amounts
    return {
        "namespace": each.namespace,
        "workload": each.workload,
        "container": each.container,
        "pools": [*each.pools],
        "sliceHours": used.held / HOUR,
        "seenHours": used.seen / HOUR,
        "workingHours": used.working / HOUR,
        "peakMiB": used.peak,
        "meanMiB": used.memory // used.measured if used.measured else None,
        "capMiB": each.cap or None,
        **_advised(each),
    }


def _pool(each: SizedPool) -> dict[str, Any]:
    names = {"pool": each.pool, "product": each.product, "slices": each.slices, "sliceMiB": each.mib or None}
    return {**names, "sliceHours": each.held / HOUR, **_advised(each)}


def _advised(each: SizedWorkload | SizedPool) -> dict[str, Any]:
    return {
        "needMiB": each.need or None,
        "unknown": each.unknown or None,
        "changes": [_change(change) for change in each.changes],
    }


def _change(change: SizeChange) -> dict[str, Any]:
    return {"kind": change.kind, "value": change.value, "savedSliceHours": change.saved / HOUR}
