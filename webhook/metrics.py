"""What was decided, counted over all workers, for Prometheus.

The counters lie in files of the folder that PROMETHEUS_MULTIPROC_DIR names, which has to be set before this is
imported; without it they are those of one process.
"""

import os

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Counter, generate_latest, multiprocess

from webhook.model import Request, Verdict

FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """Counters of reviews and of findings. A dry run counts for nothing."""

    content_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._reviews = Counter(
            "slicewarden_reviews", "Reviews answered.", ("endpoint", "outcome"), registry=self._registry
        )
        self._findings = Counter(
            "slicewarden_findings",
            "Findings, by what was done about them; an exempted one is only recorded.",
            ("rule", "action", "exemption"),
            registry=self._registry,
        )

    def count(self, endpoint: str, request: Request, verdict: Verdict) -> None:
        """Take in a review that was decided."""
        if request.dry_run:
            return
        outcome = "malformed" if verdict.malformed else "allowed" if verdict.allowed else "denied"
        self._reviews.labels(endpoint, outcome).inc()
        for result in verdict.results:
            self._findings.labels(result.rule, result.action.value, result.exemption).inc()

    def failed(self, endpoint: str) -> None:
        """Take in a review that could not be decided."""
        self._reviews.labels(endpoint, "failed").inc()

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Take in a request of any kind that was answered, so long after its first byte came."""

    def shed(self) -> None:
        """Take in a request that was turned away because too much was waiting."""

    def text(self) -> bytes:
        """Write all counters in Prometheus' text format."""
        if FOLDER not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
