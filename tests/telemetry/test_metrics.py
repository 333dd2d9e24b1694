"""Look at what Prometheus is told: decisions, findings, their seconds and the age of the facts, over all workers."""

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import ROOT
from tests.support.asking import ask
from webhook.api import admission
from webhook.documents import files
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Finding, Mode, Request, Result, Verdict
from webhook.serving.app import Health, ReviewApplication
from webhook.telemetry.metrics import OUTCOMES, Metrics

FIXTURES = ROOT / "tests/fixtures"
DENIED = Verdict((Result("multiple-slices", Action.DENY, Finding((), "m")),))
EXEMPT = Verdict((Result("multiple-slices", Action.AUDIT, Finding((), "m"), "moving"),))


def request(*, dry_run: bool = False) -> Request:
    return Request("u", "CREATE", "", "v1", "Pod", "", "a", "b", None, dry_run, {}, None)


def samples(metrics: Metrics | bytes) -> dict[str, float]:
    """Every series that is not zero, by name and labels as they are written."""
    text = metrics if isinstance(metrics, bytes) else metrics.text()
    lines = (line for line in text.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines) if float(value)}


def counted(metrics: Metrics) -> dict[str, float]:
    return {
        name: value
        for name, value in samples(metrics).items()
        if name.startswith(("slicewarden_reviews_total", "slicewarden_findings_total"))
    }


def test_every_decision_is_counted() -> None:
    metrics = Metrics()
    for verdict in (Verdict(), DENIED, EXEMPT):
        metrics.count("/validate", request(), verdict)
    metrics.count("/validate", request(dry_run=True), DENIED)
    metrics.failed("/mutate")
    assert counted(metrics) == {
        'slicewarden_reviews_total{endpoint="/validate",outcome="allowed"}': 2,
        'slicewarden_reviews_total{endpoint="/validate",outcome="denied"}': 1,
        'slicewarden_reviews_total{endpoint="/mutate",outcome="failed"}': 1,
        'slicewarden_findings_total{action="Deny",exemption="",rule="multiple-slices"}': 1,
        'slicewarden_findings_total{action="Audit",exemption="moving",rule="multiple-slices"}': 1,
    }


def test_every_outcome_is_there_before_it_happens() -> None:
    """`increase()` of a series that begins with its first event does not see that event."""
    text = Metrics().text().decode()
    for endpoint, outcomes in OUTCOMES.items():
        for outcome in outcomes:
            assert f'slicewarden_reviews_total{{endpoint="{endpoint}",outcome="{outcome}"}} 0.0' in text


def test_the_time_of_reviews_is_a_cumulative_histogram() -> None:
    metrics = Metrics()
    for seconds in (0.00005, 0.0003, 0.0004, 7.0):
        metrics.answered("/mutate", 200, seconds)
    metrics.answered("/anything", 404, 0.1)
    seen = samples(metrics)
    for bound, count in (("0.0001", 1), ("0.00025", 1), ("0.0005", 3), ("5.0", 3), ("+Inf", 4)):
        assert seen[f'slicewarden_review_duration_seconds_bucket{{endpoint="/mutate",le="{bound}"}}'] == count
    assert seen['slicewarden_review_duration_seconds_count{endpoint="/mutate"}'] == 4
    assert seen['slicewarden_review_duration_seconds_sum{endpoint="/mutate"}'] == pytest.approx(7.00075)
    bounds = [line for line in metrics.text().decode().splitlines() if '_bucket{endpoint="/mutate"' in line]
    assert ('le="0.0001"' in bounds[0], 'le="5.0"' in bounds[-2]) == (True, True)


def test_metrics_show_the_age_of_facts_by_kind() -> None:
    metrics = Metrics()
    metrics.heard("Node", time.monotonic() - 100)
    metrics.heard("Pod", time.monotonic())
    seen = samples(metrics)
    node, pod = (seen[f'slicewarden_facts_age_seconds{{kind="{kind}"}}'] for kind in ("Node", "Pod"))
    assert 100 <= node < 160
    assert 0 <= pod < 60
    assert "slicewarden_facts_heard" not in metrics.text().decode()


