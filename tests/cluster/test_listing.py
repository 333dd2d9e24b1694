"""A cluster read once, from an API server of our own that misbehaves to order."""

import json
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support import kubeconfigs
from tests.support.listening import Asked, listening
from tests.support.policies import POLICY
from tests.support.strangers import HOSTILE, harmful
from webhook.api.resources import Resource
from webhook.catalog.names import Names
from webhook.cli import main as cli
from webhook.cli.inputs import load_policy
from webhook.cluster import client, listing
from webhook.cluster.page_size import PER_OBJECT
from webhook.facts import kinds
from webhook.facts.snapshot import Facts
from webhook.model import Unusable
from webhook.policy.model import Policy

PODS = Resource("", "v1", "pods", "Pod")


class Server:
    """Answers from `answers`, each path's in their order, the last one again; a number is an error of that status."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Any]] = {"/version": [{"major": "1"}], "/apis": [{"groups": []}]}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.url = ""
        self.said = "said"

    def answer(self, method: str, path: str, query: dict[str, str]) -> Any:
        self.asked.append((method, path, query))
        answers = self.answers.get(path, [404])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def of(self, path: str) -> list[dict[str, str]]:
        return [query for _, asked, query in self.asked if asked == path]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    known = Server()
    monkeypatch.setattr(listing, "PAUSE", 0.0)

    def respond(asked: Asked) -> None:
        url = urlsplit(asked.path)
        answer = known.answer(asked.command, url.path, {key: each[0] for key, each in parse_qs(url.query).items()})
        status = answer if isinstance(answer, int) else 200
        if status != 200:
            answer = {"kind": "Status", "message": f"{known.said} {status}"}
        asked.give(status, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    with listening(respond) as known.url:
        yield known


@pytest.fixture
def kubeconfig(server: Server, tmp_path: Path) -> str:
    return write(tmp_path, server.url)


def write(folder: Path, url: str) -> str:
    return str(kubeconfigs.kubeconfig(folder, url))


@pytest.fixture
def api(kubeconfig: str) -> client.Api:
    return listing.connect(kubeconfig)


def item(name: str, namespace: str = "vision", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "namespace": namespace}, **more}


def page(*items: dict[str, Any], after: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "1", "continue": after}, "items": [*items]}


def names(pages: Iterator[list[Any]]) -> list[str]:
    return [each["metadata"]["name"] for page in pages for each in page]


# Reading


def test_a_kind_is_read_page_by_page(server: Server, api: client.Api) -> None:
    server.answers["/api/v1/pods"] = [page(item("a"), item("b"), after="more"), page(item("c"))]
    found = [*listing.pages(api, PODS, 2)]
    assert [[(each["kind"], each["apiVersion"]) for each in page] for page in found] == [
        [("Pod", "v1")] * 2,
        [("Pod", "v1")],
    ]
    assert server.of("/api/v1/pods") == [{"limit": "2"}, {"limit": "2", "continue": "more"}]


def test_a_page_that_is_too_long_is_asked_for_again_with_half_as_many_objects(server: Server, api: client.Api) -> None:
    large = item("a", padding="x" * (4 * PER_OBJECT))
    server.answers["/api/v1/pods"] = [page(large, after="c"), page(large, after="c"), page(large, after="c"), page()]
    assert names(listing.pages(api, PODS, 4)) == ["a"]
    asked = [(each["limit"], each.get("continue", "")) for each in server.of("/api/v1/pods")]
    assert asked == [("4", ""), ("2", ""), ("1", ""), ("2", "c")]


def test_a_list_that_grew_too_old_is_begun_again_and_says_nothing_twice(server: Server, api: client.Api) -> None:
    server.answers["/api/v1/pods"] = [
        page(item("a"), after="more"),
        410,
        page(item("a"), after="again"),
        page(item("b")),
    ]
    assert names(listing.pages(api, PODS)) == ["a", "b"]
    assert [each.get("continue", "") for each in server.of("/api/v1/pods")] == ["", "more", "", "again"]


def test_a_list_that_always_grows_too_old_is_given_up(server: Server, api: client.Api) -> None:
    server.answers["/api/v1/pods"] = [page(item("a"), after="more"), 410] * 9
    with pytest.raises(client.StatusError) as raised:
        names(listing.pages(api, PODS))
    assert raised.value.status == 410
    assert len(server.of("/api/v1/pods")) == 2 * listing.TRIES


@pytest.mark.parametrize("status", sorted(listing.BUSY))
def test_a_busy_server_is_asked_again(server: Server, api: client.Api, status: int) -> None:
    server.answers["/api/v1/pods"] = [status, page(item("a"))]
    assert names(listing.pages(api, PODS)) == ["a"]


# Which kinds


def group(name: str, *versions: str) -> dict[str, Any]:
    known = [{"groupVersion": f"{name}/{each}", "version": each} for each in versions]
    return {"name": name, "versions": known, "preferredVersion": known[0]}


def resources(*kinds: str, namespaced: bool = True) -> dict[str, Any]:
    found = [{"name": f"{kind.lower()}s", "kind": kind, "namespaced": namespaced, "verbs": ["list"]} for kind in kinds]
    return {"resources": [*found, {"name": f"{kinds[0].lower()}s/status", "kind": kinds[0], "verbs": ["get"]}]}


def test_a_kind_is_read_in_the_first_version_that_has_it(server: Server, api: client.Api) -> None:
    server.answers["/apis"] = [{"groups": [group("kubeflow.org", "v1", "v2beta1"), group("other.io", "v1")]}]
    server.answers["/apis/kubeflow.org/v1"] = [resources("PyTorchJob")]
    server.answers["/apis/kubeflow.org/v2beta1"] = [resources("MPIJob", "PyTorchJob")]
    found, problems = listing.served(
        api, [("kubeflow.org", "PyTorchJob"), ("kubeflow.org", "MPIJob"), ("ray.io", "RayJob")]
    )
    assert problems == ()
    assert [each.path for each in found] == [
        "/apis/kubeflow.org/v1/pytorchjobs",
        "/apis/kubeflow.org/v2beta1/mpijobs",
    ]
    assert not [path for _, path, _ in server.asked if "other.io" in path or "ray.io" in path]


def test_a_group_that_does_not_answer_is_a_problem_and_no_more(server: Server, api: client.Api) -> None:
    server.answers["/apis"] = [{"groups": [group("ray.io", "v1"), group("apps", "v1")]}]
    server.answers["/apis/ray.io/v1"] = [503]
    server.answers["/apis/apps/v1"] = [resources("Deployment")]
    found, (problem,) = listing.served(api, [("ray.io", "RayJob"), ("apps", "Deployment")])
    assert [each.kind for each in found] == ["Deployment"]
    assert str(problem) == "cluster: the kinds of ray.io cannot be read: said 503"


# Facts


def readable(server: Server) -> None:
    """A cluster with one node and one namespace, and no GPU Operator."""
    server.answers |= {
        "/api/v1": [resources("Pod")],
        "/api/v1/namespaces": [page({"metadata": {"name": "vision", "uid": "u", "labels": {"a": "b"}}})],
        "/api/v1/nodes": [page({"metadata": {"name": "n1", "uid": "v"}})],
        "/api/v1/pods": [page()],
        "/api/v1/namespaces/gpu-operator/configmaps": [page()],
        "/apis/apps/v1/namespaces/gpu-operator/daemonsets": [page()],
    }


def test_facts_are_what_the_cluster_says(server: Server, api: client.Api, sample_policy: Policy) -> None:
    readable(server)
    spec = {"nodeName": "n1", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
    server.answers["/api/v1/pods"] = [page(item("a", spec=spec), item("b", spec={"containers": []}))]
    objects, problems = listing.facts(api, [sample_policy])
    facts = Facts.of(objects)
    assert problems == ()
    assert facts.namespaces["vision"]["a"] == "b"
    assert [node.name for node in facts.nodes] == ["n1"]
    assert [(each.name, each.asks) for each in facts.holders] == [("a", {"nvidia.com/gpu": 2})]
    (found,) = [each for each in objects if each["kind"] == "Node"]
    assert found["metadata"]["uid"] == "v"


def test_devices_are_counted_where_a_pool_has_classes(server: Server, api: client.Api, sample_policy: Policy) -> None:
    readable(server)
    spec = {"driver": "gpu.example.com", "nodeName": "n1", "devices": []}
    for plural in ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"):
        server.answers[f"/apis/resource.k8s.io/v1/{plural}"] = [page(item(plural, spec=spec))]
    pool = replace(sample_policy.pools[0], device_classes=Names(("card.example.com",)))
    found, problems = listing.facts(api, [sample_policy, replace(sample_policy, pools=(pool,))])
    assert problems == ()
    kinds = {"DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"}
    assert {each["kind"] for each in found} >= kinds
    without = {each["kind"] for each in listing.facts(api, [sample_policy])[0]}
    assert without & kinds == kinds - {"ResourceSlice"}


def dumped(api: client.Api, policy: Policy) -> tuple[list[tuple[str, str]], list[str]]:
    """Return what `slicewarden facts --live` reads, by kind and name, and what it could not read."""
    objects, problems = listing.dump(api, policy, lambda item: kinds.slim(item, policy), size=2)
    return [(each["kind"], each["metadata"]["name"]) for each in objects], [*map(str, problems)]


def test_all_of_a_cluster_is_listed_for_a_file_of_facts(server: Server, api: client.Api, sample_policy: Policy) -> None:
    readable(server)
    asks = {"nodeName": "n1", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
    server.answers["/api/v1/pods"] = [page(item("a", spec=asks), item("b", spec={"containers": []}))]
    server.answers["/api/v1/configmaps"] = [page(item("c", data={"a": "b"}), after="x"), page(item("d"))]
    server.answers["/apis/apps/v1/daemonsets"] = [page(item("e", spec={"template": {"spec": asks}}))]
    found, problems = dumped(api, sample_policy)
    names = [("Namespace", "vision"), ("Node", "n1"), ("Pod", "a"), ("DaemonSet", "e")]
    assert (found, problems) == ([*names, ("ConfigMap", "c"), ("ConfigMap", "d")], [])


def test_where_not_all_config_maps_may_be_listed_those_of_the_device_plugin_are(
    server: Server, api: client.Api, sample_policy: Policy
) -> None:
    readable(server)
    server.answers["/api/v1/configmaps"] = [403]
    server.answers["/apis/apps/v1"] = [resources("DaemonSet")]
    server.answers["/apis/apps/v1/daemonsets"] = [403]
    server.answers["/apis/apps/v1/namespaces/gpu-operator/daemonsets"] = [403]
    server.answers["/api/v1/namespaces/gpu-operator/configmaps"] = [page(item("c", "gpu-operator"))]
    found, problems = dumped(api, sample_policy)
    assert found == [("Namespace", "vision"), ("Node", "n1"), ("ConfigMap", "c")]
    assert problems == ["cluster: daemonsets.apps may not be listed: said 403"]


def test_a_forbidden_kind_is_reported_and_the_rest_is_read(
    server: Server, api: client.Api, sample_policy: Policy
) -> None:
    readable(server)
    server.answers["/api/v1/nodes"] = [403]
    server.answers["/api/v1/namespaces"] = [page({"metadata": {"name": "gpu-operator", "uid": "u"}})]
    server.answers["/api/v1/namespaces/gpu-operator/configmaps"] = [403]
    objects, problems = listing.facts(api, [sample_policy])
    assert [each["kind"] for each in objects] == ["Namespace"]
    assert [*map(str, problems)] == [
        "cluster: nodes may not be listed: said 403",
        "cluster: configmaps in namespace gpu-operator may not be listed: said 403",
    ]


def test_of_a_namespace_that_is_not_there_nothing_is_missing(
    server: Server, api: client.Api, sample_policy: Policy
) -> None:
    readable(server)
    server.answers["/api/v1/namespaces/gpu-operator/configmaps"] = [403]  # for which no powers can have been given
    assert listing.facts(api, [sample_policy])[1] == ()


def test_with_rights_in_one_namespace_that_one_is_read(server: Server, api: client.Api, sample_policy: Policy) -> None:
    readable(server)
    server.answers["/api/v1/namespaces"] = [403]
    server.answers["/api/v1/pods"] = [403]
    labels = {"slicewarden.dev/trust": "trusted"}
    server.answers["/api/v1/namespaces/vision"] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision", "uid": "u", "labels": labels}}
    ]
    server.answers["/api/v1/namespaces/vision/pods"] = [page()]
    objects, problems = listing.facts(api, [sample_policy], "vision")
    assert problems == ()
    assert Facts.of(objects).namespaces["vision"]["slicewarden.dev/trust"] == "trusted"


# What is judged


def test_pods_come_after_what_makes_them_and_only_those_that_live(
    server: Server, api: client.Api, sample_policy: Policy
) -> None:
    readable(server)
    server.answers["/apis"] = [{"groups": [group("apps", "v1"), group("resource.k8s.io", "v1")]}]
    server.answers["/apis/apps/v1"] = [resources("Deployment", "ReplicaSet")]
    server.answers["/apis/resource.k8s.io/v1"] = [resources("DeviceClass", namespaced=False)]
    found, _ = listing.judged(api, [sample_policy])
    assert [each.kind for each in found] == ["Deployment", "ReplicaSet", "DeviceClass", "Pod", "ConfigMap"]
    assert found[-2].fields == listing.LIVING
    within, _ = listing.judged(api, [sample_policy], "vision")
    assert [each.path for each in within] == [
        "/apis/apps/v1/namespaces/vision/deployments",
        "/apis/apps/v1/namespaces/vision/replicasets",
        "/api/v1/namespaces/vision/pods",
    ]


# As people run it


def audit(kubeconfig: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, list[str]]:
    status = cli.main(["audit", "--kubeconfig", kubeconfig, *options])
    captured = capsys.readouterr()
    return status, captured.out, captured.err.splitlines()


def test_a_kind_that_may_not_be_listed_is_one_line_and_the_rest_is_judged(
    server: Server, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    readable(server)
    spying = {"containers": [{"name": "c", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]}
    server.answers["/apis"] = [{"groups": [group("apps", "v1")]}]
    server.answers["/apis/apps/v1"] = [resources("Deployment")]
    server.answers["/apis/apps/v1/deployments"] = [403]
    server.answers["/api/v1/pods"] = [page(item("a", spec=spying))]
    status, out, err = audit(kubeconfig, capsys)
    assert status == 2
    assert "denied   Pod vision/a\n  Deny   visible-devices  spec.containers[0].env[0]\n" in out
    assert "error    cluster: deployments.apps may not be listed: said 403\n" in out
    assert err == []
    policy = load_policy("policies")
    report = json.loads(audit(kubeconfig, capsys, "--format", "json")[1])
    assert report["policy"] == {"name": policy.name, "digest": policy.digest}
    status, out, err = audit(kubeconfig, capsys, "--format", "policyreport")
    assert (status, [each["scope"]["name"] for each in json.loads(out)["items"]]) == (2, ["a"])
    assert err == ["cluster: deployments.apps may not be listed: said 403"]


@pytest.mark.parametrize("form", ["table", "json", "html", "github"])
@pytest.mark.parametrize("refused", [False, True])
def test_an_audit_prints_no_command_of_a_stranger(
    server: Server, kubeconfig: str, capsys: pytest.CaptureFixture[str], form: str, refused: bool
) -> None:
    """The texts are those of pods, of their workloads, of nodes, and of the API server's refusals."""
    readable(server)
    container = {"name": HOSTILE, "image": HOSTILE, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": HOSTILE}]}
    spying = {"nodeName": HOSTILE, "schedulerName": HOSTILE, "containers": [container]}
    owner = {"apiVersion": HOSTILE, "kind": HOSTILE, "name": HOSTILE, "uid": HOSTILE, "controller": True}
    made = item(HOSTILE, HOSTILE, spec=spying)
    made["metadata"] |= {"annotations": {HOSTILE: HOSTILE}, "labels": {HOSTILE: HOSTILE}, "ownerReferences": [owner]}
    server.answers["/api/v1/namespaces"] = [page({"metadata": {"name": HOSTILE, "uid": "u"}})]
    server.answers["/api/v1/nodes"] = [page({"metadata": {"name": HOSTILE, "uid": "v", "labels": {HOSTILE: HOSTILE}}})]
    server.answers["/apis"] = [{"groups": [group("apps", "v1"), group(HOSTILE, HOSTILE)]}]
    server.answers["/apis/apps/v1"] = [resources("Deployment")]
    server.answers["/api/v1/pods"] = [page(made)]
    server.said = HOSTILE
    if refused:
        server.answers["/api/v1/nodes"] = server.answers["/apis/apps/v1"] = [403]
    _, out, err = audit(kubeconfig, capsys, "--format", form)
    assert "forged" in out
    assert harmful(out, form) == []
    assert harmful("\n".join(err), "") == []


def test_a_namespace_that_is_not_there_is_told(
    server: Server, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    readable(server)
    status, out, _ = audit(kubeconfig, capsys, "--namespace", "visoin")
    assert (status, out.splitlines()[0]) == (2, 'error    cluster: there is no namespace "visoin"')


def test_a_token_that_has_expired_is_one_line(
    server: Server, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["/version"] = [401]
    status, out, err = audit(kubeconfig, capsys)
    assert (status, out) == (2, "")
    assert err == [f"error: {kubeconfig}: {server.url} does not know you; has the token expired? (401: said 401)"]


def test_a_server_that_does_not_answer_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as gone:
        url = f"http://127.0.0.1:{gone.server_port}"
    kubeconfig = write(tmp_path, url)
    status, out, err = audit(kubeconfig, capsys)
    assert (status, out) == (2, "")
    assert err == [f"error: {kubeconfig}: {url} does not answer: Connection refused"]


def test_a_server_of_something_else_is_one_line(
    server: Server, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["/version"] = [b"<html>welcome</html>"]
    status, _, (line,) = audit(kubeconfig, capsys)
    assert status == 2
    assert line == f"error: {kubeconfig}: {server.url} refuses to be asked (200: not an answer of Kubernetes)"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "file is empty"),
        (
            "kind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: x, user: y}}]\n",
            "Invalid",
        ),
        ("[1, 2]", "not a kubeconfig"),
        ("\x00\x01", "not a kubeconfig"),
    ],
    ids=["empty", "without a cluster", "a list", "binary"],
)
def test_a_kubeconfig_that_leads_nowhere_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)
    with pytest.raises(Unusable) as raised:
        listing.connect(str(file))
    (problem,) = raised.value.problems
    assert said in str(problem)
    assert "\n" not in str(problem)


