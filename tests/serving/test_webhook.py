"""The webhook as it runs: its own process, real TLS, real HTTP."""

import base64
import contextlib
import http.client
import io
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import certs
from tests import ROOT
from tests.support import strategies
from tests.support.asking import ask as answered
from tests.support.callers import caller, write
from tests.support.objects import untrusted_pod as pod
from tests.support.policies import FACTS, POLICY
from tests.support.waiting import LONG, until
from webhook.api import admission, jsonpatch
from webhook.cli import demo
from webhook.cli import main as cli
from webhook.cli.inputs import load_engine, load_policy
from webhook.documents import files
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.serving import app as serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("webhook")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[demo.Client]:
    with demo.webhook(POLICY, FACTS, folder) as running:
        yield running


@pytest.fixture
def connection(client: demo.Client, folder: Path) -> Iterator[http.client.HTTPSConnection]:
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    fresh = http.client.HTTPSConnection("localhost", client.port, context=context, timeout=LONG)
    yield fresh
    fresh.close()


def ask(
    connection: http.client.HTTPSConnection, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}


def post(connection: http.client.HTTPSConnection, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    status, data, _ = ask(connection, "POST", path, body, **{"Content_Type": "application/json", **headers})
    return status, data


def log(folder: Path, uid: str) -> dict[str, Any]:
    """The log line of one review; it may come a moment after the answer."""
    found: list[dict[str, Any]] = []

    def logged() -> bool:
        whole, _, _ = (folder / "log").read_text("ascii").rpartition("\n")
        found[:] = [line for line in map(json.loads, whole.splitlines()) if line.get("uid") == uid]
        return bool(found)

    until(logged, f"a line for {uid}")
    (line,) = found  # one line per review
    return line


def test_both_halves_answer_and_the_mutated_pod_passes(client: demo.Client) -> None:
    mutated = demo.review_by(client, "/mutate", pod())
    assert mutated["allowed"] is True
    assert mutated["patchType"] == "JSONPatch"
    after = jsonpatch.apply(pod(), json.loads(base64.b64decode(mutated["patch"])))
    policy = {"policy": load_policy(str(POLICY)).digest}
    assert demo.review_by(client, "/validate", after) == {
        "uid": "offline",
        "allowed": True,
        "auditAnnotations": policy,
    }


def test_an_unsteered_pod_is_denied_with_http_200_and_403_inside(client: demo.Client) -> None:
    answer = demo.review_by(client, "/validate", pod())
    assert answer["allowed"] is False
    assert answer["status"]["code"] == 403
    assert " unsteered-pod: spec: " in answer["status"]["message"]
    assert "patch" not in answer


def test_200_reviews_use_one_connection(connection: http.client.HTTPSConnection) -> None:
    connection.connect()
    first = connection.sock
    for _ in range(200):
        assert post(connection, "/mutate", admission.wrap(pod()))[0] == 200
        assert connection.sock is first


def test_only_tls_1_3_is_spoken(client: demo.Client, folder: Path) -> None:
    old = ssl.create_default_context(cafile=folder / "ca.crt")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("localhost", client.port), 5) as raw, pytest.raises(ssl.SSLError):
        old.wrap_socket(raw, server_hostname="localhost")


def test_http_2_is_never_chosen(client: demo.Client, folder: Path) -> None:
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("localhost", client.port), 5) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as wrapped,
    ):
        assert wrapped.selected_alpn_protocol() != "h2"


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_reviews_are_posted(connection: http.client.HTTPSConnection, method: str, path: str) -> None:
    status, _, headers = ask(connection, method, path)
    assert (status, headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Type": "application/json; charset=utf-8"}, 200),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": ""}, 415),
        ({"Content_Encoding": "gzip"}, 415),
        ({"Content_Encoding": "identity"}, 200),
    ],
)
def test_only_plain_json_is_taken(
    connection: http.client.HTTPSConnection, headers: dict[str, str], status: int
) -> None:
    assert post(connection, "/mutate", admission.wrap(pod()), **headers)[0] == status


