"""The agent's metrics for Prometheus: bytes, ratios and seconds.

The series of a container are made from the newest look, so they end with it. A label's value is a name of Kubernetes, a
card's UUID or a word of ours; a PID is none.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from webhook.agent.look import CardUse
from webhook.agent.nvml import MIB
from webhook.agent.pods import Name
from webhook.agent.turns import Standstill
from webhook.agent.view import Row, State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

CONTAINER = ("namespace", "pod", "container", "gpu")


@dataclass(frozen=True)
class Seen:
    """One look: the cards, the rows of the containers on them, when it began and how many seconds it took."""

    cards: Sequence[CardUse] = ()
    rows: Sequence[Row] = ()
    at: float = float("-inf")
    seconds: float = 0.0
    slack: int = 0
    dead: Collection[str] = ()
    """The UUIDs of the cards that are dead."""


@dataclass(eq=False)
class Metrics:
    """Keeps the newest look, and counts what lasts longer than one."""

    clock: Callable[[], float] = time.monotonic
    seen: Seen = field(default_factory=Seen)
    faults: Counter[str] = field(default_factory=Counter)
    acts: Counter[tuple[str, str]] = field(default_factory=Counter)
    limits: tuple[int, int] = (0, 0)
    troubles: Counter[tuple[str, str]] = field(default_factory=Counter)
    standstills: Mapping[Name, Standstill] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def saw(self, seen: Seen) -> None:
        """Take in a look."""
        with self._lock:
            self.seen = seen
            self.faults.update(fault.partition(":")[0] for card in seen.cards for fault in card.reading.faults)

    def failed(self, call: str) -> None:
        """Count a call that failed, such as NVML's start."""
        with self._lock:
            self.faults[call] += 1

    def acted(self, act: str, outcome: str) -> None:
        """Count a deed by its outcome."""
        with self._lock:
            self.acts[act, outcome] += 1

    def trouble(self, card: str, what: str) -> None:
        """Count an event of a card."""
        with self._lock:
            self.troubles[card, what] += 1

    def paused(self, standstills: Mapping[Name, Standstill]) -> None:
        """Set how the containers stand that take turns."""
        with self._lock:
            self.standstills = dict(standstills)

    def held(self, by_driver: int, failed: int) -> None:
        """Set how many limits the driver holds, one for each container and card, and how many it refused."""
        with self._lock:
            self.limits = by_driver, failed

    @property
    def age(self) -> float:
        """Seconds since the newest look began; infinite before the first."""
        return self.clock() - self.seen.at

    def text(self) -> bytes:
        """Write all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Name no metrics in advance (prometheus_client registry.py)."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, as prometheus_client asks for them."""
        with self._lock:
            seen, faults, acts, troubles = self.seen, dict(self.faults), dict(self.acts), dict(self.troubles)
            standstills = self.standstills
        yield from _containers(seen)
        yield from _paused(standstills)
        yield from _cards(seen)
        counter = CounterMetricFamily("slicewarden_node_faults", "Calls that failed, by call.", labels=("call",))
        for call, count in sorted(faults.items()):
            counter.add_metric((call,), count)
        yield counter
        counter = CounterMetricFamily("slicewarden_node_acts", "The acts, by outcome.", labels=("act", "outcome"))
        for labels, count in sorted(acts.items()):
            counter.add_metric(labels, count)
        yield counter
        counter = CounterMetricFamily(
            "slicewarden_node_card_troubles", "Events of a card, by what happened.", labels=("gpu", "what")
        )
        for labels, count in sorted(troubles.items()):
            counter.add_metric(labels, count)
        yield counter
        limits = GaugeMetricFamily(
            "slicewarden_node_limits",
            "Limits of containers on cards, by whether the driver holds them.",
            labels=("state",),
        )
        for state, count in zip(("held", "failed"), self.limits, strict=True):
            limits.add_metric((state,), count)
        yield limits
        if seen.cards or seen.seconds:
            yield _plain("look_seconds", "Seconds that the newest look took.", seen.seconds)
            yield _plain("look_age_seconds", "Seconds since the newest look began.", self.clock() - seen.at)


def _plain(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"slicewarden_node_{name}", text, value=value)


def _containers(seen: Seen) -> Iterator[Metric]:
    use = GaugeMetricFamily("slicewarden_node_use_bytes", "Bytes of a card that a container takes.", labels=CONTAINER)
    allowance = GaugeMetricFamily(
        "slicewarden_node_allowance_bytes", "Bytes of a card that a container was admitted with.", labels=CONTAINER
    )
    share = GaugeMetricFamily(
        "slicewarden_node_sm_ratio", "Part of the SMs' time that a container had, by NVML.", labels=CONTAINER
    )
    state = GaugeMetricFamily(
        "slicewarden_node_state", "1 for how a container's use stands to its allowance.", labels=(*CONTAINER, "state")
    )
    for row in seen.rows:
        if row.known is None:
            continue
        labels = (*row.known.name, row.reading.uuid)
        if row.use.known:
            use.add_metric(labels, row.use.mib * MIB)
        if row.allowance is not None:
            allowance.add_metric(labels, row.allowance * MIB)
        if row.use.sm is not None:
            share.add_metric(labels, row.use.sm / 100)
        state.add_metric((*labels, row.state(seen.slack).value), 1)
    yield from (use, allowance, share, state)


def _paused(standstills: Mapping[Name, Standstill]) -> Iterator[Metric]:
    frozen = GaugeMetricFamily(
        "slicewarden_node_frozen", "1 for a container that stands still until its turn, else 0.", labels=CONTAINER[:3]
    )
    seconds = CounterMetricFamily(
        "slicewarden_node_frozen_seconds", "Seconds that a container has stood still.", labels=CONTAINER[:3]
    )
    for name, stands in sorted(standstills.items()):
        frozen.add_metric(name, int(stands.frozen))
        seconds.add_metric(name, stands.seconds)
    yield from (frozen, seconds)


def _cards(seen: Seen) -> Iterator[Metric]:
    def gauge(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"slicewarden_node_card_{name}", text, labels=("gpu", "index", "model"))

    used = gauge("used_bytes", "Bytes of a card in use.")
    total = gauge("total_bytes", "Bytes of a card.")
    rest = gauge("unattributed_bytes", "Bytes of a card in use that no container has.")
    busy = gauge("busy_ratio", "Part of NVML's last period in which a kernel ran on a card.")
    strangers = gauge("strangers", "Containers on a card that asked for no GPU.")
    dead = gauge("dead", "1 for a card that is dead, by an event of NVML or since it fell off its bus, else 0.")
    for card in seen.cards:
        reading = card.reading
        labels = (reading.uuid, reading.number, reading.name)
        dead.add_metric(labels, int((reading.parent or reading.uuid) in seen.dead))
        own = [row for row in seen.rows if row.reading.uuid == reading.uuid]
        strangers.add_metric(labels, sum(row.state() is State.STRANGER for row in own))
        for family, value, unit in (
            (used, reading.used, MIB),
            (total, reading.total, MIB),
            (rest, card.unattributed, MIB),
            (busy, reading.busy, 0.01),
        ):
            if value is not None:
                family.add_metric(labels, value * unit)
    answering = {card.reading.parent or card.reading.uuid for card in seen.cards}
    for uuid in sorted({*seen.dead} - answering):
        dead.add_metric((uuid, "", ""), 1)
    yield from (used, total, rest, busy, strangers, dead)