def test_reports_need_their_definitions(server: Server, kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    readable(server)
    status, out, (line,) = audit(kubeconfig, capsys, "--write-reports", "openreports")
    assert (status, out) == (2, "")
    assert line.startswith(
        "error: --write-reports: the cluster has no reports.openreports.io and clusterreports.openreports.io "
    )
    assert not [method for method, _, _ in server.asked if method != "GET"]


def test_a_namespace_that_refuses_reports_keeps_no_other_one_from_its_own(
    server: Server, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is being deleted refuses them, and its tenant decides by a finalizer for how long."""
    readable(server)
    reports = "/apis/openreports.io/v1alpha1"
    spying = {"containers": [{"name": "c", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]}
    spaces = ("ending", "vision")
    pods = [item(f"{name}-{each}", name, spec=spying) for name in spaces for each in ("a", "b")]
    server.answers["/api/v1/namespaces"] = [page(*({"metadata": {"name": name, "uid": name}} for name in spaces))]
    server.answers["/api/v1/pods"] = [page(*pods)]
    server.answers[reports] = [resources("Report", "ClusterReport")]
    own = "{}/namespaces/{}/reports/slicewarden-uid-{}-{}"
    paths = {name: [own.format(reports, name, name, each) for each in "ab"] for name in spaces}
    server.answers |= {path: [403] for path in paths["ending"]} | {path: [{}] for path in paths["vision"]}
    old = f"{reports}/namespaces/vision/reports/slicewarden-gone"
    stale = {"metadata": {"name": "slicewarden-gone", "namespace": "vision", "uid": "g"}, "scope": {"kind": "Pod"}}
    server.answers |= {f"{reports}/reports": [page(stale)], f"{reports}/clusterreports": [page()], old: [{}]}
    status, out, _ = audit(kubeconfig, capsys, "--write-reports", "openreports")
    assert status == 2
    assert "--write-reports: reports.openreports.io cannot be written in ending: said 403" in out
    changed = [(method, path) for method, path, _ in server.asked if method != "GET" and "openreports" in path]
    written = [("PATCH", path) for path in (paths["ending"][0], *paths["vision"])]
    assert changed == [*written, ("DELETE", old)]


def test_no_bar_is_drawn_where_nobody_looks(
    server: Server, kubeconfig: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    readable(server)
    assert audit(kubeconfig, capsys)[2] == []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    audit(kubeconfig, capsys)
    status = cli.main(["audit", "--kubeconfig", kubeconfig])
    shown = capsys.readouterr().err
    assert status == 0
    assert "] pods" in shown
    assert shown.endswith("\r\033[K")


# What a change of policy would do to it


@pytest.fixture
def less(tmp_path: Path) -> str:
    """The sample policy, but of half as many GPUs."""
    text = POLICY.read_text("utf-8")
    assert text.count("maxRequest: 8\n") == 1
    file = tmp_path / "less.yaml"
    file.write_text(text.replace("maxRequest: 8\n", "maxRequest: 4\n"))
    return str(file)


def asking(gpus: int, **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}], **more}


def of(kind: str, name: str) -> list[dict[str, Any]]:
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def made_by(kind: str, owner: str, name: str, **more: Any) -> dict[str, Any]:
    made = item(name, **more)
    return {**made, "metadata": {**made["metadata"], "ownerReferences": of(kind, owner)}}


@pytest.fixture
def busy(server: Server) -> Server:
    """A cluster in which pods of a Deployment, of an unknown controller and of nobody ask for GPUs."""
    readable(server)
    template = {"template": {"metadata": {}, "spec": asking(8)}}
    server.answers |= {
        "/apis": [{"groups": [group("apps", "v1"), group("batch", "v1")]}],
        "/apis/apps/v1": [resources("Deployment", "ReplicaSet")],
        "/apis/batch/v1": [resources("Job")],
        "/apis/apps/v1/deployments": [page(item("web", spec=template))],
        "/apis/apps/v1/replicasets": [page(made_by("Deployment", "web", "web-1", spec=template))],
        "/apis/batch/v1/jobs": [
            page(item("done", spec=template, status={"conditions": [{"type": "Complete", "status": "True"}]}))
        ],
        "/api/v1/pods": [
            page(
                made_by("ReplicaSet", "web-1", "web-1-a", spec=asking(8)),
                made_by("LostSet", "lost", "lost-a", spec=asking(8)),
                item("bare", spec=asking(8)),
                item("small", spec=asking(1)),
                item("over", spec=asking(8), status={"phase": "Succeeded"}),
                item("of-system", "kube-system", spec=asking(8)),
            )
        ],
    }
    return server


def compared(
    kubeconfig: str, new: str, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, dict[str, list[str]], dict[str, Any]]:
    """The exit status of a comparison with the sample policy, what changes by kind and name, and all that was said."""
    live = "--live", "--kubeconfig", kubeconfig, "--format", "json"
    status = cli.main(["diff", str(POLICY), new, *options, *live])
    said = json.loads(capsys.readouterr().out)
    return status, {f"{each['kind']}/{each['name']}": each["effects"] for each in said["results"]}, said


@pytest.mark.usefixtures("busy")
def test_diff_live_compares_policies_on_the_objects_of_the_cluster(
    kubeconfig: str, less: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, changed, said = compared(kubeconfig, less, capsys)
    assert status == 1
    assert changed == {
        "Deployment/web": ["denied"],
        "Pod/lost-a": ["denied", "patchedOtherwise"],
        "Pod/bare": ["denied", "patchedOtherwise"],
    }
    assert said["summary"]["unchanged"] == 3  # a pod, the namespace and the node
    assert {(each["file"], each["line"], each["namespace"]) for each in said["results"]} == {("", 0, "vision")}
    for name, line in (
        ("table", "\ndenied, patched otherwise  Pod vision/bare\n  - → Deny  unsteered-pod  spec.containers[0]"),
        ("markdown", "\n| <code>Pod vision/bare</code> |  | - → Deny "),
    ):
        assert cli.main(["diff", str(POLICY), less, "--live", "--kubeconfig", kubeconfig, "--format", name]) == 1
        assert line in capsys.readouterr().out


def test_running_pods_are_compared_as_they_were_created(
    busy: Server, kubeconfig: str, less: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scheduler's choice of node is nobody's fault, under either policy."""
    busy.answers["/api/v1/nodes"] = [page({"metadata": {"name": "n1", "labels": {"nvidia.com/gpu.present": "true"}}})]
    running = item("bare", spec=asking(8, nodeName="n1"))
    running["metadata"]["managedFields"] = [{"fieldsV1": {"f:spec": {"f:containers": {}}}}]
    busy.answers["/api/v1/pods"] = [page(running)]
    _, changed, said = compared(kubeconfig, less, capsys)
    assert changed["Pod/bare"] == ["denied", "patchedOtherwise"]
    (bare,) = [each for each in said["results"] if each["name"] == "bare"]
    assert {each["rule"] for each in bare["findings"]} == {"unsteered-pod"}


def test_a_kind_and_a_namespace_that_only_one_policy_knows_are_read_too(
    busy: Server, kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = "{group: example.com, kind: Fleet, resource: fleets, templates: [spec.template]}"
    text = POLICY.read_text("utf-8")
    of_plugins = "\n    namespaces: [gpu-operator]\n"
    assert text.count("\n  rules:\n") == text.count(of_plugins) == 1
    text = text.replace("\n  rules:\n", f"\n  workloads: [{kind}]\n  rules:\n")
    (tmp_path / "new.yaml").write_text(text.replace(of_plugins, of_plugins.replace("gpu-operator", "plugins")))
    busy.answers["/apis"] = [{"groups": [group("example.com", "v1")]}]
    busy.answers["/apis/example.com/v1"] = [resources("Fleet")]
    busy.answers["/apis/example.com/v1/fleets"] = [page(item("f", spec={"template": {"spec": asking(9)}}))]
    _, changed, _ = compared(kubeconfig, str(tmp_path / "new.yaml"), capsys)
    assert changed["Fleet/f"][0] == "denied"
    assert {f"/api/v1/namespaces/{each}/configmaps" for each in ("gpu-operator", "plugins")} <= {
        path for _, path, _ in busy.asked
    }


def test_an_unreadable_kind_is_reported_and_the_rest_is_compared(
    busy: Server, kubeconfig: str, less: str, capsys: pytest.CaptureFixture[str]
) -> None:
    busy.answers["/apis/apps/v1/deployments"] = [403]
    beyond = item("beyond", spec={**asking(8), "deep": json.loads("[" * 300 + "]" * 300)})
    busy.answers["/api/v1/pods"] = [page(item("bare", spec=asking(8)), beyond)]
    status, changed, said = compared(kubeconfig, less, capsys)
    assert (status, [*changed]) == (2, ["Pod/bare"])
    assert [each["message"] for each in said["errors"] if each["file"] == "cluster"] == [
        "deployments.apps may not be listed: said 403"
    ]
    (error,) = [each for each in said["errors"] if each["file"] != "cluster"]
    assert (error["file"], error["line"]) == ("Pod vision/beyond", 0)


def test_one_namespace_is_compared_alone(
    busy: Server, kubeconfig: str, less: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("replicasets", "deployments"):
        busy.answers[f"/apis/apps/v1/namespaces/red/{kind}"] = [page()]
    busy.answers["/apis/batch/v1/namespaces/red/jobs"] = [page()]
    busy.answers["/api/v1/namespaces/red/pods"] = [page(item("theirs", "red", spec=asking(8)))]
    busy.answers["/api/v1/namespaces"] = [page({"metadata": {"name": "red"}}, {"metadata": {"name": "vision"}})]
    status, changed, said = compared(kubeconfig, less, capsys, "-n", "red")
    assert (status, [*changed], said["summary"]["objects"]) == (1, ["Pod/theirs"], 2)
    status, changed, said = compared(kubeconfig, less, capsys, "-n", "rde")
    assert (status, changed) == (2, {})
    assert 'there is no namespace "rde"' in {each["message"] for each in said["errors"]}


def test_files_are_compared_with_the_facts_of_a_cluster(
    busy: Server, kubeconfig: str, less: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"}, "spec": asking(8)}]
    (tmp_path / "pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    status, changed, said = compared(kubeconfig, less, capsys, str(tmp_path / "pods.json"), "--namespace", "vision")
    assert (status, [*changed], said["summary"]["objects"]) == (1, ["Pod/mine"], 1)
    assert said["results"][0]["namespace"] == "vision"
    assert "/api/v1/nodes" in {path for _, path, _ in busy.asked}
    assert "/apis" not in {path for _, path, _ in busy.asked}


@pytest.mark.parametrize("raw", [b"[" * 5_000 + b"]" * 5_000, b'"\xff"', rb'"\ud800"'], ids=["levels", "bytes", "half"])
def test_raw_json_of_one_tenant_ends_no_list(server: Server, api: client.Api, raw: bytes) -> None:
    made = page(item("a", parameters="raw"), item("b"))
    server.answers["/api/v1/pods"] = [json.dumps(made).encode().replace(b'"raw"', raw)]
    (found,) = listing.pages(api, PODS)
    assert [each["metadata"]["name"] for each in found] == ["a", "b"]