def test_metrics_show_waiting_requests_and_lost_lines() -> None:
    metrics = Metrics()
    metrics.waiting(3)
    metrics.waiting(2)
    metrics.shed()
    metrics.lost_lines(1)
    metrics.lost_lines(1)
    metrics.event("written")
    metrics.event("dropped", 5)
    metrics.broke("Node")
    seen = samples(metrics)
    assert seen["slicewarden_reviews_in_flight"] == 2
    for name in ("shed", "log_lines_dropped", 'events{outcome="written"}', 'watch_breaks{kind="Node"}'):
        word, brace, labels = name.partition("{")
        assert seen[f"slicewarden_{word}_total{brace}{labels}"] == 1
    assert seen['slicewarden_events_total{outcome="dropped"}'] == 5


def test_metrics_show_the_policy_in_force() -> None:
    metrics = Metrics()
    assert "slicewarden_certificate_expiry_timestamp_seconds" in samples(metrics)
    metrics.certificate(1_800_000_000)
    metrics.judging_by("0123456789abcdef", Mode.ENFORCE)
    metrics.loaded(whether=True)
    seen = samples(metrics)
    assert seen["slicewarden_certificate_expiry_timestamp_seconds"] == 1_800_000_000
    assert seen['slicewarden_policy_info{hash="0123456789abcdef"}'] == 1
    assert seen["slicewarden_facts_loaded"] == 1
    assert [name for name in seen if name.startswith("slicewarden_build_info{")]


@pytest.mark.parametrize(("path", "outcome"), [("/mutate", "allowed"), ("/validate", "denied")])
def test_a_review_over_http_is_counted(engine: Engine, sample_facts: Facts, path: str, outcome: str) -> None:
    metrics = Metrics()
    app = ReviewApplication(engine, lambda: sample_facts, lambda _: None, metrics)
    containers: list[dict[str, Any]] = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
    assert ask(app, path, admission.wrap(pod)).status == 200
    assert samples(metrics)[f'slicewarden_reviews_total{{endpoint="{path}",outcome="{outcome}"}}'] == 1
    assert samples(metrics)[f'slicewarden_policy_info{{hash="{engine.policy.digest}"}}'] == 1


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_an_object_that_is_too_large_is_counted_for_both_endpoints(
    engine: Engine, sample_facts: Facts, path: str
) -> None:
    metrics = Metrics()
    app = ReviewApplication(engine, lambda: sample_facts, lambda _: None, metrics)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{}] * 3_000}}
    answer = ask(app, path, admission.wrap(pod))
    assert answer.status == 200
    assert json.loads(answer.body)["response"]["status"]["code"] == 422
    assert samples(metrics)[f'slicewarden_reviews_total{{endpoint="{path}",outcome="malformed"}}'] == 1


def test_answers_without_a_verdict_are_counted_by_status() -> None:
    metrics = Metrics()
    for path, status in (("/validate", 200), ("/validate", 500), ("/", 404), ("/readyz", 200)):
        metrics.answered(path, status, 0.001)
    metrics.refused(413)
    metrics.refused(413)
    found = {name: value for name, value in samples(metrics).items() if "unjudged" in name}
    assert found == {f'slicewarden_unjudged_total{{status="{s}"}}': n for s, n in ((404, 1), (413, 2), (500, 1))}


def test_only_the_health_port_serves_metrics(engine: Engine, sample_facts: Facts) -> None:
    metrics = Metrics()
    assert ask(Health(lambda: True, metrics), "/metrics", method="GET").status == 200
    app = ReviewApplication(engine, lambda: sample_facts, lambda _: None, metrics)
    assert ask(app, "/metrics", method="GET").status == 404


def test_no_tenants_text_becomes_a_label_of_a_metric(engine: Engine, sample_facts: Facts) -> None:
    """Denials of every rule, and many reviews whose every word is of a tenant's own, make 200 series at most."""
    metrics = Metrics()
    for kind in ("Namespace", "Node", "ClusterPolicy", "Pod", "ConfigMap", "DaemonSet"):
        metrics.heard(kind, time.monotonic())
    app = ReviewApplication(engine, lambda: sample_facts, lambda _: None, metrics)

    documents, _ = files.load(sorted(map(str, FIXTURES.glob("*/deny-*.yaml"))))
    for item in files.items(documents)[0]:
        ask(app, "/mutate", admission.wrap(item.value))
        ask(app, "/validate", admission.wrap(item.value))
    before = len(series(metrics))
    for number in range(300):
        word = f'canary-{number}"}}\n# {{,='
        limits = {"nvidia.com/gpu": 2, f"nvidia.com/{word}": "1"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": word, "namespace": word, "annotations": {word: word, "slicewarden.dev/trust": word}},
            "spec": {"serviceAccountName": word, "containers": [{"name": word, "resources": {"limits": limits}}]},
        }
        asked = json.loads(admission.wrap(pod))
        asked["request"] |= {
            "userInfo": {"username": word, "groups": [word]},
            "operation": ("CREATE", word)[number % 2],
        }
        asked["request"]["kind"]["kind"] = ("Pod", word)[number % 3 == 0]
        ask(app, ("/mutate", "/validate")[number % 2], json.dumps(asked).encode())
        ask(app, f"/validate/{number}", b"")
    after = series(metrics)
    assert not {name for name in after if "canary" in name}
    assert len(after) - before <= 3
    assert len({name for name in after if "findings" in name}) >= 25
    assert len(after) <= 200


