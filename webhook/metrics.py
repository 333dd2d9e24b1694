"""What the webhook tells Prometheus of itself, over all workers of a replica.

Every number lies in files of the folder that PROMETHEUS_MULTIPROC_DIR names, which has to be set before this is
imported; without it they are those of one process. A label's value is a word of ours, a rule, an exemption of the
policy or a kind that is watched, and nothing that a tenant writes: there are no more series than such words.
"""

import fcntl
import math
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    mmap_dict,
    multiprocess,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from webhook.model import Request, Verdict

FOLDER = "PROMETHEUS_MULTIPROC_DIR"

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds: from a review of a plain pod to the timeout of the slower webhook configuration."""

OUTCOMES = {"/mutate": ("allowed", "malformed", "failed"), "/validate": ("allowed", "denied", "malformed", "failed")}
"""How a review may end, by endpoint."""

PAST = "0"
"""The process number under which the counts of those that are gone are kept: the kernel gives it to none."""

_HEARD = "slicewarden_facts_heard"


class Metrics:
    """Numbers of one worker, which it writes, and of all of them, which `text` reads. A dry run is no decision."""

    content_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # several processes have none
        self._registry = CollectorRegistry()
        self._lost_so_far = 0
        with _alone():
            self._declare()

    def _declare(self) -> None:
        self._reviews = self._counter("reviews", "Reviews decided or failed, dry runs aside.", "endpoint", "outcome")
        self._findings = self._counter(
            "findings",
            "Findings, by what was done about them; an exempted one is only recorded.",
            *("rule", "action", "exemption"),
        )
        self._unjudged = self._counter(
            "unjudged",
            "Requests that were refused or failed, by HTTP status; those turned away are not among them.",
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
        self._waiting = self._gauge("reviews_in_flight", "Requests that wait for their answer.", "livesum")
        self._lost = self._counter("log_lines_dropped", "Log lines that standard output did not take.")
        self._events = self._counter("events", "Denials under a controller, by what became of their Event.", "outcome")
        self._breaks = self._counter("watch_breaks", "Lists and watches that broke and were taken up again.", "kind")
        self._heard = self._gauge("facts_heard", "When the API server last spoke of a kind.", "livemin", "kind")
        self._loaded = self._gauge("facts_loaded", "1 when every worker has facts to judge by, else 0.", "livemin")
        self._expiry = self._gauge(
            "certificate_expiry_timestamp_seconds", "Unix time at which the serving certificate expires.", "livemin"
        )
        self._policy = self._gauge(
            "policy_info", "The policy in force, by the hash of what it says; always 1.", "livemax", "hash"
        )
        self._build = self._gauge("build_info", "What is running; always 1.", "livemax", "version", "python")
        self._starts = self._counter("worker_starts", "Workers started: each but the first of a place is for one dead.")
        self._begin()

    def _begin(self) -> None:
        """Start from what holds of a worker that has done nothing: a first increase is to be seen as one."""
        # Looked up here once, which costs as much as counting.
        self._ended = {
            (endpoint, outcome): self._reviews.labels(endpoint, outcome)
            for endpoint, outcomes in OUTCOMES.items()
            for outcome in outcomes
        }
        for status in ("403", "500", "503", "504"):
            self._unjudged.labels(status)
        for outcome in ("written", "dropped", "failed"):
            self._events.labels(outcome)
        self._waiting.set(0)  # a process of the same number may have died over some
        self._loaded.set(0)
        self._expiry.set(math.inf)  # not known; the earliest of all workers counts
        self._build.labels(version("slicewarden"), platform.python_version()).set(1)
        self._starts.inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"slicewarden_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, mode: str, *labels: str) -> Gauge:
        return Gauge(f"slicewarden_{name}", text, labels, registry=self._registry, multiprocess_mode=mode)  # type: ignore[arg-type]

    def count(self, endpoint: str, request: Request, verdict: Verdict) -> None:
        """Take in a review that was decided."""
        if request.dry_run:
            return
        outcome = "malformed" if verdict.malformed else "allowed" if verdict.allowed else "denied"
        self._ended[endpoint, outcome].inc()
        for result in verdict.results:
            self._findings.labels(result.rule, result.action.value, result.exemption).inc()

    def failed(self, endpoint: str) -> None:
        """Take in a review that could not be decided."""
        self._ended[endpoint, "failed"].inc()

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Take in an HTTP answer, so long after the request's first byte."""
        if path in self._seconds:
            self._seconds[path].observe(seconds)
        if status >= HTTPStatus.BAD_REQUEST:
            self.refused(status)

    def refused(self, status: int) -> None:
        """Take in a request that was answered without a verdict."""
        self._unjudged.labels(str(int(status))).inc()

    def shed(self) -> None:
        """Take in a request that was turned away because too many waited."""
        self._shed.inc()

    def waiting(self, requests: int) -> None:
        """Say how many requests wait for an answer."""
        self._waiting.set(requests)

    def lost_lines(self, so_far: int) -> None:
        """Say how many log lines could not be written since the worker started."""
        self._lost.inc(so_far - self._lost_so_far)
        self._lost_so_far = so_far

    def event(self, outcome: str, times: int = 1) -> None:
        """Take in what became of denials that ask for an event: `written`, `dropped` or `failed`."""
        self._events.labels(outcome).inc(times)

    def broke(self, kind: str) -> None:
        """Take in that the watch of a kind broke."""
        self._breaks.labels(kind).inc()

    def heard(self, kind: str, at: float) -> None:
        """Take in when the API server last said something of a kind, be it that nothing changed (`time.monotonic`)."""
        self._breaks.labels(kind)
        self._heard.labels(kind).set(at)

    def loaded(self, *, whether: bool) -> None:
        """Say whether there are facts to judge by."""
        self._loaded.set(whether)

    def judging_by(self, policy: str) -> None:
        """Say by which policy is judged."""
        self._policy.labels(policy).set(1)

    def certificate(self, expiry: float) -> None:
        """Say when the serving certificate expires, in seconds of Unix time."""
        self._expiry.set(expiry)

    def text(self) -> bytes:
        """Write all numbers in Prometheus' text format."""
        together = CollectorRegistry()
        together.register(_Aged(self._registry))
        return generate_latest(together)


