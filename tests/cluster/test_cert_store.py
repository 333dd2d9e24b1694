"""The certificates of a cluster, against an API server of our own that misbehaves to order; and the command."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

import certs
from certs.life import rotate
from tests.support import kubeconfigs
from tests.support.listening import Asked, listening
from tests.support.policies import POLICY, policy_of
from webhook.cli import main as cli
from webhook.cluster.cert_store import ClusterStore, ObjectNames
from webhook.engine import registration

SECRETS = "/api/v1/namespaces/slicewarden-system/secrets"
HALVES = "/apis/admissionregistration.k8s.io/v1"
CA, SERVING = f"{SECRETS}/slicewarden-ca", f"{SECRETS}/slicewarden-serving"
MUTATING = f"{HALVES}/mutatingwebhookconfigurations/slicewarden"
VALIDATING = f"{HALVES}/validatingwebhookconfigurations/slicewarden"
NAMES = ObjectNames("slicewarden-system", "slicewarden-ca", "slicewarden-serving", "slicewarden")
TERMS = certs.Terms(certs.service_names("slicewarden", "slicewarden-system"))


def configuration(*hooks: str) -> dict[str, Any]:
    return {"webhooks": [{"name": name, "clientConfig": {"service": {"name": "slicewarden"}}} for name in hooks]}


class Server:
    """Keeps objects, with their versions; `answers` are given instead of what would be right, by method and path."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {
            CA: {},
            SERVING: {},
            MUTATING: configuration("mutate.slicewarden.dev"),
            VALIDATING: configuration("pods.slicewarden.dev", "nodes.slicewarden.dev"),
        }
        self.answers: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.date = datetime.now(UTC)
        self.versions = dict.fromkeys(self.objects, 1)
        self.written: list[tuple[str, Any]] = []
        self.url = ""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        if (method, path) in self.answers:
            return self.answers[method, path]
        if path not in self.objects:
            return 404, b'{"message": "not found"}'
        if method == "PATCH":
            self._merge(path, body)
        metadata = {**self.objects[path].get("metadata", {}), "resourceVersion": str(self.versions[path])}
        return 200, json.dumps({**self.objects[path], "metadata": metadata}).encode()

    def _merge(self, path: str, body: Any) -> None:
        """Merge as an API server does: data by key, webhooks by name."""
        assert body["metadata"]["resourceVersion"] == str(self.versions[path])
        self.versions[path] += 1
        self.written.append((path, body))
        found = self.objects[path]
        for hook in found.get("webhooks", ()):
            for each in body.get("webhooks", ()):
                if each["name"] == hook["name"]:
                    hook["clientConfig"] |= each["clientConfig"]
        if "data" in body:
            data = {**found.get("data", {}), **body["data"]}
            found["data"] = {key: value for key, value in data.items() if value is not None}


@pytest.fixture
def server() -> Iterator[Server]:
    known = Server()

    def respond(asked: Asked) -> None:
        if asked.command == "PATCH":
            assert asked.headers["Content-Type"] == "application/strategic-merge-patch+json"
        status, body = known.answer(asked.command, asked.path, json.loads(asked.body or b"{}"))
        asked.give(status, body, Content_Type="application/json", Date=format_datetime(known.date, usegmt=True))

    with listening(respond) as known.url:
        yield known


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def keeper(server: Server, said: list[str]) -> ClusterStore:
    settings = client.Configuration()
    settings.host = server.url
    settings.retries = False
    return ClusterStore(client.ApiClient(settings), NAMES, said.append)


def kept(keeper: ClusterStore, *wishes: Any, later: timedelta = timedelta(0)) -> list[str]:
    return list(certs.keep(keeper, TERMS, lambda: datetime.now(UTC) + later, wishes))


def test_each_change_is_one_object(server: Server, keeper: ClusterStore) -> None:
    assert len(kept(keeper)) == 4
    assert [path for path, _ in server.written] == [CA, MUTATING, VALIDATING, CA, SERVING]
    ca = b64decode(server.objects[CA]["data"]["ca.crt"])
    hooks = [hook for path in (MUTATING, VALIDATING) for hook in server.objects[path]["webhooks"]]
    assert {b64decode(hook["clientConfig"]["caBundle"]) for hook in hooks} == {ca}
    assert {hook["clientConfig"]["service"]["name"] for hook in hooks} == {"slicewarden"}
    assert server.objects[SERVING]["data"].keys() == {"tls.crt", "tls.key", "ca.crt"}
    assert server.objects[CA]["data"].keys() == {"ca.crt", "ca.key"}  # what is over is taken away
    assert kept(keeper) == []


