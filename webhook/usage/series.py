"""Exports the usage record as metrics for Prometheus, from which `slicewarden usage --prometheus` reads it again."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from webhook.usage.scraped import MIB
from webhook.usage.totals import NodeTotals

HOLDER = ("node", "gpu", "pool", "product", "namespace", "workload", "pod", "container")
"""The labels of a container's usage: the node, and the names of a row of its usage record."""


def counter(name: str, text: str, labels: tuple[str, ...], counts: Mapping[Any, float]) -> CounterMetricFamily:
    """Return a counter of the agent with its values by their labels."""
    family = CounterMetricFamily(f"slicewarden_node_{name}", text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"slicewarden_node_{name}", text, labels=labels)
    for names, value in sorted(values.items()):
        family.add_metric(names, value)
    return family


def usage_series(totals: NodeTotals) -> Iterator[Metric]:
    """Yield the counters of the usage record. The sum of a card's states is all its slices' time."""
    rows = sorted((totals.node, *key[1:]) for key in totals.containers)
    amounts = {(totals.node, *key[1:]): each for key, each in totals.containers.items()}

    def of_holder(name: str, text: str, field: str, unit: float = 1.0) -> Metric:
        family = CounterMetricFamily(f"slicewarden_node_{name}", text, labels=HOLDER)
        for labels in rows:
            family.add_metric(labels, getattr(amounts[labels], field) / 1000 * unit)
        return family

    yield of_holder("slice_seconds", "Slices that a container has held, times seconds.", "held")
    work = CounterMetricFamily(
        "slicewarden_node_work_seconds",
        "Seconds of a container: working, idle, or unmeasured.",
        labels=(*HOLDER, "work"),
    )
    for labels in rows:
        for each in ("working", "idle", "unmeasured"):
            work.add_metric((*labels, each), getattr(amounts[labels], each) / 1000)
    yield work
    yield of_holder("over_seconds", "Seconds that a container has been above its allowance.", "over")
    yield of_holder("contended_seconds", "Seconds that a container has worked while another one did.", "contended")
    yield of_holder("memory_byte_seconds", "Bytes of a card that a container has used, times seconds.", "memory", MIB)
    yield of_holder("measured_seconds", "Seconds for which the memory of a container was known.", "measured")
    yield _gauge(
        "peak_bytes",
        "The most bytes of a card that a container has used in the last 5 minutes, or up to 10.",
        HOLDER,
        {labels: amounts[labels].peak * MIB for labels in rows},
    )
    yield _gauge(
        "even_bytes",
        "The most bytes that it would have used in that time if each of its processes had used as much as the largest; "
        "0 for one process.",
        HOLDER,
        {labels: amounts[labels].even * MIB for labels in rows},
    )
    yield _gauge(
        "cap_bytes",
        "The most bytes of a card that a container was admitted with.",
        HOLDER,
        {labels: amounts[labels].cap * MIB for labels in rows if amounts[labels].cap},
    )
    yield from _present(totals)
    names = ("node", "gpu", "pool", "product")
    times = {(totals.node, *key[1:]): each for key, each in totals.cards.items()}
    states = {
        (*labels, state): getattr(each, state) / 1000
        for labels, each in times.items()
        for state in ("held", "free", "unseen")
    }
    yield counter("card_slice_seconds", "Slices of a card, times seconds, by state.", (*names, "state"), states)
    counted = {labels: each.counted / 1000 for labels, each in times.items()}
    yield counter("card_counted_seconds", "Seconds for which a card was counted.", names, counted)
    yield _gauge(
        "usage_start_time_seconds",
        "When the counters of the usage record began, in seconds from 1970 in UTC.",
        ("node",),
        {(totals.node,): totals.began},
    )
    text = "1 while the usage record cannot be saved, and is counted in memory."
    yield _gauge("usage_unsaved", text, ("node",), {(totals.node,): totals.unsaved})


def _present(totals: NodeTotals) -> Iterator[Metric]:
    """Yield what the containers that hold slices do now. `shared` is whether the card of a container is shared."""
    values = {
        (
            *(totals.node, each.card, each.pool, each.namespace, each.workload, each.pod, each.container),
            "yes" if each.shared else "no",
        ): each
        for each in totals.now
    }
    names = ("node", "gpu", "pool", "namespace", "workload", "pod", "container", "shared")
    yield _gauge("slices", "Slices that a container holds.", names, {key: each.slices for key, each in values.items()})
    for name, text, field in (
        ("held_seconds", "For how many seconds a container has been seen.", "held"),
        ("idle_seconds", "For how many seconds a container has surely not worked.", "idle"),
    ):
        yield _gauge(name, text, names, {key: getattr(each, field) / 1000 for key, each in values.items()})
