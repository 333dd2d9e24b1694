"""The agent's metrics for Prometheus: bytes, ratios and seconds.

A container's series are made from the last look, so they end when the container does; its usage counters stay for a
while. A label's value is a Kubernetes name, a card's UUID or a fixed word, never a PID.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from webhook.agent.observe.limited import LimitCounts, LimitFault
from webhook.agent.observe.look import CardUse
from webhook.agent.observe.nvml import MIB, NvmlEvent
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.view import ContainerRow, UseState
from webhook.agent.turns.turns import FrozenTime
from webhook.usage.series import counter, usage_series
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
    """Keeps the result of the last look, and counters over all looks.

    `dead` returns the UUIDs of the dead cards, `reported` the ids and cards of the containers whose use the watchdog
    has reported, `limits` the counts of the driver's limits, and `pauses` how long containers have been frozen. `usage`
    returns the counts of use, or None if nothing is counted. All of them are called at each look, in the same thread.
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
        """The seconds since the last look began; infinite before the first look."""
        return self.clock() - self._seen.at

    def text(self) -> bytes:
        """Write all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Return no metrics: prometheus_client asks for names in advance (registry.py), and none are known."""
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
            yield from usage_series(totals)
        yield counter("nvml_errors", "Failed calls of NVML.", ("call",), {(call,): n for call, n in errors.items()})
        yield counter("actions", "Actions of the agent, by outcome.", ("action", "outcome"), actions)
        yield counter(
            "card_errors", "Critical XIDs and double-bit ECC errors of a card.", ("gpu", "error"), card_errors
        )
        yield from _limits(limits)
        if seen.cards or seen.seconds:
            yield _plain("look_seconds", "Seconds that the last look took.", seen.seconds)
            yield _plain("look_age_seconds", "Seconds since the last look began.", self.clock() - seen.at)


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
