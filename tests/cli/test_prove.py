"""`slicewarden prove` against an API server that is pretended: it judges by an engine, and lists the sample's facts."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import pytest
import yaml

from tests import ROOT
from tests.proving import nodes
from tests.proving.nodes import PretendedNodes
from tests.proving.pretended import admitting, with_hostnames
from tests.support.kubeconfigs import kubeconfig
from tests.support.listening import Asked, listening
from tests.support.policies import FACTS, POLICY, policy_of
from webhook import rules
from webhook.cli import main as cli
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.proving.proof import DryRun
from webhook.proving.running import HOSTNAME, RELEASED
from webhook.proving.ways import CHANGES, ChangeCall

LISTED = {"/api/v1/nodes": "Node", "/api/v1/namespaces": "Namespace"}
SCHEMA = json.loads((ROOT / "docs/schemas/proofreport.json").read_text("utf-8"))
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture(scope="module")
def one_pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample policy with one of its pools, which has a fifth of its ways."""
    value = yaml.safe_load(POLICY.read_text("utf-8"))
    value["spec"]["pools"] = [each for each in value["spec"]["pools"] if each["name"] == "shared"]
    made = tmp_path_factory.mktemp("policy") / "policy.yaml"
    made.write_text(json.dumps(value))
    return made


class Server:
    """An API server with the sample's nodes and namespaces, and a policy. `sent` has each pod with its query."""

    def __init__(self, policy: Path, facts: Facts, without: str = "") -> None:
        self.policy = policy
        self.engine = engine = Engine(policy_of(policy), [rule for rule in rules.walk() if rule.id != without])
        self.sent: list[tuple[dict[str, list[str]], Any]] = []
        self.as_: set[str | None] = set()
        self.user: dict[str, Any] = {"username": "ada"}
        self.annotations = {"slicewarden.dev/policy": engine.policy.digest}
        """Those of the webhook configurations."""
        self.refused: dict[str, int] = {}
        """The status by the path that is refused."""
        self.system: list[Any] = []
        """The namespace kube-system."""
        self._create = admitting(engine, facts)
        objects = [item for each in yaml.safe_load_all(FACTS.read_text("utf-8")) for item in each.get("items", [each])]
        self._lists = {path: [o for o in objects if o["kind"] == kind] for path, kind in LISTED.items()}

    def answer(self, asked: Asked) -> None:
        url = urlsplit(asked.path)
        status, value = 200, {"metadata": {}, "items": self._lists.get(url.path, []), "groups": [], "resources": []}
        if url.query == "fieldSelector=metadata.name%3Dkube-system":
            value["items"] = self.system
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
def served(one_pool: Path, sample_facts: Facts) -> Callable[..., Server]:
    def made(without: str = "", policy: Path = one_pool) -> Server:
        return Server(policy, sample_facts, without)

    return made


@pytest.fixture
def prove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(server: Server, *options: str) -> tuple[int, str, str]:
        with listening(server.answer) as url:
            config = str(kubeconfig(tmp_path, url))
            status = cli.main(["prove", "--kubeconfig", config, "--policy", str(server.policy), *options])
        return status, *capsys.readouterr()

    return run


def test_every_way_of_the_sample_is_shut_and_nothing_is_stored(served: Any, prove: Any) -> None:
    server = served(policy=POLICY)
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


@pytest.mark.parametrize("status", [200, 403])
def test_a_report_names_its_cluster_and_who_sent_the_pods_if_they_are_known(
    served: Any, prove: Any, status: int
) -> None:
    server = served()
    server.refused[SELF] = status
    system = {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "1b4e28ba\x1b"}}
    server.system = [] if status == 403 else [system]
    value = json.loads(prove(server, "--dry-run", "--namespace", "vision", "--format", "json")[1])
    known = ("1b4e28ba\\u001b", "ada", "") if status == 200 else ("", "", "")
    assert (value["cluster"], value["user"], value["image"]) == known
    jsonschema.Draft202012Validator(SCHEMA).validate(value)


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


# With pods