class _Aged:
    """All metrics, with how long ago in place of a clock that only this machine knows."""

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
                "Seconds since the API server last said anything of a kind, to the worker that has waited longest.",
                labels=("kind",),
            )
            for sample in metric.samples:
                age.add_metric((sample.labels["kind"],), max(now - sample.value, 0.0))
            yield age

    def _metrics(self) -> list[Metric]:
        if FOLDER not in os.environ:
            return list(self._single.collect())
        folder = Path(os.environ[FOLDER])
        with _locked(folder, fcntl.LOCK_SH):
            return list(multiprocess.MultiProcessCollector(None, folder).collect())  # type: ignore[no-untyped-call]


@contextmanager
def _alone() -> Iterator[None]:
    """Have no other worker read the files while some are made, after those of the dead are gone."""
    if FOLDER not in os.environ:
        yield
        return
    folder = Path(os.environ[FOLDER])
    with _locked(folder, fcntl.LOCK_EX):
        _bury(folder)
        yield


def _bury(folder: Path) -> None:
    """Add what workers counted that are gone to the counts of the past, and remove their files."""
    for process in {file.stem.rpartition("_")[2] for file in folder.glob("*.db")} - {PAST}:
        if not _alive(int(process)):
            for file in folder.glob(f"*_{process}.db"):
                if not file.name.startswith("gauge_"):
                    _add(folder / f"{file.stem.partition('_')[0]}_{PAST}.db", file)
                file.unlink()


def _add(past: Path, file: Path) -> None:
    if not file.stat().st_size:  # it died when it had just begun
        return
    kept = mmap_dict.MmapedDict(str(past))  # type: ignore[no-untyped-call]
    for key, value, _, _ in mmap_dict.MmapedDict.read_all_values_from_file(str(file)):  # type: ignore[no-untyped-call]
        before, _ = kept.read_value(key)  # type: ignore[no-untyped-call]
        kept.write_value(key, before + value, 0.0)  # type: ignore[no-untyped-call]
    kept.close()  # type: ignore[no-untyped-call]


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Keep scrapes from seeing a worker's counts twice or not at all; the lock goes with the process."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, how)
        yield