def test_only_the_bundle_that_differs_is_written(server: Server, keeper: ClusterStore) -> None:
    kept(keeper)
    server.written.clear()
    del server.objects[VALIDATING]["webhooks"][1]["clientConfig"]["caBundle"]
    (line,) = kept(keeper)
    assert line.startswith("1 bundle is written with CN=slicewarden CA ")
    ((path, body),) = server.written
    assert path == VALIDATING
    assert [each["name"] for each in body["webhooks"]] == ["nodes.slicewarden.dev"]


def test_somebody_elses_ca_stays_in_a_bundle(server: Server, keeper: ClusterStore) -> None:
    foreign = certs.issue_ca("theirs", datetime.now(UTC)).certificate_pem
    config = server.objects[MUTATING]["webhooks"][0]["clientConfig"]
    config["caBundle"] = b64encode(foreign).decode()
    kept(keeper)
    kept(keeper, rotate)
    for days in (1, 2):
        kept(keeper, later=timedelta(days=days))
    ca = b64decode(server.objects[CA]["data"]["ca.crt"])
    assert b64decode(config["caBundle"]) == foreign + ca


def test_an_absent_configuration_is_reported_once(server: Server, keeper: ClusterStore, said: list[str]) -> None:
    del server.objects[MUTATING]
    assert len(kept(keeper)) == 4
    assert said == ["MutatingWebhookConfiguration slicewarden is not there: no API server learns which CA to trust"]


def test_nothing_of_a_ca_is_lost_where_it_cannot_be_read(server: Server, keeper: ClusterStore) -> None:
    server.objects[CA] = {"data": {"ca.crt": b64encode(b"scribbled over").decode()}}
    problem = "Secret slicewarden-system/slicewarden-ca: ca.crt: not a PEM certificate; nothing is changed"
    with pytest.raises(ValueError, match=problem):
        kept(keeper, rotate)
    assert server.written == []


@pytest.mark.parametrize("path", [CA, SERVING])
def test_a_missing_secret_is_an_error(server: Server, keeper: ClusterStore, path: str) -> None:
    del server.objects[path]
    with pytest.raises(ValueError, match=r"^Secret slicewarden-system/slicewarden-\w+ is not there: create it, empty"):
        kept(keeper)