OF_A_RUN = re.compile("/api/v1/namespaces/(vision)/(pods|configmaps)(?:/([^/]*))?")
CHANGE = re.compile("/api/v1/namespaces/(vision)/pods/([^/]+)(?:/(ephemeralcontainers|binding))?")
BY_CALL = {f"{way.change}".partition("/")[2]: way for way in CHANGES}
RUN = ("--run", "--namespace", "vision")
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Nodes(Server):
    """The same with nodes that run pods, which all end at once."""

    def __init__(self, policy: Path, facts: Facts) -> None:
        super().__init__(policy, facts)
        self.nodes = PretendedNodes(self.engine, with_hostnames(facts))
        self.changed_as: set[str | None] = set()
        self.may: Callable[..., object] = lambda *_: False
        """What a review says that asks whether a user may make a call, by the verb, resource and subresource."""
        self.reviewed: set[tuple[str, ...]] = set()
        for node in self._lists["/api/v1/nodes"]:
            node["metadata"].setdefault("labels", {})[HOSTNAME] = node["metadata"]["name"]

    def answer(self, asked: Asked) -> None:
        url = urlsplit(asked.path)
        if url.path == REVIEW:
            assert asked.headers.get("Impersonate-User") == "ada"
            namespace, *call = json.loads(asked.body)["spec"]["resourceAttributes"].values()
            self.reviewed.add((namespace, *call))
            review = {"status": {"allowed": self.may(*call)}}
            return asked.give(self.refused.get(REVIEW, 201), json.dumps(review).encode())
        if asked.command != "GET" and "dryRun" in url.query and (change := CHANGE.fullmatch(url.path)):
            way = BY_CALL[change[3] or ""]
            assert asked.command == ("POST" if way.change is ChangeCall.BIND else "PATCH")
            assert parse_qs(url.query) == {"dryRun": ["All"]}
            self.changed_as.add(asked.headers.get("Impersonate-User"))
            answer = self.nodes.changed(way, change[1], change[2], json.loads(asked.body))
            status, value = answer.status, answer.pod or {"message": answer.message}
            return asked.give(
                self.refused.get(url.path, status if answer.pod is None else 200), json.dumps(value).encode()
            )
        match = OF_A_RUN.fullmatch(url.path)
        if match is None or "dryRun" in url.query:
            return super().answer(asked)
        self.as_.add(asked.headers.get("Impersonate-User"))
        status, value = self._run(asked.command, match[1], match[2], match[3], json.loads(asked.body or "{}"))
        return asked.give(self.refused.get(url.path, status), json.dumps(value).encode())

    def _run(self, method: str, namespace: str, plural: str, name: str, body: Any) -> tuple[int, Any]:
        if method == "POST":
            made = self.nodes.create(plural, body)
            return made.status, {"kind": body["kind"], **made.pod} if made.pod else {"message": made.message}
        if not name:
            return 200, {"metadata": {}, "items": self.nodes.listed(plural, namespace)}
        if (found := self.nodes.stored.get((plural, name))) is None:
            return 404, {"message": f"{name} is not found"}
        if method == "DELETE":
            self.nodes.delete(plural, namespace, name, body.get("preconditions", {}).get("uid", ""))
        elif method == "PATCH":
            self.nodes.annotate(plural, namespace, name, body["metadata"]["annotations"])
        else:
            found = self.nodes.read(plural, namespace, name)
        return 200, found


@pytest.fixture
def running(one_pool: Path, sample_facts: Facts) -> Nodes:
    return Nodes(one_pool, sample_facts)


@pytest.fixture
def all_running(sample_facts: Facts) -> Nodes:
    return Nodes(POLICY, sample_facts)


def test_a_run_shows_what_the_pods_saw_and_leaves_nothing(all_running: Nodes, prove: Any) -> None:
    status, out, err = prove(all_running, *RUN, "--yes", "--image", "i", "--seconds", "60", "--format", "json")
    value = json.loads(out)
    assert status == 0
    assert err == (
        "--run creates at most 10 pods that never start, and sends changes of them as dry runs\n"
        "--run starts at most 20 pods of i in namespace vision, one after another, each for at most 60 s\n"
    )
    assert value["method"] == "pods"
    assert (value["user"], value["image"]) == ("ada", "i")
    assert value["summary"]["not shown"] == value["summary"]["open"] == 0
    assert len(value["targets"]) == 5
    for target in value["targets"]:
        ways = {each["way"]: each for each in target["ways"]}
        count = ways["honest pod"]["seen"]["nvml"]["count"]
        assert count in (1, 2)
        assert ways["honest pod"]["seen"]["nvml"]["devices"][0] == {"uuid": "GPU-0", "name": "A100", "mib": 40960}
        assert (ways["image"]["outcome"], ways["image"]["message"]) == ("shut", f"saw 0 of {count} cards")
        assert (ways["image"]["seen"]["nvml"]["count"], ways["node"]["seen"]) == (0, None)
        changes = [ways[way.name] for way in CHANGES]
        assert {(each["outcome"], each["seen"]) for each in changes} == {("shut", None)}
    assert len(all_running.nodes.pods) == 20
    assert len(all_running.nodes.held) == 10
    assert all_running.nodes.stored == {}


