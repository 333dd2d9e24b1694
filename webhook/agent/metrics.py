"""The agent's metrics for Prometheus: bytes, ratios and seconds.

A container's series are made from the last look, so they end when the container does; its usage counters stay for a
while. A label's value is a Kubernetes name, a card's UUID or a fixed word, never a PID.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from webhook.agent.observe.limited import LimitCounts, LimitFault
from webhook.agent.observe.look import CardUse
from webhook.agent.observe.nvml import MIB, NvmlEvent
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.view import ContainerRow, UseState
from webhook.agent.turns.turns import FrozenTime
from webhook.usage.totals import NodeTotals

CONTAINER = ("namespace", "pod", "container", "gpu")


@dataclass(frozen=True)
class LastLook:
    """The last look: its cards and container rows, when it began, how many seconds it took, and the cards' events.

    `slack` is the policy's tolerance for use above the allowance, in MiB.
    """

    cards: Sequence[CardUse] = ()
    rows: Sequence[ContainerRow] = ()
    at: float = float("-inf")
    seconds: float = 0.0
    slack: int = 0
    events: Sequence[NvmlEvent] = ()


@dataclass(eq=False)
class AgentMetrics:
    """Keeps the last look, and counts across looks.

    `dead` returns the UUIDs of the dead cards, `reported` the ids and cards of the containers whose use the watchdog
    has reported, `limits` counts the driver's limits, and `pauses` returns how long containers have been frozen.
    `usage` returns the counts, None if nothing is counted. All are called at each look, in the thread of the look.
    """

    clock: Callable[[], float] = time.monotonic
    dead: Callable[[], Collection[str]] = tuple
    reported: Callable[[], Collection[tuple[str, str]]] = tuple
    limits: Callable[[], LimitCounts] = LimitCounts
    pauses: Callable[[], Mapping[ContainerName, FrozenTime]] = dict
    usage: Callable[[], "NodeTotals | None"] = lambda: None
    idle: Callable[[], Collection[ContainerName]] = tuple

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._seen, self._errors, self._actions = LastLook(), Counter[str](), Counter[tuple[str, str]]()
        self._card_errors: Counter[tuple[str, str]] = Counter()
        self._dead: frozenset[str] = frozenset()
        self._reported: frozenset[tuple[str, str]] = frozenset()
        self._limits = LimitCounts()
        self._pauses: Mapping[ContainerName, FrozenTime] = {}
        self._totals: NodeTotals | None = None
        self._idle: frozenset[ContainerName] = frozenset()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def saw(self, seen: LastLook) -> None:
        """Record a look."""
        with self._lock:
            self._seen, self._dead, self._limits = seen, frozenset(self.dead()), self.limits()
            self._pauses, self._totals, self._reported = self.pauses(), self.usage(), frozenset(self.reported())
            self._idle = frozenset(self.idle())
            self._errors.update(error.partition(":")[0] for card in seen.cards for error in card.reading.errors)
            self._card_errors.update((event.uuid, event.what) for event in seen.events)

    def failed(self, call: str) -> None:
        """Count a failed call of NVML."""
        with self._lock:
            self._errors[call] += 1

    def acted(self, verb: str, outcome: str) -> None:
        """Count an action by its outcome."""
        with self._lock:
            self._actions[verb, outcome] += 1

    @property
    def age(self) -> float:
        """Seconds since the last look began; infinite before the first."""
        return self.clock() - self._seen.at

    def text(self) -> bytes:
        """Write all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Name no metrics in advance (prometheus_client registry.py)."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, as prometheus_client asks for them."""
        with self._lock:
            seen, dead, limits, pauses, totals = self._seen, self._dead, self._limits, self._pauses, self._totals
            errors, actions, card_errors = dict(self._errors), dict(self._actions), dict(self._card_errors)
            reported, idle = self._reported, self._idle
        yield from _containers(seen, reported)
        yield from _pauses(pauses)
        yield _idle(idle)
        yield from _cards(seen, dead)
        if totals is not None:
            yield from _usage(totals)
        yield _counter("nvml_errors", "Failed calls of NVML.", ("call",), {(call,): n for call, n in errors.items()})
        yield _counter("actions", "Actions of the agent, by outcome.", ("action", "outcome"), actions)
        yield _counter(
            "card_errors", "Critical XIDs and double-bit ECC errors of a card.", ("gpu", "error"), card_errors
        )
        yield from _limits(limits)
        if seen.cards or seen.seconds:
            yield _plain("look_seconds", "Seconds that the last look took.", seen.seconds)
            yield _plain("look_age_seconds", "Seconds since the last look began.", self.clock() - seen.at)


