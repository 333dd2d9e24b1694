"""`slicewarden prove` against an API server that is pretended: it judges by an engine, and lists the sample's facts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.proving.pretended import admitting
from tests.support.kubeconfigs import kubeconfig
from tests.support.listening import Asked, listening
from tests.support.policies import FACTS, POLICY
from webhook import rules
from webhook.cli import main as cli
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy

LISTED = {"/api/v1/nodes": "Node", "/api/v1/namespaces": "Namespace"}
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Server:
    """An API server with the sample's nodes and namespaces. `sent` has each pod with its query."""

    def __init__(self, engine: Engine, facts: Facts) -> None:
        self.sent: list[tuple[dict[str, list[str]], Any]] = []
        self.as_: set[str | None] = set()
        self.user: dict[str, Any] = {"username": "ada"}
        self.annotations = {"slicewarden.dev/policy": engine.policy.digest}
        """Those of the webhook configurations."""
        self.refused: dict[str, int] = {}
        """The status by the path that is refused."""
        self._create = admitting(engine, facts)
        objects = [item for each in yaml.safe_load_all(FACTS.read_text("utf-8")) for item in each.get("items", [each])]
        self._lists = {path: [o for o in objects if o["kind"] == kind] for path, kind in LISTED.items()}

    def answer(self, asked: Asked) -> None:
        url = urlsplit(asked.path)
        status, value = 200, {"metadata": {}, "items": self._lists.get(url.path, []), "groups": [], "resources": []}
        if url.path == "/version":
            value = {"gitVersion": "v1.37.1"}
        if url.path.startswith("/apis/admissionregistration.k8s.io/v1/"):
            value = {"metadata": {"annotations": self.annotations}}
        if url.path == SELF:
            value = {"status": {"userInfo": self.user}}
        elif asked.command == "POST":
            self.as_.add(asked.headers.get("Impersonate-User"))
            pod = json.loads(asked.body)
            self.sent.append((parse_qs(url.query), pod))
            answer = self._create(pod)
            status, value = answer.status, answer.pod or {"message": answer.message}
        status = self.refused.get(url.path, status)
        asked.give(status, json.dumps(value).encode())


@pytest.fixture
def served(sample_policy: Policy, sample_facts: Facts) -> Callable[..., Server]:
    def made(without: str = "") -> Server:
        return Server(Engine(sample_policy, [rule for rule in rules.walk() if rule.id != without]), sample_facts)

    return made


@pytest.fixture
def prove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(server: Server, *options: str) -> tuple[int, str, str]:
        with listening(server.answer) as url:
            config = str(kubeconfig(tmp_path, url))
            status = cli.main(["prove", "--kubeconfig", config, "--policy", str(POLICY), *options])
        return status, *capsys.readouterr()

    return run


def test_every_way_of_the_sample_is_shut_and_nothing_is_stored(served: Any, prove: Any) -> None:
    server = served()
    status, out, err = prove(server)
    assert (status, err) == (0, "")
    targets = out.count("\npool ") + 1
    assert targets == 5
    shut = len(server.sent) - targets
    assert out.endswith(f"policy sample, Kubernetes v1.37.1: {shut} shut, 0 open, 0 not shown\n")
    assert shut > 200
    assert all(query == {"dryRun": ["All"]} for query, _ in server.sent)


def test_a_way_that_is_open_is_status_1(served: Any, prove: Any) -> None:
    status, out, _ = prove(served("host-namespaces"), "--namespace", "vision", "--format", "json")
    value = json.loads(out)
    assert status == 1
    assert value["kubernetes"] == "v1.37.1"
    assert {each["namespace"] for each in value["targets"]} == {"vision"}
    found = {each["way"] for target in value["targets"] for each in target["ways"] if each["outcome"] == "open"}
    assert found == {"processes"}


def test_a_way_that_could_not_be_tried_is_status_2(served: Any, prove: Any) -> None:
    server = served()
    server.refused["/api/v1/namespaces/vision/pods"] = 500
    status, out, _ = prove(server)
    assert status == 2
    assert "  not shown  honest pod: " in out


def test_a_cluster_that_does_not_answer_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = str(kubeconfig(tmp_path, "http://127.0.0.1:9"))
    assert cli.main(["prove", "--kubeconfig", nowhere, "--policy", str(POLICY)]) == 2
    assert "does not answer" in capsys.readouterr().err


def test_facts_that_cannot_be_read_are_an_error(served: Any, prove: Any) -> None:
    server = served()
    server.refused["/api/v1/nodes"] = 403
    status, out, err = prove(server)
    assert (status, out) == (2, "")
    assert "nodes" in err
    assert server.sent == []


def test_another_policy_than_the_installed_one_is_refused(served: Any, prove: Any) -> None:
    server = served()
    server.annotations = {"slicewarden.dev/policy": "0123"}
    status, out, err = prove(server)
    assert (status, out) == (2, "")
    assert "policy 0123 is installed, not sample " in err
    assert server.sent == []


@pytest.mark.parametrize("why", ["absent", "forbidden"])
def test_an_installed_policy_that_is_not_known_is_noted(served: Any, prove: Any, why: str) -> None:
    server = served()
    server.annotations = {}
    if why == "forbidden":
        server.refused["/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/slicewarden"] = 403
    status, out, err = prove(server, "--namespace", "vision", "--format", "json")
    assert (status, json.loads(out)["policy"]["installed"]) == (0, "")
    assert err.startswith("note: the policy cannot be compared" if why == "forbidden" else "note: the cluster has no")


def test_the_ways_are_tried_as_another_user(served: Any, prove: Any) -> None:
    server = served()
    assert prove(server, "--as", "ada@example.com", "--namespace", "vision")[0] == 0
    assert server.as_ == {"ada@example.com"}


@pytest.mark.parametrize("user", ["", "a\nb", "é"])
def test_a_user_that_is_no_header_is_refused(served: Any, prove: Any, user: str) -> None:
    server = served()
    status, _, err = prove(server, "--as", user)
    assert status == 2
    assert "name a user by printable ASCII characters" in err
    assert server.sent == []


@pytest.mark.parametrize(
    "info", [{"username": "a", "groups": ["system:masters"]}, {"username": "system:kube-scheduler"}]
)
def test_an_administrator_is_noted(served: Any, prove: Any, info: Any) -> None:
    server = served()
    server.user = info
    status, _, err = prove(server, "--namespace", "vision")
    assert status == 0
    assert err.startswith(f"note: the policy lists {info['username']} as an administrator or a scheduler")


def test_an_api_server_that_says_no_name_is_noted(served: Any, prove: Any) -> None:
    server = served()
    server.refused[SELF] = 404
    status, _, err = prove(server, "--namespace", "vision")
    assert (status, err.partition(":")[0]) == (0, "note")
