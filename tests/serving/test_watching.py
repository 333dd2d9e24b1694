"""Watch a running webhook: in metrics of all its workers, and in lines that no tenant's text can forge."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.policies import FACTS, POLICY
from tests.support.waiting import LONG, until
from tests.support.webhooks import BODY, Running, running
from webhook.api import admission
from webhook.cli import main as cli
from webhook.cli.inputs import load_policy

CANARY = "canary-5f1d"
FORGED = 'a\nb\r\x1b[31m\u2028\u2029\x85\x00"}, {"allowed": true'


class Watched:
    """A webhook of two workers, and what it says."""

    def __init__(self, webhook: Running, log: Path) -> None:
        self.webhook = webhook
        self._log = log

    def series(self) -> dict[str, float]:
        plain = http.client.HTTPConnection("localhost", self.webhook.health, timeout=LONG)
        plain.request("GET", "/metrics")
        lines = plain.getresponse().read().decode().splitlines()
        plain.close()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        connection = self.webhook.connect()
        connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def text(self) -> bytes:
        return self._log.read_bytes()

    def lines(self) -> list[dict[str, Any]]:
        whole, _, _ = self.text().rpartition(b"\n")
        return [json.loads(line) for line in whole.split(b"\n")]

    def line(self, uid: str) -> dict[str, Any]:
        until(lambda: any(line.get("uid") == uid for line in self.lines()))
        (found,) = [line for line in self.lines() if line.get("uid") == uid]
        return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    with (folder / "log").open("wb") as log, running(folder, output=log) as webhook:
        yield Watched(webhook, folder / "log")


def test_any_worker_reports_the_metrics_of_all_even_of_dead_ones(watched: Watched) -> None:
    count = 'slicewarden_review_duration_seconds_count{endpoint="/mutate"}'
    until(lambda: watched.series()["slicewarden_facts_loaded"] == 1)  # whoever answers first does not wait for others
    until(lambda: watched.series()["slicewarden_worker_starts_total"] == 2)
    before = watched.series()
    for _ in range(20):
        assert watched.post("/mutate", BODY)[0] == 200
    until(lambda: watched.series()[count] == before[count] + 20)
    os.kill(min(watched.webhook.workers()), signal.SIGKILL)
    until(lambda: watched.series()["slicewarden_worker_starts_total"] == 3)
    until(lambda: watched.series()[count] == before[count] + 20)  # each worker keeps its text for a second
    until(lambda: watched.series()['slicewarden_reviews_total{endpoint="/mutate",outcome="allowed"}'] >= 20)
    until(lambda: watched.series()["slicewarden_facts_loaded"] == 1)


def test_one_hash_of_the_policy_stands_in_metrics_log_and_answers(watched: Watched) -> None:
    digest = load_policy(str(POLICY)).digest
    assert watched.lines()[0]["policy"] == digest
    assert watched.series()[f'slicewarden_policy_info{{hash="{digest}"}}'] == 1
    _, answer = watched.post("/validate", BODY)
    assert json.loads(answer)["response"]["auditAnnotations"]["policy"] == digest


def test_metrics_show_refusals_and_the_end_of_the_certificate(watched: Watched) -> None:
    refused = 'slicewarden_unjudged_total{status="415"}'
    before = watched.series().get(refused, 0)
    assert watched.post("/validate", b"{}", **{"Content-Type": "text/plain"})[0] == 415
    until(lambda: watched.series().get(refused, 0) == before + 1)
    until(lambda: watched.series()["slicewarden_certificate_expiry_timestamp_seconds"] < float("inf"))


def test_a_name_cannot_forge_a_line(watched: Watched) -> None:
    item = {
        "apiVersion": "v1",
        "kind": FORGED,
        "metadata": {"name": FORGED, "namespace": FORGED, "annotations": {FORGED: FORGED}},
        "spec": {"containers": [{"name": FORGED, "resources": {"limits": {"nvidia.com/gpu": FORGED}}}]},
    }
    body = json.loads(admission.wrap(item, uid="forged"))
    body["request"] |= {"operation": FORGED, "subResource": FORGED, "userInfo": {"username": FORGED}}
    before = len(watched.lines())
    assert watched.post("/validate", json.dumps(body).encode())[0] == 200
    line = watched.line("forged")
    assert {line[key] for key in ("operation", "kind", "subresource", "namespace", "name", "user")} == {FORGED}
    assert len(watched.lines()) == before + 1
    text = watched.text()
    assert text.isascii()
    assert not {byte for byte in text if byte < 0x20} - {ord("\n")}


def test_no_secret_of_a_pod_is_in_answers_logs_metrics_or_events(watched: Watched) -> None:
    """Canaries in all that a review may carry and neither log nor metrics may: part 3, line 43 of the threats."""
    secret = {"name": "TOKEN", "value": CANARY}
    metadata = {
        "name": "train",
        "namespace": "vision",
        "annotations": {"note": CANARY, CANARY: "x", "slicewarden.dev/trust": "trusted"},
        "labels": {"l": CANARY},
    }
    container = {
        "name": "c",
        "image": f"registry.example/{CANARY}",
        "command": [CANARY],
        "args": [f"--token={CANARY}"],
        "env": [secret, {"name": "NVIDIA_VISIBLE_DEVICES", "value": CANARY}],
        "resources": {"limits": {"nvidia.com/gpu": 2}},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "gpu-operator"},
        "data": {"any": f"version: v1\nsharing: {{timeSlicing: {CANARY}}}\n", CANARY: CANARY},
        "binaryData": {"b": CANARY},
    }
    user = {"username": "jane", "uid": CANARY, "groups": [CANARY], "extra": {"token": [CANARY], CANARY: ["x"]}}
    headers = {"Authorization": f"Bearer {CANARY}", "X-Forwarded-For": CANARY, "User-Agent": CANARY, "Cookie": CANARY}
    for number, item in enumerate((pod, config, {**pod, "spec": CANARY}, {**pod, "metadata": CANARY})):
        for path in ("/mutate", "/validate"):
            uid = f"secret-{number}-{path[1:]}"
            body = json.loads(admission.wrap(item, uid=uid))
            body["request"] |= {"userInfo": user, "oldObject": pod, "options": {"note": CANARY}, "namespace": "vision"}
            body["request"]["name"] = "train"
            assert watched.post(f"{path}?timeout=10s&{CANARY}=1", json.dumps(body).encode(), **headers)[0] == 200
            watched.line(uid)
    for body in (f'{{"{CANARY}": '.encode(), f'["{CANARY}"]'.encode(), CANARY.encode()):
        assert watched.post("/validate", body, **headers)[0] == 400
    assert watched.post(f"/{CANARY}", b"", **headers)[0] in (404, 405)
    last = json.loads(admission.wrap(pod, uid="last"))
    watched.post("/validate", json.dumps(last).encode())
    watched.line("last")  # all before it is written
    assert CANARY.encode() not in watched.text()
    assert not [name for name in watched.series() if CANARY in name]


@pytest.mark.parametrize(
    "option", [("--events",), ("--max-facts-age", "600"), ("--kubeconfig", "x"), ("--context", "y")]
)
def test_options_for_a_live_cluster_are_refused_with_a_file_of_facts(
    option: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    tls = ["--tls-cert", "none", "--tls-key", "none"]
    assert cli.main(["serve", "--facts", str(FACTS), *tls, *option]) == 2
    assert capsys.readouterr().err == f"error: {option[0]}: needs --live\n"


@pytest.mark.parametrize("age", ["0", "359", "-1", "1e9", "90000", "ten"])
def test_an_age_that_a_quiet_cluster_reaches_is_refused(age: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--live", "--tls-cert", "a", "--tls-key", "b", "--max-facts-age", age]) == 2
    assert f"'{age}' is not a number from 360 to 86400" in capsys.readouterr().err


def test_audit_mode_lets_through_and_says_so_in_log_metrics_and_answers(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, running(tmp_path, "--audit-only", output=log) as webhook:
        audited = Watched(webhook, tmp_path / "log")
        mutated, validated = (json.loads(audited.post(path, BODY)[1])["response"] for path in ("/mutate", "/validate"))
        assert (mutated["allowed"], "patch" in mutated, validated["allowed"]) == (True, False, True)
        assert validated["auditAnnotations"]["mode"] == "audit"
        assert audited.lines()[0]["mode"] == "audit"
        line = next(line for line in audited.lines() if line.get("endpoint") == "/validate")
        assert (line["mode"], line["would"], line["allowed"], line["operations"]) == ("audit", "patch", True, 0)
        assert "unsteered-pod=repaired" in line["findings"]
        until(lambda: audited.series()['slicewarden_audited_total{endpoint="/validate",would="patch"}'] == 1)
        assert audited.series()['slicewarden_mode{mode="audit"}'] == 1
        assert audited.series()['slicewarden_mode{mode="enforce"}'] == 0


def test_a_lenient_replica_patches_and_only_warns_of_a_patch_that_is_missing(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, running(tmp_path, "--lenient", output=log) as webhook:
        lenient = Watched(webhook, tmp_path / "log")
        mutated, validated = (json.loads(lenient.post(path, BODY)[1])["response"] for path in ("/mutate", "/validate"))
        assert "patch" in mutated
        assert validated["allowed"]
        assert any("unsteered-pod" in each for each in validated["warnings"])