def _counter(name: str, text: str, labels: tuple[str, ...], counts: Mapping[Any, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"slicewarden_node_{name}", text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"slicewarden_node_{name}", text, labels=labels)
    for names, value in sorted(values.items()):
        family.add_metric(names, value)
    return family


def _plain(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"slicewarden_node_{name}", text, value=value)


def _containers(seen: LastLook, reported: Collection[tuple[str, str]]) -> Iterator[Metric]:
    use = GaugeMetricFamily("slicewarden_node_use_bytes", "Bytes of a card that a container uses.", labels=CONTAINER)
    allowance = GaugeMetricFamily(
        "slicewarden_node_allowance_bytes", "Bytes of a card that a container was admitted with.", labels=CONTAINER
    )
    share = GaugeMetricFamily(
        "slicewarden_node_sm_ratio", "Share of the SMs' time that a container used, by NVML.", labels=CONTAINER
    )
    state = GaugeMetricFamily(
        "slicewarden_node_state", "1 for the state of a container's use of a card.", labels=(*CONTAINER, "state")
    )
    told = GaugeMetricFamily(
        "slicewarden_node_reported", "1 for a container whose use of a card was reported.", labels=CONTAINER
    )
    for row in seen.rows:
        if row.container is None:
            continue
        labels = (*row.container.name, row.reading.uuid)
        if row.use.known:
            use.add_metric(labels, row.use.mib * MIB)
        if row.allowance is not None:
            allowance.add_metric(labels, row.allowance * MIB)
        if row.use.sm is not None:
            share.add_metric(labels, row.use.sm / 100)
        state.add_metric((*labels, row.state(seen.slack).value), 1)
        if (row.use.place.container, row.reading.uuid) in reported:
            told.add_metric(labels, 1)
    yield from (use, allowance, share, state, told)


def _limits(counts: LimitCounts) -> Iterator[Metric]:
    limits = GaugeMetricFamily(
        "slicewarden_node_limits", "Memory limits by the driver, per container and card.", labels=("state",)
    )
    limits.add_metric(("set",), counts.set)
    limits.add_metric(("failed",), counts.failed)
    faults = GaugeMetricFamily(
        "slicewarden_node_limit_faults",
        "Running containers whose memory limit by the driver was found to differ from the admitted one.",
        labels=("fault",),
    )
    for each in LimitFault:
        faults.add_metric((each.value,), counts.faults.get(each, 0))
    needs = GaugeMetricFamily(
        "slicewarden_node_limit_needs",
        "1 for each need of NVIDIA's hook that the node meets, else 0, if its pool selects it for limits by the hook.",
        labels=("need",),
    )
    for need, met in counts.needs.items():
        needs.add_metric((need.value,), met)
    yield from (limits, faults, needs)


def _pauses(pauses: Mapping[ContainerName, FrozenTime]) -> Iterator[Metric]:
    frozen = GaugeMetricFamily(
        "slicewarden_node_frozen", "1 for a container that is frozen until its turn, else 0.", labels=CONTAINER[:3]
    )
    seconds = CounterMetricFamily(
        "slicewarden_node_frozen_seconds", "Seconds that a container has been frozen.", labels=CONTAINER[:3]
    )
    for name, pause in sorted(pauses.items()):
        frozen.add_metric(name, int(pause.frozen))
        seconds.add_metric(name, pause.seconds)
    yield from (frozen, seconds)


def _idle(idle: Collection[ContainerName]) -> Metric:
    told = GaugeMetricFamily(
        "slicewarden_node_idle", "1 for a container that was reported because it does not work.", labels=CONTAINER[:3]
    )
    for name in sorted(idle):
        told.add_metric(name, 1)
    return told


HOLDER = ("node", "gpu", "pool", "product", "namespace", "workload", "pod", "container")
"""The labels of a container's usage: the node, and the names of a row of its usage record."""


def _usage(totals: NodeTotals) -> Iterator[Metric]:
    """Yield the counters of the usage record. The sum of a card's states is all its slices' time."""
    rows = sorted((totals.node, *key[1:]) for key in totals.containers)
    amounts = {(totals.node, *key[1:]): each for key, each in totals.containers.items()}

    def counter(name: str, text: str, field: str, unit: float = 1.0) -> Metric:
        family = CounterMetricFamily(f"slicewarden_node_{name}", text, labels=HOLDER)
        for labels in rows:
            family.add_metric(labels, getattr(amounts[labels], field) / 1000 * unit)
        return family

    yield counter("slice_seconds", "Slices that a container has held, times seconds.", "held")
    work = CounterMetricFamily(
        "slicewarden_node_work_seconds",
        "Seconds of a container: working, idle, or unmeasured.",
        labels=(*HOLDER, "work"),
    )
    for labels in rows:
        for each in ("working", "idle", "unmeasured"):
            work.add_metric((*labels, each), getattr(amounts[labels], each) / 1000)
    yield work
    yield counter("over_seconds", "Seconds that a container has been above its allowance.", "over")
    yield counter("contended_seconds", "Seconds that a container has worked while another one did.", "contended")
    yield counter("memory_byte_seconds", "Bytes of a card that a container has used, times seconds.", "memory", MIB)
    yield counter("measured_seconds", "Seconds for which the memory of a container was known.", "measured")
    yield _gauge(
        "peak_bytes",
        "The most bytes of a card that a container has used in the last 5 minutes, or up to 10.",
        HOLDER,
        {labels: amounts[labels].peak * MIB for labels in rows},
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
    yield _counter("card_slice_seconds", "Slices of a card, times seconds, by state.", (*names, "state"), states)
    counted = {labels: each.counted / 1000 for labels, each in times.items()}
    yield _counter("card_counted_seconds", "Seconds for which a card was counted.", names, counted)
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


def _cards(seen: LastLook, dead_cards: Collection[str]) -> Iterator[Metric]:
    def gauge(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"slicewarden_node_card_{name}", text, labels=("gpu", "index", "model"))

    used = gauge("used_bytes", "Bytes of a card in use.")
    total = gauge("total_bytes", "Bytes of a card.")
    rest = gauge(
        "unattributed_bytes", "Bytes of a card in use outside any container, nor by the driver itself (R510 and newer)."
    )
    busy = gauge("busy_ratio", "Share of NVML's last sample period in which a kernel ran on a card.")
    unrequested = gauge("unrequested_containers", "Containers on a card that request no GPU.")
    dead = gauge("dead", "1 for a card that is dead after an event of NVML, or has fallen off the bus, else 0.")
    opened = [card for card in seen.cards if card.reading.opened]
    for card in opened:
        reading = card.reading
        labels = (reading.uuid, reading.number, reading.name)
        dead.add_metric(labels, int((reading.parent or reading.uuid) in dead_cards))
        own = [row for row in seen.rows if row.reading.uuid == reading.uuid]
        unrequested.add_metric(labels, sum(row.state() is UseState.UNREQUESTED for row in own))
        for family, value, unit in (
            (used, reading.used, MIB),
            (total, reading.total, MIB),
            (rest, card.unattributed, MIB),
            (busy, reading.busy, 0.01),
        ):
            if value is not None:
                family.add_metric(labels, value * unit)
    answering = {card.reading.parent or card.reading.uuid for card in opened}
    for uuid in sorted({*dead_cards} - answering):
        dead.add_metric((uuid, "", ""), 1)
    yield from (used, total, rest, busy, unrequested, dead)