def series(metrics: Metrics) -> set[str]:
    lines = metrics.text().decode().splitlines()
    return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}


# Over several processes

WORKER = """
    import sys
    from webhook.telemetry.metrics import Metrics
    from webhook.model import Request, Verdict
    request = Request("u", "CREATE", "", "v1", "Pod", "", "a", "b", None, False, {}, None)
    metrics = Metrics(int(sys.argv[2]))
    for _ in range(int(sys.argv[1])):
        metrics.answered("/validate", 200, 0.001)
        metrics.count("/validate", request, Verdict())
    metrics.heard("Node", 1.0)
    metrics.loaded(whether=True)
    sys.stdout.buffer.write(metrics.text())
    sys.stdout.flush()
    if len(sys.argv) > 3:
        metrics.waiting(3)
        sys.stdin.read()
"""


def worker(folder: Path, reviews: int, place: int, *more: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(reviews), str(place), *more]
    root = str(ROOT)
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(folder), "PYTHONPATH": root}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def said(process: "subprocess.Popen[bytes]") -> dict[str, float]:
    with process:
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    return samples(out)


def test_a_worker_goes_on_with_the_counts_of_the_one_before_in_the_same_files(tmp_path: Path) -> None:
    for number in range(1, 4):
        seen = said(worker(tmp_path, 10, 1))
        assert seen['slicewarden_reviews_total{endpoint="/validate",outcome="allowed"}'] == 10 * number
        assert seen['slicewarden_review_duration_seconds_count{endpoint="/validate"}'] == 10 * number
        assert seen["slicewarden_worker_starts_total"] == number
        assert seen["slicewarden_facts_loaded"] == 1, "a dead worker's facts are nobody's"
        kinds = {"counter", "histogram", "gauge_livesum", "gauge_livemin", "gauge_livemax"}
        assert {file.name for file in tmp_path.iterdir()} == {f"{kind}_1.db" for kind in kinds} | {"lock"}


def test_a_worker_that_is_killed_over_a_review_leaves_none_in_flight(tmp_path: Path) -> None:
    first = worker(tmp_path, 5, 0, "stay")
    with first:
        assert first.stdout is not None
        while b"worker_starts_total 1" not in first.stdout.readline():
            pass
        second = said(worker(tmp_path, 5, 1))
        assert second['slicewarden_reviews_total{endpoint="/validate",outcome="allowed"}'] == 10, "both are counted"
        first.kill()
    third = said(worker(tmp_path, 0, 0))
    assert third['slicewarden_reviews_total{endpoint="/validate",outcome="allowed"}'] == 10
    assert "slicewarden_reviews_in_flight" not in third


def test_an_empty_metrics_file_of_a_killed_worker_does_no_harm(tmp_path: Path) -> None:
    for kind in ("counter", "gauge_livesum"):
        (tmp_path / f"{kind}_1.db").touch()
    assert said(worker(tmp_path, 1, 1))["slicewarden_worker_starts_total"] == 1


def test_the_parser_of_prometheus_reads_the_metrics() -> None:
    names = {family.name for family in text_string_to_metric_families(Metrics().text().decode())}
    assert "slicewarden_reviews" in names
    assert all(name.startswith("slicewarden_") for name in names)


def test_a_policy_that_is_no_longer_held_counts_nothing() -> None:
    metrics = Metrics()
    for held in (["1f", "2e"], ["2e"]):
        metrics.holding(held)
    assert [name for name in samples(metrics) if name.startswith("slicewarden_policy_info")] == [
        'slicewarden_policy_info{hash="2e"}'
    ]
