"""Serves the controller's metrics and health over plain HTTP."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from webhook.controller.reach import Replica
from webhook.controller.status import READY, Standing


class ControllerMetrics:
    """Keeps the result of the last look, and counters over all looks.

    The value of a label is a digest or a fixed word.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._at = clock, clock()
        self._leads = False
        self._standing: Standing | None = None
        self._replicas: list[Replica] = []
        self._writes, self._errors = 0, Counter[str]()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    @property
    def age(self) -> float:
        """Seconds since the last look, or since another controller's lease was seen."""
        return self._clock() - self._at

    def looked(self, *, leads: bool) -> None:
        """Record that a look ended, or that another controller was seen to lead."""
        self._leads, self._at = leads, self._clock()

    def saw(self, standing: Standing | None, replicas: list[Replica], *, wrote: bool) -> None:
        """Record the result of a look."""
        self._standing, self._replicas, self._writes = standing, replicas, self._writes + wrote

    def failed(self, kind: str) -> None:
        """Count a look that failed: `conflict`, `refused`, `unreachable` or `other`."""
        self._errors[kind] += 1

    def text(self) -> bytes:
        """Return the metrics as Prometheus reads them."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield GaugeMetricFamily("slicewarden_controller_leads", "1 if this controller leads.", float(self._leads))
        info = GaugeMetricFamily(
            "slicewarden_policy_standing",
            "The policy in force, or that is to come into force; always 1.",
            labels=("digest", "mode", "ready", "reason"),
        )
        if self._leads and self._standing and self._standing.fields.get("digest"):
            fields, reason = self._standing.fields, self._standing.reason
            ready = "true" if reason in READY else "false"
            info.add_metric((fields["digest"], fields.get("mode", ""), ready, reason.value), 1)
        yield info
        replicas = GaugeMetricFamily(
            "slicewarden_controller_replicas", "Replicas of the webhook, by whether they answer.", labels=("answers",)
        )
        silent = sum(bool(each.why) for each in self._replicas)
        replicas.add_metric(("true",), len(self._replicas) - silent)
        replicas.add_metric(("false",), silent)
        yield replicas
        yield CounterMetricFamily("slicewarden_controller_writes", "Writes that a look made.", self._writes)
        errors = CounterMetricFamily("slicewarden_controller_errors", "Looks that failed.", labels=("kind",))
        for kind in ("conflict", "refused", "unreachable", "other"):
            errors.add_metric((kind,), self._errors[kind])
        yield errors
