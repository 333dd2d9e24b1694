"""What Prometheus is told: reviews by outcome, findings by rule, action and exemption, over all workers."""

from typing import Any

import pytest

from webhook import review, server
from webhook.engine import Engine
from webhook.facts import Facts
from webhook.metrics import Metrics
from webhook.model import Action, Finding, Request, Result, Verdict

DENIED = Verdict((Result("multiple-slices", Action.DENY, Finding((), "m")),))
EXEMPT = Verdict((Result("multiple-slices", Action.AUDIT, Finding((), "m"), "moving"),))


def request(*, dry_run: bool = False) -> Request:
    return Request("u", "CREATE", "", "v1", "Pod", "", "a", "b", None, dry_run, {}, None)


def samples(metrics: Metrics) -> dict[str, float]:
    lines = (line for line in metrics.text().decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines) if "_total" in name}


def test_what_is_decided_is_counted() -> None:
    metrics = Metrics()
    for verdict in (Verdict(), DENIED, EXEMPT):
        metrics.count("/validate", request(), verdict)
    metrics.count("/validate", request(dry_run=True), DENIED)
    metrics.failed("/mutate")
    assert samples(metrics) == {
        'slicewarden_reviews_total{endpoint="/validate",outcome="allowed"}': 2,
        'slicewarden_reviews_total{endpoint="/validate",outcome="denied"}': 1,
        'slicewarden_reviews_total{endpoint="/mutate",outcome="failed"}': 1,
        'slicewarden_findings_total{action="Deny",exemption="",rule="multiple-slices"}': 1,
        'slicewarden_findings_total{action="Audit",exemption="moving",rule="multiple-slices"}': 1,
    }


@pytest.mark.parametrize(("path", "outcome"), [("/mutate", "allowed"), ("/validate", "denied")])
def test_a_review_over_http_is_counted(engine: Engine, sample_facts: Facts, path: str, outcome: str) -> None:
    metrics = Metrics()
    app = server.application(engine, lambda: sample_facts, lambda _: None, metrics).test_client()
    containers: list[dict[str, Any]] = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
    answer = app.post(path, data=review.wrap(pod), content_type="application/json")
    assert answer.status_code == 200
    assert samples(metrics)[f'slicewarden_reviews_total{{endpoint="{path}",outcome="{outcome}"}}'] == 1


def test_metrics_stand_on_the_port_of_health_alone(engine: Engine, sample_facts: Facts) -> None:
    metrics = Metrics()
    assert server.health(lambda: sample_facts, metrics).test_client().get("/metrics").status_code == 200
    app = server.application(engine, lambda: sample_facts, lambda _: None, metrics).test_client()
    assert app.get("/metrics").status_code == 404
