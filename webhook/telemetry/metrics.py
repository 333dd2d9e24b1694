"""Counts the webhook's metrics for Prometheus, over all workers of a replica.

They are kept in files of the folder PROMETHEUS_MULTIPROC_DIR, which must be set before this module is imported. Without
that variable only one process is counted. A label's value is a constant, a rule, an exemption of the policy or a
watched kind. It never comes from a tenant, so the number of series is bounded.
"""

import fcntl
import math
import os
import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
    values,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from webhook.model import Mode, Request, Verdict, Would
from webhook.telemetry import release

FOLDER = "PROMETHEUS_MULTIPROC_DIR"

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds, from the review of a plain pod to the timeout of the slower webhook configuration."""

OUTCOMES = {"/mutate": ("allowed", "malformed", "failed"), "/validate": ("allowed", "denied", "malformed", "failed")}
"""The outcomes of a review, by endpoint."""

BUILD = release.known(), platform.python_version()
"""The releases of the webhook and of Python.

They are read before workers are forked, so that workers share the memory.
"""

_HEARD = "slicewarden_facts_heard"


class Metrics:
    """Counts the metrics of one worker. `text` writes those of all workers. A dry run does not count as a decision."""

    content_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, place: int = 0) -> None:
        """Create the metrics of the worker with this number, counted from 0."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # multiprocess mode does not support them
        self._registry = CollectorRegistry()
        self._lost_so_far = 0
        with _locked(fcntl.LOCK_EX):
            _take_over(place)
            self._declare()

    def _declare(self) -> None:
        self._reviews = self._counter(
            "reviews", "Reviews that were decided or failed, except dry runs.", "endpoint", "outcome"
        )
        self._findings = self._counter(
            "findings",
            "Findings, by the action on them; exempted findings are only recorded.",
            *("rule", "action", "exemption"),
        )
        self._finding = cache(self._findings.labels)
        self._would = self._counter(
            "audited", "Reviews in audit mode, by the effect that the policy would have had.", "endpoint", "would"
        )
        self._unjudged = self._counter(
            "unjudged",
            "Requests that were refused or failed, by HTTP status, except those turned away with 429.",
            "status",
        )
        seconds = Histogram(
            "slicewarden_review_duration_seconds",
            "Seconds from the first byte of a request to its answer, dry runs included.",
            ("endpoint",),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._seconds = {endpoint: seconds.labels(endpoint) for endpoint in OUTCOMES}
        self._shed = self._counter("shed", "Requests turned away with 429 because too many waited.")
        self._waiting = self._gauge("reviews_in_flight", "Requests that are waiting for an answer.", "livesum")
        self._lost = self._counter("log_lines_dropped", "Log lines that could not be written to standard output.")
        self._events = self._counter("events", "Denied pods of controllers, by the outcome of their Event.", "outcome")
        self._breaks = self._counter(
            "watch_breaks", "Lists and watches that broke, and failed checks of rights.", "kind"
        )
        self._heard = self._gauge(
            "facts_heard", "Time of the API server's last message about a kind.", "livemin", "kind"
        )
        self._loaded = self._gauge("facts_loaded", "1 when every worker has facts, else 0.", "livemin")
        self._expiry = self._gauge(
            "certificate_expiry_timestamp_seconds", "Unix time at which the serving certificate expires.", "livemin"
        )
        self._policy = self._gauge(
            "policy_info",
            "1 for each policy that the replica holds, by the hash of its content, else 0.",
            "livemax",
            "hash",
        )
        self._held: frozenset[str] = frozenset()
        self._mode = self._gauge("mode", "1 for the mode that is in force, else 0.", "livemax", "mode")
        self._build = self._gauge("build_info", "The running releases; always 1.", "livemax", "version", "python")
        self._fallback = self._gauge(
            "fallback_objects",
            "With --fallback: the fallback's policies and bindings by state; unread is 1 while they are unknown.",
            *("livemax", "state"),
        )
        self._starts = self._counter(
            "worker_starts", "Workers that were started, including those that replaced a dead one."
        )
        self._begin()

    def _begin(self) -> None:
        """Create every series: Prometheus sees no increase in a series that starts with its first event."""
        # Looked up once, since a lookup costs as much as counting.
        self._ended = {
            (endpoint, outcome): self._reviews.labels(endpoint, outcome)
            for endpoint, outcomes in OUTCOMES.items()
            for outcome in outcomes
        }
        for endpoint in OUTCOMES:
            for would in Would:
                self._would.labels(endpoint, would)
        for status in ("403", "500", "503", "504"):
            self._unjudged.labels(status)
        for outcome in ("written", "dropped", "failed"):
            self._events.labels(outcome)
        self._waiting.set(0)  # a dead worker with this number may have left some
        self._loaded.set(0)
        self._expiry.set(math.inf)  # unknown until it is set; the earliest time of all workers counts
        self._build.labels(*BUILD).set(1)
        self._starts.inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"slicewarden_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, mode: str, *labels: str) -> Gauge:
        return Gauge(f"slicewarden_{name}", text, labels, registry=self._registry, multiprocess_mode=mode)  # type: ignore[arg-type]

    def count(self, endpoint: str, request: Request, verdict: Verdict) -> None:
        """Count a review that was decided."""
        if request.dry_run:
            return
        outcome = "malformed" if verdict.malformed else "allowed" if verdict.allowed else "denied"
        self._ended[endpoint, outcome].inc()
        if verdict.would is not None:
            self._would.labels(endpoint, verdict.would).inc()
        for result in verdict.results:
            self._finding(result.rule, result.action.value, result.exemption).inc()

    def failed(self, endpoint: str) -> None:
        """Count a review that could not be decided."""
        self._ended[endpoint, "failed"].inc()

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count an HTTP answer, and how many seconds it took since the first byte of the request."""
        endpoint = path if path in self._seconds else path[: path.find("/", 1)]  # a path may name policies
        if endpoint in self._seconds:
            self._seconds[endpoint].observe(seconds)
        if status >= HTTPStatus.BAD_REQUEST:
            self.refused(status)

    def refused(self, status: int) -> None:
        """Count a request that was answered without a verdict."""
        self._unjudged.labels(str(int(status))).inc()

    def shed(self) -> None:
        """Count a request that was turned away because too many waited."""
        self._shed.inc()

    def waiting(self, requests: int) -> None:
        """Set the number of requests that wait for an answer."""
        self._waiting.set(requests)

    def lost_lines(self, so_far: int) -> None:
        """Set the number of log lines that could not be written since the worker started."""
        self._lost.inc(so_far - self._lost_so_far)
        self._lost_so_far = so_far

    def event(self, outcome: str, times: int = 1) -> None:
        """Count denials for which an Event is needed, by the outcome: `written`, `dropped` or `failed`."""
        self._events.labels(outcome).inc(times)

    def broke(self, kind: str) -> None:
        """Count an interruption of the watch of a kind."""
        self._breaks.labels(kind).inc()

    def heard(self, kind: str, at: float) -> None:
        """Set the time (`time.monotonic`) at which the API server last sent something about a kind."""
        self._breaks.labels(kind)
        self._heard.labels(kind).set(at)

    def loaded(self, *, whether: bool) -> None:
        """Set whether there are facts."""
        self._loaded.set(whether)

    def judging_by(self, policy: str, mode: Mode) -> None:
        """Set the hash of the policy in force, and the mode."""
        self._policy.labels(policy).set(1)
        for each in Mode:
            self._mode.labels(each).set(each is mode)

    def holding(self, policies: Iterable[str]) -> None:
        """Set the policies that the worker has loaded, by their hashes.

        Series of other policies stay, and are set to 0.
        """
        held = frozenset(policies)
        for policy in self._held - held:
            self._policy.labels(policy).set(0)
        for policy in held:
            self._policy.labels(policy).set(1)
        self._held = held

    def fallback(self, objects: Iterable[tuple[str, int]], *, unread: bool) -> None:
        """Set how many policies and bindings of the fallback are in each state, or that this is unknown."""
        for state, number in objects:
            self._fallback.labels(state).set(number)
        self._fallback.labels("unread").set(unread)

    def certificate(self, expiry: float) -> None:
        """Set the Unix time in seconds at which the serving certificate expires."""
        self._expiry.set(expiry)

    def text(self) -> bytes:
        """Write all metrics in Prometheus' text format."""
        together = CollectorRegistry()
        together.register(_Aged(self._registry))
        return generate_latest(together)


class _Aged:
    """A collector of all metrics that replaces the monotonic time of the facts by their age in seconds."""

    def __init__(self, single: CollectorRegistry) -> None:
        self._single = single

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        now = time.monotonic()
        for metric in self._metrics():
            if metric.name != _HEARD:
                yield metric
                continue
            age = GaugeMetricFamily(
                "slicewarden_facts_age_seconds",
                "Seconds since the API server's last message about a kind, for the worker that has waited longest.",
                labels=("kind",),
            )
            for sample in metric.samples:
                age.add_metric((sample.labels["kind"],), max(now - sample.value, 0.0))
            yield age

    def _metrics(self) -> list[Metric]:
        if FOLDER not in os.environ:
            return list(self._single.collect())
        with _locked(fcntl.LOCK_SH):
            return list(multiprocess.MultiProcessCollector(None, os.environ[FOLDER]).collect())  # type: ignore[no-untyped-call]


def _take_over(place: int) -> None:
    """Continue the counters of the previous worker with this number, without its gauges.

    The number of files stays that of the workers, however many die.
    """
    if FOLDER in os.environ:
        values.ValueClass = values.MultiProcessValue(lambda: place)  # type: ignore[no-untyped-call]
        multiprocess.mark_process_dead(place, os.environ[FOLDER])  # type: ignore[no-untyped-call]


@contextmanager
def _locked(how: int) -> Iterator[None]:
    """Hold the lock that keeps scrapes from reading an unfinished file. It ends with the process."""
    if FOLDER not in os.environ:
        yield
        return
    with (Path(os.environ[FOLDER]) / "lock").open("w") as lock:
        fcntl.flock(lock, how)
        yield