def send(client: demo.Client, folder: Path, text: bytes) -> int:
    """Send raw bytes; return the status of the answer."""
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    with (
        socket.create_connection(("localhost", client.port), 5) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as wrapped,
    ):
        wrapped.sendall(text)
        return int(wrapped.recv(64).split()[1])


HEAD = b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("length", [b"", b"Content-Length: 2\r\n"])
def test_chunked_bodies_are_refused(client: demo.Client, folder: Path, length: bytes) -> None:
    chunks = b"Transfer-Encoding: chunked\r\n" + length + b"\r\n2\r\n{}\r\n0\r\n\r\n"
    assert send(client, folder, HEAD + chunks) == 400


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"kind": "AdmissionReview"}', "{}".encode("utf-16"), b"[" * 100_000],
    ids=["empty", "half", "list", "map", "no request", "utf-16", "deep"],
)
def test_what_is_no_review_is_a_400_of_one_line(connection: http.client.HTTPSConnection, body: bytes) -> None:
    status, data = post(connection, "/validate", body)
    assert status == 400
    assert data.count(b"\n") == 1


def padded(size: int) -> bytes:
    """A review of exactly so many bytes."""
    short = admission.wrap(pod(annotations={"pad": ""}))
    return admission.wrap(pod(annotations={"pad": "x" * (size - len(short))}))


def test_7_mib_is_judged_and_a_byte_more_is_refused_unread(
    connection: http.client.HTTPSConnection, client: demo.Client, folder: Path
) -> None:
    assert admission.MAX_BODY == 7 * 1024 * 1024
    assert post(connection, "/mutate", padded(admission.MAX_BODY))[0] == 200
    # Only headers are sent: the answer does not wait for the body.
    assert send(client, folder, HEAD + f"Content-Length: {admission.MAX_BODY + 1}\r\n\r\n".encode()) == 413


def test_health_and_readiness_are_told(connection: http.client.HTTPSConnection) -> None:
    assert ask(connection, "GET", "/healthz")[0] == 200
    assert ask(connection, "GET", "/readyz")[0] == 200
    assert ask(connection, "HEAD", "/readyz")[:2] == (200, b"")
    status, _, headers = ask(connection, "POST", "/healthz")
    assert (status, headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/metrics", "/mutate/", "/static/x", "/../etc/passwd"])
def test_whoever_probes_learns_nothing(connection: http.client.HTTPSConnection, path: str) -> None:
    status, data, headers = ask(connection, "GET", path)
    assert (status, data) == (404, b"")
    assert "werkzeug" not in json.dumps(headers).lower()


def test_a_review_is_logged_in_one_line_without_any_body(client: demo.Client, folder: Path) -> None:
    canary = "canary-5f1d"
    item = pod(annotations={"note": canary, "slicewarden.dev/trust": "trusted"}, name="a\nb\u2028\x1b[31m")
    item["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": canary}]
    body = json.loads(admission.wrap(item, uid="logged"))
    body["request"]["userInfo"] = {"username": "jane", "extra": {"token": [canary]}}
    client.post("/mutate", json.dumps(body).encode())
    line = log(folder, "logged")
    assert canary not in json.dumps(line)
    assert {k: line[k] for k in ("endpoint", "operation", "kind", "namespace", "name", "user", "allowed")} == {
        "endpoint": "/mutate",
        "operation": "CREATE",
        "kind": "Pod",
        "namespace": "vision",
        "name": "a\nb\u2028\x1b[31m",
        "user": "jane",
        "allowed": True,
    }
    assert line["operations"] == 12, "nine variables, a record, the node selector, the toleration"