def test_a_run_is_shown_for_people(all_running: Nodes, prove: Any) -> None:
    status, out, _ = prove(all_running, *RUN, "--yes")
    assert status == 0
    shown, _, _ = out.replace("namespace vision", "namespace prove").partition("pool mig, ")
    assert f"```\n{shown}```\n" in (ROOT / "docs/prove.md").read_text("utf-8")
    assert len(re.findall(r"^  shut       image: saw 0 of [12] cards$", out, re.MULTILINE)) == 5


def test_a_run_starts_nothing_before_it_is_confirmed(running: Nodes, prove: Any) -> None:
    status, out, err = prove(running, *RUN)
    assert (status, out) == (2, "")
    assert "\n--run starts at most 4 pods of slicewarden:0.1.0 in namespace vision, one after another" in err
    assert err.endswith("each for at most 120 s; give --yes to start them\n")
    assert running.nodes.calls == 0


def test_what_memory_is_taken_is_said_before_any_is(running: Nodes, prove: Any) -> None:
    status, out, err = prove(running, *RUN, "--memory")
    assert (status, out) == (2, "")
    _, first, second = err.splitlines()
    found = re.fullmatch(
        "with --memory, some take at most ([0-9]+) MiB and a context of their card, and give it back", first
    )
    assert found
    assert second.startswith("--run starts at most 5 pods ")
    assert running.nodes.calls == 0
    assert prove(running, *RUN, "--memory", "--yes")[0] == 0
    commands = [each["spec"]["containers"][0]["command"] for each in running.nodes.pods]
    asked = [int(words[words.index("--memory") + 1]) for words in commands if "--memory" in words]
    assert max(asked) == int(found[1])


def test_a_cap_is_shown_as_on_the_page(all_running: Nodes, sample_facts: Facts, prove: Any) -> None:
    def kubelet(pod: Any) -> Any:
        words = pod["spec"]["containers"][0]["command"]
        if "--memory" not in words:
            return nodes.kubelet(pod)
        most = int(words[words.index("--memory") + 1])
        return nodes.ended(nodes.report(1, memory={"asked": most, "got": most, "stopped": ""}))

    all_running.nodes = PretendedNodes(all_running.engine, with_hostnames(sample_facts), kubelet)
    status, out, _ = prove(all_running, *RUN, "--yes", "--memory")
    assert status == 0
    (line,) = [each for each in out.splitlines() if "on node t4-shared" in each]
    assert f"```\n{line}\n```\n" in (ROOT / "docs/prove.md").read_text("utf-8")
    status, out, _ = prove(all_running, *RUN, "--yes", "--memory", "--format", "json")
    shared = next(each for each in json.loads(out)["targets"] if each["pool"] == "shared")
    seen = shared["ways"][0]["seen"]
    assert seen["memory"]["got"] == seen["memory"]["asked"]
    assert (seen["memory"]["free"], seen["frameworks"]) == (None, {})
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(out))


def test_a_run_without_its_rights_starts_nothing(running: Nodes, prove: Any) -> None:
    running.refused["/api/v1/namespaces/vision/configmaps"] = 403
    status, out, err = prove(running, *RUN, "--yes")
    assert (status, out) == (2, "")
    assert err
    assert running.nodes.pods == []


@pytest.mark.parametrize("name", ["", "never-preempting"])
def test_the_pods_of_a_run_have_the_priority_class_that_is_named(running: Nodes, prove: Any, name: str) -> None:
    assert prove(running, *RUN, "--yes", *(("--priority-class", name) if name else ()))[0] == 0
    assert {each["spec"].get("priorityClassName", "") for each in running.nodes.pods} == {name}


def test_the_pods_of_a_run_are_the_tenant_s_and_its_object_is_not(running: Nodes, prove: Any) -> None:
    assert prove(running, *RUN, "--yes", "--as", "ada@example.com")[0] == 0
    assert running.as_ == {"ada@example.com", None}
    assert running.changed_as == {"ada@example.com"}