@pytest.mark.parametrize(
    ("status", "answer", "kind", "message"),
    [
        (403, b'{"message": "secrets is\\nforbidden"}', ValueError, "Secret .*-ca: secrets is forbidden"),
        (401, b'{"message": "Unauthorized"}', ValueError, "Secret .*-ca: Unauthorized"),
        (409, b'{"message": "modified"}', certs.Changed, "Secret .*-ca: modified"),
        (429, b'{"message": "slow down"}', certs.Unsettled, "Secret .*-ca: slow down"),
        (500, b"<html>no", certs.Unsettled, "Secret .*-ca: <html>no"),
        (503, b"[]", certs.Unsettled, r"Secret .*-ca: \[\]"),
        (200, b"<html>yes", certs.Unsettled, "Secret .*-ca: JSONDecodeError: "),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_every_answer_of_an_api_server_is_handled(
    server: Server, keeper: ClusterStore, method: str, status: int, answer: bytes, kind: type[Exception], message: str
) -> None:
    server.answers[method, CA] = status, answer
    with pytest.raises(kind, match=message) as raised:
        kept(keeper)
    assert raised.type is kind
    assert "\n" not in str(raised.value)
    assert server.written == []


def test_an_api_server_that_is_not_there(server: Server) -> None:
    settings = client.Configuration()
    settings.host = "http://127.0.0.1:9"
    settings.retries = False
    del server
    with pytest.raises(certs.Unsettled, match=r"^MutatingWebhookConfiguration slicewarden: \w+Error: "):
        kept(ClusterStore(client.ApiClient(settings), NAMES, print))


@pytest.mark.parametrize("minutes", [-10, 10])
def test_nothing_is_issued_by_a_wrong_clock(server: Server, keeper: ClusterStore, minutes: int) -> None:
    server.date += timedelta(minutes=minutes)
    with pytest.raises(certs.Unsettled, match=r"the clock here is .* off the API server's, and issues nothing"):
        kept(keeper)
    assert server.written == []


# The command


@pytest.fixture
def kubeconfig(server: Server, tmp_path: Path) -> str:
    return str(kubeconfigs.kubeconfig(tmp_path, server.url))


def test_the_command_says_what_it_did(server: Server, kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["certs", "keep", "--kubeconfig", kubeconfig]
    assert cli.main([*command, "--dry-run"]) == 0
    assert server.written == []
    would = capsys.readouterr().out.splitlines()
    assert cli.main(command) == 0
    done = capsys.readouterr().out.splitlines()
    assert len(done) == 4
    assert [line.replace("would be: ", "")[:20] for line in would] == [line[:20] for line in done]
    assert cli.main(command) == 0
    assert cli.main([*command, "--renew", "--rotate-ca", "--days", "30", "--ca-days", "365", "--overlap", "2d"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 4
    assert "PRIVATE" not in out


def test_the_command_compares_the_registration_once_the_certificates_are_kept(
    server: Server, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Powers to get and patch the two configurations by name are enough for it."""
    command = ["certs", "keep", "--kubeconfig", kubeconfig, "--check-registration", str(POLICY)]
    assert cli.main(command) == 2
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), len(server.written)) == (4, 5)  # what is due is done all the same
    assert "is not registered" in err
    assert err.endswith(
        "error: the registration is stale: make it again with `slicewarden registration`, and apply it\n"
    )
    wanted = registration.configurations(policy_of(POLICY))
    for path, made in zip((MUTATING, VALIDATING), wanted, strict=True):
        kept = {hook["name"]: hook["clientConfig"] for hook in server.objects[path]["webhooks"]}
        for hook in made["webhooks"]:
            hook["clientConfig"] |= {"caBundle": kept.get(hook["name"], {}).get("caBundle")}
        server.objects[path] = made
    cli.main(command)
    capsys.readouterr()
    assert cli.main(command) == 0
    assert capsys.readouterr() == ("", "")


def test_the_command_says_what_it_could_not_do(
    server: Server, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["certs", "keep", "--kubeconfig", kubeconfig]
    server.answers["GET", CA] = 503, b'{"message": "starting"}'
    assert cli.main(command) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: try again later: Secret slicewarden-system/slicewarden-ca: starting\n"
    server.answers["GET", CA] = 403, b'{"message": "forbidden"}'
    assert cli.main(command) == 2
    assert capsys.readouterr().err.startswith("error: Secret slicewarden-system/slicewarden-ca: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--overlap", "9m"], "'9m' is too short for every replica to load a changed Secret: use 10m or more"),
        (["--overlap", "1y"], "'1y' is not a time such as 30m, 12h or 2d"),
        (["--overlap", "999999d"], "a third of 90 days is not longer than this overlap"),
        (["--days", "366"], "a serving certificate lives 1 to 365 days, not 366"),
        (["--ca-days", "200"], "a CA of 200 days would end too soon"),
        (["--service", "A"], "'A' is not a Service name"),
        (["--kubeconfig", "/nonexistent"], "No such file or directory"),
    ],
)
def test_wrong_usage_of_certs_keep_is_refused(
    capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert cli.main(["certs", "keep", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err.splitlines()[0]
    assert err.startswith("error: ")


def test_show_says_whose_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    ca = certs.issue_ca("one", now)
    serving = certs.issue_serving(ca, ["a.svc", "a"], ["10.0.0.1"], now)
    both = tmp_path / "both.pem"
    both.write_bytes(serving.certificate_pem + ca.certificate_pem)
    assert cli.main(["certs", "show", str(both)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{both}: CN=a.svc; for a.svc, a, 10.0.0.1; signed by CN=one; ends 2027-03-01T11:00Z",
        f"{both}: CN=one; CA; signed by itself; ends 2036-02-27T11:00Z",
    ]
    both.write_bytes(ca.key_pem)
    assert cli.main(["certs", "show", str(both)]) == 2
    assert capsys.readouterr().err == f"error: {both}: not a PEM certificate\n"