def test_the_command_line_and_the_webhook_give_one_verdict(client: demo.Client) -> None:
    engine, facts = load_engine(str(POLICY), str(FACTS))
    for file in sorted((ROOT / "webhook/sample/tour").iterdir()):
        documents, _ = files.load([str(file)])
        item = documents[0].value
        judged = engine.judge(admission.decode(admission.wrap(item)), facts)
        mutated = demo.review_by(client, "/mutate", item)
        operations = json.loads(base64.b64decode(mutated.get("patch", "W10=")))
        assert operations == list(judged.patch)
        answer = demo.review_by(client, "/validate", jsonpatch.apply(item, operations))
        assert answer["allowed"] is judged.allowed
        assert answer.get("status", {}).get("message", "") == admission.message_of(judged)


def test_a_rule_that_breaks_is_a_500_and_never_an_approval() -> None:
    engine, facts = load_engine(str(POLICY), str(FACTS))
    seen: list[Any] = []
    app = broken_application(engine, facts, seen)
    answer = answered(app, "/validate", admission.wrap(pod()))
    assert (answer.status, answer.body) == (500, b"internal error\n")
    assert seen[0]["error"] == "unsteered-pod"
    assert seen[0]["trace"][0] == "RuntimeError"
    assert seen[0]["trace"][-1].startswith("test_webhook.py:")
    assert "boom" not in json.dumps(seen[0]), "an exception's text may hold a tenant's values"


def broken_application(engine: Engine, facts: Any, seen: list[Any]) -> serving.ReviewApplication:
    def broken(*_: Any) -> Any:
        raise RuntimeError("boom")

    rules = [replace(rule, check=broken) if rule.id == "unsteered-pod" else rule for rule in engine.rules]
    return serving.ReviewApplication(Engine(engine.policy, rules), lambda: facts, seen.append)


def test_without_facts_it_is_not_ready_and_answers_503() -> None:
    engine, _ = load_engine(str(POLICY), str(FACTS))
    app = serving.ReviewApplication(engine, lambda: None, lambda _: None)
    assert answered(app, "/readyz", method="GET").status == 503
    assert answered(app, "/healthz", method="GET").status == 200
    assert answered(app, "/mutate", admission.wrap(pod())).status == 503


@given(item=strategies.pods())
def test_the_command_line_and_the_webhook_agree_on_any_pod(
    engine: Engine, sample_facts: Facts, item: dict[str, Any]
) -> None:
    app = serving.ReviewApplication(engine, lambda: sample_facts, lambda _: None)

    def asked(path: str, what: dict[str, Any]) -> dict[str, Any]:
        answer = answered(app, path, admission.wrap(what))
        assert answer.status == 200
        response: dict[str, Any] = json.loads(answer.body)["response"]
        return response

    operations = json.loads(base64.b64decode(asked("/mutate", item).get("patch", "W10=")))
    answer = asked("/validate", dict(jsonpatch.apply(item, operations)))

    out = io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps(item).encode()))
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(out):
        patched.setattr("sys.stdin", stdin)
        status = cli.main(["check", "-", "--format", "json", "--policy", str(POLICY), "--facts", str(FACTS)])
    report = json.loads(out.getvalue())
    if report["errors"]:  # of another shape than Kubernetes' own: the webhook says so with a 422
        assert (status, answer["status"]["code"]) == (2, 422)
        return
    (result,) = report["results"]
    assert result["allowed"] is answer["allowed"]
    assert status == (0 if answer["allowed"] else 1)
    assert result["patch"] == operations
    denials = [f"{f['rule']}: {f['path']}: {f['message']}" for f in result["findings"] if f["action"] == "Deny"]
    assert all(text in answer.get("status", {}).get("message", "") for text in denials[:3])


def test_a_port_in_use_is_one_clear_line(client: demo.Client, folder: Path) -> None:
    tls = ("--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key")
    done = serve("--facts", FACTS, "--listen", f"127.0.0.1:{client.port}", *tls)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: 127.0.0.1:{client.port}: Address already in use\n"


def test_a_client_ca_without_a_certificate_is_one_clear_line(client: demo.Client, folder: Path) -> None:
    assert client.ready()
    tls = ("--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key", "--client-ca", FACTS)
    done = serve("--facts", FACTS, "--listen", "127.0.0.1:1", *tls)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {FACTS}: no certificate in PEM in it\n"