BARRED = DryRun(403, 'pods "p" is forbidden: User "ada" cannot patch resource "pods" in API group ""')


def _of_changes(out: str) -> set[tuple[str, str]]:
    named = {way.name for way in CHANGES}
    ways = (each for target in json.loads(out)["targets"] for each in target["ways"] if each["way"] in named)
    return {(each["outcome"], each["by"]) for each in ways}


def test_a_change_is_shut_by_rbac_if_no_other_call_makes_it(running: Nodes, prove: Any) -> None:
    running.nodes.changed = lambda *_: BARRED  # type: ignore[method-assign]
    status, out, _ = prove(running, *RUN, "--yes", "--as", "ada", "--format", "json")
    assert (status, _of_changes(out)) == (0, {("shut", "RBAC")})
    assert running.reviewed == {
        ("vision", "update", "pods", ""),
        ("vision", "patch", "pods", "status"),
        ("vision", "update", "pods", "status"),
        ("vision", "update", "pods", "ephemeralcontainers"),
        ("vision", "create", "bindings", ""),
    }
    count = sum(each["by"] == "RBAC" for each in json.loads(out)["targets"][0]["ways"])
    assert f"  {count} ways shut by RBAC, for this user" in prove(running, *RUN, "--yes", "--as", "ada")[1]


@pytest.mark.parametrize(("may", "answer"), [(True, 201), (None, 201), ("no", 201), (False, 404)])
def test_a_change_is_not_shown_if_another_call_may_make_it(
    running: Nodes, prove: Any, may: object, answer: int
) -> None:
    running.nodes.changed = lambda *_: BARRED  # type: ignore[method-assign]
    running.may, running.refused[REVIEW] = lambda *_: may, answer
    status, out, _ = prove(running, *RUN, "--yes", "--as", "ada", "--format", "json")
    assert (status, _of_changes(out)) == (2, {("not shown", "")})


@pytest.mark.parametrize("verb", ["patch", "update"])
def test_a_status_may_change_what_a_user_may_not_patch(running: Nodes, prove: Any, verb: str) -> None:
    running.nodes.changed = lambda *_: BARRED  # type: ignore[method-assign]
    running.may = lambda *call: call == (verb, "pods", "status")
    status, out, _ = prove(running, *RUN, "--yes", "--as", "ada")
    assert status == 2
    shown = set(re.findall("not shown +([a-z-]+): the user may ([a-z]+) pods/status", out))
    assert shown == {(way.name, verb) for way in CHANGES if way.change is ChangeCall.UPDATE}


def test_a_right_that_the_own_account_lacks_shuts_no_change(running: Nodes, prove: Any) -> None:
    running.nodes.changed = lambda *_: BARRED  # type: ignore[method-assign]
    status, out, _ = prove(running, *RUN, "--yes")
    assert status == 2
    assert "lacks a right that --rights writes" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--run",), "--run needs --namespace"),
        (("--rights",), "--rights needs --namespace"),
        (("--yes",), "need --run"),
        (("--run", "--dry-run", "--namespace", "vision"), "give one of them"),
        (("--image", "i"), "need --run"),
        (("--priority-class", "p"), "need --run"),
        (("--memory",), "need --run"),
        (("--run", "--namespace", "a", "--seconds", "5"), "is not a number from 10 to 600"),
    ],
)
def test_options_of_a_run_that_do_not_fit_are_refused(running: Nodes, prove: Any, words: Any, why: str) -> None:
    status, out, err = prove(running, *words)
    assert (status, out) == (2, "")
    assert why in err
    assert running.nodes.calls == 0


def test_the_rights_of_a_run_are_written_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["prove", "--rights", "--namespace", "vision", "--policy", str(POLICY)]) == 0
    roles = [*yaml.safe_load_all(capsys.readouterr().out)]
    assert [each["kind"] for each in roles] == ["ClusterRole", "Role", "Role"]
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "get", "list", "patch"]} in roles[
        2
    ]["rules"]
    given = {(resource, verb) for rule in roles[2]["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert {("pods/binding", "create"), ("pods/ephemeralcontainers", "patch")} < given
    assert all("*" not in str(each) and "secrets" not in str(each) for each in roles)


def test_the_image_of_a_run_is_that_of_the_manifests() -> None:
    assert f"image: {RELEASED} " in (ROOT / "manifests/components/agent/daemonset.yaml").read_text("utf-8")