def serve(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "webhook", "serve", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)


@pytest.mark.usefixtures("client")
def test_a_policy_that_cannot_be_used_keeps_it_from_starting(tmp_path: Path, folder: Path) -> None:
    bad = tmp_path / "policy.yaml"
    bad.write_text(POLICY.read_text().replace("pools:", "polls:"))
    tls = ("--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key")
    done = serve("--policy", bad, "--facts", FACTS, "--listen", "127.0.0.1:1", *tls)
    assert done.returncode == 2
    assert f"{bad}:" in done.stderr
    assert "did you mean pools?" in done.stderr


def test_certificates_that_cannot_be_read_are_one_clear_line(tmp_path: Path) -> None:
    missing = tmp_path / "none.crt"
    done = serve("--facts", FACTS, "--listen", "127.0.0.1:1", "--tls-cert", missing, "--tls-key", missing)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert str(missing) in done.stderr


@pytest.mark.usefixtures("client")
def test_health_has_a_port_of_its_own_that_answers_no_reviews(folder: Path, tmp_path: Path) -> None:
    authority = certs.issue_ca("callers", datetime.now(UTC), days=1)
    (tmp_path / "callers.crt").write_bytes(authority.certificate_pem)
    write(tmp_path, "caller", caller(authority, "somebody"))
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        ports = a.getsockname()[1], b.getsockname()[1]
    command: list[str | Path] = [sys.executable, "-m", "webhook", "serve", "--policy", POLICY, "--facts", FACTS]
    command += ["--listen", f"127.0.0.1:{ports[0]}", "--health-listen", f"127.0.0.1:{ports[1]}"]
    command += ["--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key"]
    command += ["--client-ca", tmp_path / "callers.crt", "--client-name", "kube-apiserver"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            plain = http.client.HTTPConnection("127.0.0.1", ports[1], timeout=LONG)
            for _ in range(6000):
                try:
                    plain.request("GET", "/readyz")
                    break
                except ConnectionRefusedError:
                    plain.close()
                    time.sleep(0.05)
            assert plain.getresponse().read().startswith(b"ok\n")
            plain.close()
            plain.request("GET", "/metrics")
            assert plain.getresponse().status == 200
            plain.close()
            plain.request("POST", "/mutate", admission.wrap(pod()), {"Content-Type": "application/json"})
            assert plain.getresponse().status == 404
            plain.close()
            # --client-ca: a caller without a certificate gets no answer.
            context = ssl.create_default_context(cafile=folder / "ca.crt")
            stranger = http.client.HTTPSConnection("localhost", ports[0], context=context, timeout=LONG)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                ask(stranger, "GET", "/healthz")
            stranger.close()
            # --client-name: one with a certificate of another name gets no answer either, and is told of by its name.
            context.load_cert_chain(tmp_path / "caller.crt", tmp_path / "caller.key")
            other = http.client.HTTPSConnection("localhost", ports[0], context=context, timeout=LONG)
            assert ask(other, "GET", "/healthz")[:2] == (403, b"")
            other.close()
        finally:
            process.terminate()
            assert process.wait(LONG) == 0
        assert process.stdout is not None
        lines = [json.loads(line) for line in process.stdout]
        assert [line["names"] for line in lines if line["message"] == "caller refused"] == [["somebody"]]


# The tour


def test_the_tour_shows_what_is_patched_of_what_is_allowed_alone(
    client: demo.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in sorted((ROOT / "webhook" / "sample" / "tour").iterdir()):
        demo._show(file, client)
    shown = capsys.readouterr().out.strip().split("\n\n")
    assert len(shown) == 11
    patched = [any(line.startswith("     +") for line in each.splitlines()) for each in shown]
    denied = ["   DENIED  " in each for each in shown]
    assert any(patched)
    assert any(denied)
    assert not any(both == (True, True) for both in zip(patched, denied, strict=True))
