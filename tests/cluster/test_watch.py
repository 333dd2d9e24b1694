"""Facts watched from a cluster, against an API server of our own that misbehaves to order."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes import client

from tests.support import waiting
from tests.support.kinds import examples
from tests.support.listening import Asked, listening
from tests.support.waiting import LONG
from webhook.api.resources import Resource
from webhook.cluster import client as connection
from webhook.cluster import watch as cluster
from webhook.cluster.page_size import PER_OBJECT
from webhook.cluster.watch import CachedObject, Cluster
from webhook.facts import kinds
from webhook.facts.kind import Fact
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.facts.sources import Fresh
from webhook.telemetry.metrics import Metrics

NAMESPACES, NODES, POLICIES = "/api/v1/namespaces", "/api/v1/nodes", "/apis/nvidia.com/v1/clusterpolicies"
PODS, CONFIG_MAPS = "/api/v1/pods", "/api/v1/namespaces/gpu-operator/configmaps"
DAEMON_SETS = "/apis/apps/v1/namespaces/gpu-operator/daemonsets"
DEVICES = [each.path for each in cluster.READ if each.group == "resource.k8s.io"]
ALL = (NAMESPACES, NODES, POLICIES, PODS, CONFIG_MAPS, DAEMON_SETS, *DEVICES)


def item(name: str, version: int, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version), "labels": labels}}


def event(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": value}


class Server:
    """Answers lists from `lists` and watches from `watches`, each in its order; the last list is given again."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = defaultdict(lambda: [[]])
        self.lists[POLICIES] = [404]
        self.watches: dict[str, list[Any]] = defaultdict(list)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.done = threading.Event()
        self.url = ""

    def answer(self, path: str, query: dict[str, str]) -> Any:
        self.asked.append((path, query))
        if "watch" in query:
            return self.watches[path].pop(0) if self.watches[path] else None
        answers = self.lists[path]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def of(self, path: str, *, watch: bool) -> list[dict[str, str]]:
        return [query for asked, query in self.asked if asked == path and ("watch" in query) is watch]


@pytest.fixture
def server() -> Iterator[Server]:
    known = Server()

    def respond(asked: Asked) -> None:
        url = urlsplit(asked.path)
        answer = known.answer(url.path, {key: values[0] for key, values in parse_qs(url.query).items()})
        if isinstance(answer, int):
            asked.give(answer, b"")
            return
        asked.begin(200, Content_Type="application/json", Connection="close")
        if isinstance(answer, list) and "watch=" not in url.query:
            answer = {"metadata": {"resourceVersion": "10"}, "items": answer}
        if isinstance(answer, dict):
            asked.wfile.write(json.dumps(answer).encode())
        elif answer is None:  # a watch in which nothing happens
            known.done.wait(LONG)
        else:
            for each in answer:
                asked.wfile.write(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n")
                asked.wfile.flush()

    with listening(respond) as known.url:
        yield known
        known.done.set()


@pytest.fixture
def logged() -> list[Any]:
    return []


@pytest.fixture
def follow(server: Server, monkeypatch: pytest.MonkeyPatch, logged: list[Any]) -> Iterator[Callable[..., Cluster]]:
    started: list[Cluster] = []
    monkeypatch.setattr(cluster, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(cluster, "LAST_PAUSE", 0.05)
    monkeypatch.setattr(cluster, "SETTLE_SECONDS", 0.01)

    def start(metrics: Metrics | None = None, read: Iterable[Resource] = cluster.READ) -> Cluster:
        settings = client.Configuration()
        settings.host = server.url
        followed = Cluster(client.ApiClient(settings), logged.append, ["gpu-operator"], metrics, read=read)
        followed.start()
        started.append(followed)
        return followed

    yield start
    for each in started:
        each.stop()


def until(cluster_: Cluster, holds: Callable[[Facts], bool]) -> Facts:
    end = time.monotonic() + LONG
    while (facts := cluster_.facts()) is None or not holds(facts):
        assert time.monotonic() < end, f"it did not come to hold: {facts}"
        time.sleep(0.01)
    return facts


def labels(facts: Facts, namespace: str) -> dict[str, str]:
    return {k: v for k, v in facts.namespaces.get(namespace, {}).items() if not k.startswith("kubernetes.io/")}


def test_lists_are_read_page_by_page(server: Server, follow: Callable[[], Cluster]) -> None:
    server.lists[NAMESPACES] = [
        {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [item("a", 1, x="1")]},
        {"metadata": {"resourceVersion": "9"}, "items": [item("b", 2)]},
    ]
    facts = until(follow(), lambda facts: "b" in facts.namespaces)
    assert set(facts.namespaces) == {"a", "b"}
    assert [query.get("continue", "") for query in server.of(NAMESPACES, watch=False)] == ["", "more"]


def test_a_cluster_is_followed_by_what_was_imported_before_workers_were_forked() -> None:
    """Else each of them has memory of its own for it; the client's classes for all kinds take 25 MiB."""
    program = """
import sys
from webhook.cluster import events, watch
known = set(sys.modules)
api = watch.client.ApiClient(watch.client.Configuration())
watch.Cluster(api, print, ["gpu-operator"])
events.Events(api, print)
print(len(set(sys.modules) - known))
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"0\n"


def test_there_are_no_facts_before_every_kind_was_listed(server: Server, follow: Callable[[], Cluster]) -> None:
    server.lists[NODES] = [500]
    followed = follow()
    waiting_for(lambda: len(server.of(NODES, watch=False)) > 3)
    waiting_for(lambda: all(server.of(path, watch=True) for path in ALL if path not in (NODES, POLICIES)))
    assert followed.facts() is None
    server.lists[NODES] = [[]]
    until(followed, lambda _: True)


def test_changes_come_in_by_watch(server: Server, follow: Callable[[], Cluster]) -> None:
    server.lists[NAMESPACES] = [[item("a", 1), item("gone", 2)]]
    server.watches[NAMESPACES] = [
        [
            event("MODIFIED", item("a", 11, x="1")),
            event("BOOKMARK", {"metadata": {"resourceVersion": "15"}}),
            event("ADDED", item("new", 16, x="2")),
            event("DELETED", item("gone", 17)),
        ]
    ]
    facts = until(follow(), lambda facts: "gone" not in facts.namespaces and "new" in facts.namespaces)
    assert (labels(facts, "a"), labels(facts, "new")) == ({"x": "1"}, {"x": "2"})
    assert server.of(NAMESPACES, watch=True)[0]["resourceVersion"] == "10"


def test_a_watch_that_ends_is_taken_up_where_it_was(server: Server, follow: Callable[[], Cluster]) -> None:
    server.watches[NODES] = [[event("ADDED", item("n1", 21))], [event("ADDED", item("n2", 22))]]

    def both(facts: Facts) -> bool:
        return {node.name for node in facts.nodes} == {"n1", "n2"} and len(server.of(NODES, watch=True)) >= 3

    until(follow(), both)
    assert [q["resourceVersion"] for q in server.of(NODES, watch=True)[:3]] == ["10", "21", "22"]
    assert len(server.of(NODES, watch=False)) == 1


@pytest.mark.parametrize(
    "gone",
    [410, [event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})]],
    ids=["by status", "by event"],
)
def test_a_version_that_is_too_old_starts_over_with_a_list(
    server: Server, follow: Callable[[], Cluster], gone: Any, logged: list[Any]
) -> None:
    server.lists[NODES] = [[item("old", 1)], [item("new", 30)]]
    server.watches[NODES] = [gone]
    facts = until(follow(), lambda facts: [node.name for node in facts.nodes] == ["new"])
    assert facts.nodes[0].name == "new"
    assert len(server.of(NODES, watch=False)) == 2
    assert [entry for entry in logged if entry["kind"] == "Node"] == []


@pytest.mark.parametrize(
    "broken", [500, [b"{not json\n"], [b'{"type": "ADDED"}\n']], ids=["status", "half", "no object"]
)
def test_the_last_snapshot_stands_while_a_watch_is_broken(
    server: Server, follow: Callable[[], Cluster], broken: Any, logged: list[Any]
) -> None:
    server.lists[NODES] = [[item("n1", 1)]]
    server.watches[NODES] = [broken] * 5
    followed = follow()
    until(followed, lambda facts: len(facts.nodes) == 1)

    def broke_five_times() -> bool:
        facts = followed.facts()
        assert facts is not None
        assert [node.name for node in facts.nodes] == ["n1"]
        return len([entry for entry in logged if entry["kind"] == "Node"]) == 5

    waiting_for(broke_five_times)


def test_a_heartbeat_makes_no_new_snapshot(server: Server, follow: Callable[[], Cluster]) -> None:
    beat = {**item("n1", 0, x="1"), "status": {"conditions": []}}
    server.lists[NODES] = [[item("n1", 1, x="1")]]
    server.watches[NODES] = [
        [event("MODIFIED", {**beat, "metadata": item("n1", n, x="1")["metadata"]}) for n in range(11, 60)]
    ]
    followed = follow()
    facts = until(followed, lambda facts: len(facts.nodes) == 1)
    while len(server.of(NODES, watch=True)) < 2:
        time.sleep(0.01)
    time.sleep(0.1)
    assert followed.facts() is facts


def test_a_kind_that_is_not_installed_is_none_of_it_and_looked_for_again(
    server: Server, follow: Callable[[], Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ABSENT_PAUSE", 0.05)
    policy = {
        **item("cluster-policy", 1),
        "spec": {"devicePlugin": {"config": {"name": "plugin-config"}}, "driver": {}},
    }
    followed = follow()
    assert until(followed, lambda _: True).installations == ()
    server.lists[POLICIES] = [404, [policy]]
    until(followed, lambda facts: [each.config_map for each in facts.installations] == ["plugin-config"])


def config_map(name: str, version: int, **data: str) -> dict[str, Any]:
    return {"metadata": {**item(name, version)["metadata"], "namespace": "gpu-operator"}, "data": data}


def pod(name: str, version: int, gpus: int, node: str = "n1") -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]
    metadata = {**item(name, version)["metadata"], "namespace": "vision"}
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": containers}, "status": {"phase": "Running"}}


def test_config_maps_are_read_where_sharing_is_configured(server: Server, follow: Callable[[], Cluster]) -> None:
    server.lists[CONFIG_MAPS] = [[config_map("c", 1, any="a"), config_map("d", 2)]]
    server.watches[CONFIG_MAPS] = [
        [event("MODIFIED", config_map("c", 11, any="b")), event("DELETED", config_map("d", 12))]
    ]
    facts = until(follow(), lambda facts: len(facts.config_maps) == 1)
    assert facts.config_maps == {("gpu-operator", "c"): {"any": "b"}}


@pytest.mark.parametrize("path", [CONFIG_MAPS, DAEMON_SETS, PODS])
def test_a_version_of_any_kind_that_is_too_old_starts_over(
    server: Server, follow: Callable[[], Cluster], path: str
) -> None:
    server.watches[path] = [410, [event("ERROR", {"code": 410, "reason": "Expired"})]]
    until(follow(), lambda _: True)
    waiting_for(lambda: len(server.of(path, watch=False)) == 3)


def test_a_namespace_that_is_not_there_holds_nothing(
    server: Server, follow: Callable[[], Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ABSENT_PAUSE", 0.05)
    server.lists[CONFIG_MAPS] = [403]
    followed = follow()
    assert until(followed, lambda _: True).config_maps == {}
    server.lists[CONFIG_MAPS] = [[config_map("c", 1)]]
    until(followed, lambda facts: ("gpu-operator", "c") in facts.config_maps)


def test_a_namespace_that_may_not_be_read_keeps_facts_back(
    server: Server, follow: Callable[[], Cluster], logged: list[Any]
) -> None:
    server.lists[NAMESPACES] = [[item("gpu-operator", 1)]]
    server.lists[CONFIG_MAPS] = [403]
    followed = follow()
    waiting_for(lambda: len([entry for entry in logged if entry["kind"] == "ConfigMap"]) > 3)
    assert followed.facts() is None


def config_maps_of(followed: Cluster) -> tuple[list[str], list[str]]:
    """The paths of the ConfigMaps that were not read, and of those that may not be read."""
    wanted = [each for each in cluster.inside(["gpu-operator"]) if each.kind == "ConfigMap"]
    return [each.path for each in followed.lacks(wanted)], [each.path for each in followed.forbidden(wanted)]


def test_only_a_missing_right_is_forbidden_and_only_until_the_next_answer(
    server: Server, follow: Callable[[], Cluster], logged: list[Any]
) -> None:
    """An API server that does not answer, or fails, gives the facts later without a change by a person."""
    server.lists[NAMESPACES] = [[item("gpu-operator", 1)]]
    server.lists[CONFIG_MAPS] = [500]
    followed = follow()

    def broke(status: str) -> bool:
        return any(each["kind"] == "ConfigMap" and each["error"].startswith(status) for each in logged)

    waiting_for(lambda: broke("500"))
    assert config_maps_of(followed) == ([CONFIG_MAPS], [])
    server.lists[CONFIG_MAPS] = [403]
    waiting_for(lambda: config_maps_of(followed) == ([CONFIG_MAPS], [CONFIG_MAPS]))
    server.lists[CONFIG_MAPS] = [503]
    waiting_for(lambda: config_maps_of(followed) == ([CONFIG_MAPS], []))
    server.lists[CONFIG_MAPS] = [403]
    waiting_for(lambda: config_maps_of(followed) == ([CONFIG_MAPS], [CONFIG_MAPS]))
    server.lists[CONFIG_MAPS] = [b"no answer of Kubernetes"]
    waiting_for(lambda: config_maps_of(followed) == ([CONFIG_MAPS], []))
    server.lists[CONFIG_MAPS] = [[config_map("c", 1)]]
    waiting_for(lambda: config_maps_of(followed) == ([], []))


def test_nothing_is_forbidden_while_nobody_knows_whether_the_namespace_exists(
    server: Server, follow: Callable[[], Cluster], logged: list[Any]
) -> None:
    """In a namespace that does not exist there is no right either."""
    server.lists[NAMESPACES] = [500]
    server.lists[CONFIG_MAPS] = [403]
    followed = follow()
    waiting_for(lambda: len([entry for entry in logged if entry["kind"] == "ConfigMap"]) > 3)
    assert config_maps_of(followed) == ([CONFIG_MAPS], [])
    server.lists[NAMESPACES] = [[item("gpu-operator", 1)]]
    waiting_for(lambda: config_maps_of(followed) == ([CONFIG_MAPS], [CONFIG_MAPS]))


def test_pods_that_hold_gpus_come_in_by_and_by(server: Server, follow: Callable[[], Cluster]) -> None:
    calm = threading.Event()

    def events() -> Iterator[dict[str, Any]]:
        calm.wait(LONG)
        yield event("ADDED", pod("c", 11, 2))
        yield event("DELETED", pod("b", 12, 0))

    server.lists[PODS] = [[pod("a", 1, 1), pod("b", 2, 0)]]
    server.watches[PODS] = [events()]
    followed = follow()
    until(followed, lambda facts: len(facts.holders) > 0)
    time.sleep(0.2)
    calm.set()
    while len(server.of(PODS, watch=True)) < 2:
        time.sleep(0.01)
    assert [each.name for each in until(followed, lambda _: True).holders] == ["a"]
    (options, *_) = server.of(PODS, watch=False)
    assert options["fieldSelector"] == "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def test_pods_alone_make_a_snapshot_in_the_end(
    server: Server, follow: Callable[[], Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "HOLDERS_SECONDS", 0.2)
    server.lists[PODS] = [[pod("a", 1, 1)]]
    server.watches[PODS] = [[event("ADDED", pod("c", 11, 2))]]
    until(follow(), lambda facts: {each.name for each in facts.holders} == {"a", "c"})


def test_a_change_of_a_node_reads_no_other_objects_again(server: Server, follow: Callable[[], Cluster]) -> None:
    calm = threading.Event()

    def events() -> Iterator[dict[str, Any]]:
        calm.wait(LONG)
        yield event("ADDED", item("two", 11))

    server.lists[PODS] = [[pod("a", 1, 1)]]
    server.lists[NODES] = [[item("one", 1)]]
    server.watches[NODES] = [events()]
    followed = follow()
    before = until(followed, lambda facts: len(facts.nodes) == 1)
    calm.set()
    after = until(followed, lambda facts: len(facts.nodes) == 2)
    assert after.holders[0] is before.holders[0]


# What is told of it


def waiting_for(holds: Callable[[], bool]) -> None:
    waiting.until(holds)


def shown(metrics: Metrics, name: str) -> float:
    (line,) = [line for line in metrics.text().decode().splitlines() if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


def test_facts_age_while_the_api_server_is_silent_and_are_fresh_when_it_speaks(
    server: Server, follow: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ABSENT_PAUSE", 0.05)
    speak = threading.Event()

    def events() -> Iterator[dict[str, Any]]:
        speak.wait(LONG)
        yield event("BOOKMARK", {"metadata": {"resourceVersion": "15"}})

    for path in ALL:
        server.watches[path] = [events()]
    server.lists[NODES] = [500]
    followed = follow()
    fresh, patient = (Fresh(followed.facts, followed.age, limit) for limit in (0.1, 2 * LONG))
    assert (followed.age(), patient()) == (float("inf"), None)
    server.lists[NODES] = [[]]
    until(followed, lambda _: True)
    assert patient() is followed.facts()
    waiting_for(lambda: followed.age() > 0.1)
    assert fresh() is None
    assert followed.facts() is not None
    silent = time.monotonic()
    speak.set()
    waiting_for(lambda: time.monotonic() - followed.age() > silent)
    assert patient() is followed.facts()


def test_metrics_count_the_age_of_facts_and_broken_watches(server: Server, follow: Callable[..., Cluster]) -> None:
    metrics = Metrics()
    assert shown(metrics, "slicewarden_facts_loaded") == 0
    server.watches[NODES] = [500, 500, 410]
    until(follow(metrics), lambda _: True)
    waiting_for(lambda: shown(metrics, "slicewarden_facts_loaded") == 1)
    waiting_for(lambda: shown(metrics, 'slicewarden_watch_breaks_total{kind="Node"}') == 2)
    assert shown(metrics, 'slicewarden_watch_breaks_total{kind="Pod"}') == 0
    for kind in ("Namespace", "Node", "ClusterPolicy", "Pod", "ConfigMap", "DaemonSet"):
        assert 0 <= shown(metrics, f'slicewarden_facts_age_seconds{{kind="{kind}"}}') < 60


def test_a_break_says_where_and_why(server: Server, follow: Callable[..., Cluster], logged: list[Any]) -> None:
    server.lists[NODES] = [503]
    follow()
    waiting_for(lambda: bool(logged))
    line = logged[0]
    assert line["host"] == server.url.removeprefix("http://")
    assert (line["message"], line["kind"], line["error"]) == ("watch broke", "Node", "503 Service Unavailable")


def refusal(message: str) -> client.ApiException:
    error = client.ApiException(status=403, reason="Forbidden")
    error.body = json.dumps({"kind": "Status", "message": message})
    return error


def caused(*errors: Exception) -> Exception:
    for outer, inner in pairwise(errors):
        outer.__cause__ = inner
    return errors[0]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (refusal("nodes is forbidden"), "nodes is forbidden"),
        (refusal("x" * 9000), "x" * cluster.MAX_REASON),
        (client.ApiException(status=502, reason="Bad Gateway"), ""),
        (
            caused(RuntimeError("https://u:canary@h/"), ConnectionRefusedError(111, "Connection refused")),
            "ConnectionRefusedError: Connection refused",
        ),
        (caused(OSError("canary"), ValueError("canary")), "ValueError"),
        (KeyError("canary"), "KeyError"),
    ],
)
def test_the_reason_of_a_break_holds_no_secret(error: Exception, reason: str) -> None:
    assert cluster._reason(error) == reason


def test_a_logged_address_is_only_the_host() -> None:
    settings = client.Configuration()
    settings.host = "https://user:canary@api.example:6443/canary"
    assert Cluster(client.ApiClient(settings), print)._host == "api.example:6443"


def test_only_what_facts_are_made_of_is_kept(follow: Callable[..., Cluster]) -> None:
    taints = [{"key": "slicewarden.dev/pool", "effect": "NoSchedule"}]
    spec = {"podCIDR": "10.0.0.0/8", "taints": taints}
    whole = {**item("n", 1, x="1"), "status": {"images": ["i"] * 50}, "spec": spec}
    whole["status"]["allocatable"] = {"cpu": "8", "nvidia.com/gpu": "4"}
    whole["metadata"]["managedFields"] = [{}] * 9
    node = next(resource for resource in cluster.READ if resource.kind == "Node")
    said = Node("n", {"x": "1"}, {"nvidia.com/gpu": 4}, {"slicewarden.dev/pool": frozenset(("NoSchedule",))})
    assert follow()._of(node, whole) == CachedObject("1", Fact("nodes", "n", said), None)


def test_a_kubeconfig_that_is_not_there_is_one_line(tmp_path: Any) -> None:
    with pytest.raises(connection.Unreachable) as raised:
        connection.connect(str(tmp_path / "none"))
    assert "\n" not in str(raised.value)


# What is read


WATCHED = [
    *cluster.READ,
    *cluster.READ_IF_NEEDED,
    *(replace(one, namespace="gpu-operator") for one in cluster.READ_WITHIN),
]
MANY = 50


def saying(resource: Resource, number: int, version: int) -> dict[str, Any]:
    """An object of a kind that says something, with a number in its name."""
    item: dict[str, Any] = json.loads(json.dumps(examples()[resource.of]))
    item["metadata"] |= {"name": f"o{number}", "uid": f"u{number}", "resourceVersion": str(version)}
    return item


@pytest.mark.parametrize("resource", WATCHED, ids=lambda one: one.kind)
def test_one_change_of_one_object_reads_one(
    server: Server, follow: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, resource: Resource
) -> None:
    """However many there are; a new list reads only what it did not list before in that version."""
    reads, calm = Counter[str](), threading.Event()
    monkeypatch.setattr(cluster, "HOLDERS_SECONDS", 0.05)
    read = kinds.read

    def counted(item: Any) -> Any:
        reads[item["kind"]] += 1
        return read(item)

    def events() -> Iterator[dict[str, Any]]:
        calm.wait(LONG)
        yield event("ADDED", saying(resource, MANY, 100))
        yield event("ERROR", {"code": 410, "reason": "Expired"})

    monkeypatch.setattr("webhook.cluster.watch.read", counted)
    first = [saying(resource, number, number + 1) for number in range(MANY)]
    server.lists[resource.path] = [first, [*first, saying(resource, MANY, 100), saying(resource, MANY + 1, 101)]]
    server.watches[resource.path] = [events()]
    followed = follow(read=(*cluster.READ, *cluster.READ_IF_NEEDED))
    before = until(followed, lambda _: True)
    assert reads[resource.kind] == MANY
    calm.set()
    until(followed, lambda facts: size(facts) >= size(before) + 2)
    assert reads[resource.kind] == MANY + 2


@pytest.mark.parametrize("resource", WATCHED, ids=lambda one: one.kind)
def test_objects_that_tenants_create_are_listed_in_small_pages(
    server: Server, follow: Callable[..., Cluster], resource: Resource
) -> None:
    """Each can have over a megabyte, so a page of many would fill the webhook's memory."""
    small = resource.kind in ("Pod", "ResourceClaim", "ResourceClaimTemplate")
    limit, tokens = (cluster.SMALL_PAGE, ["c1", ""]) if small else (connection.PAGE, [""])
    known = [saying(resource, number, number + 1) for number in range(MANY)]
    pages = [known[at : at + limit] for at in range(0, MANY, limit)]
    server.lists[resource.path] = [
        {"metadata": {"resourceVersion": "9", "continue": token}, "items": page}
        for page, token in zip(pages, tokens, strict=True)
    ]
    until(follow(read=(*cluster.READ, *cluster.READ_IF_NEEDED)), lambda facts: size(facts) == MANY)
    asked = [(query["limit"], query.get("continue", "")) for query in server.of(resource.path, watch=False)]
    assert asked == [(str(limit), token) for token in ("", *tokens[:-1])]
    waiting_for(lambda: bool(server.of(resource.path, watch=True)))
    assert server.of(resource.path, watch=True)[0]["resourceVersion"] == "9"


def test_a_page_that_is_too_long_is_asked_for_again_with_fewer_objects_and_one_object_is_read_however_long(
    server: Server, follow: Callable[..., Cluster]
) -> None:
    """Otherwise 25 pods of 3 MB, which any tenant can create, would take a gigabyte at every start."""
    (pods,) = (each for each in cluster.READ if each.kind == "Pod")
    large = saying(pods, 0, 1)
    large["metadata"]["annotations"] = {"padding": "x" * (cluster.SMALL_PAGE * PER_OBJECT)}
    long = {"metadata": {"resourceVersion": "9", "continue": "c1"}, "items": [large]}
    last = {"metadata": {"resourceVersion": "9"}, "items": [saying(pods, 1, 2)]}
    server.lists[PODS] = [*[long] * 5, last]
    until(follow(), lambda facts: len(facts.holders) == 2)
    asked = [(query["limit"], query.get("continue", "")) for query in server.of(PODS, watch=False)]
    assert asked == [("25", ""), ("12", ""), ("6", ""), ("3", ""), ("1", ""), ("2", "c1")]


def size(facts: Facts) -> int:
    """How much a snapshot says, of all kinds."""
    parts = (facts.namespaces, facts.nodes, facts.config_maps, facts.installations, facts.holders)
    return sum(map(len, (*parts, facts.device_classes, facts.claimed, facts.devices, *facts.tables.values())))


@pytest.mark.parametrize("resource", WATCHED, ids=lambda one: one.kind)
def test_an_object_that_says_the_same_again_makes_no_snapshot(
    server: Server, follow: Callable[..., Cluster], resource: Resource
) -> None:
    server.lists[resource.path] = [[saying(resource, 0, 1)]]
    followed = follow(read=(*cluster.READ, *cluster.READ_IF_NEEDED))
    until(followed, lambda facts: size(facts) == 1)
    beat = saying(resource, 0, 2)
    beat["metadata"]["annotations"] = {"beat": "2"}
    followed._take_in(resource, "MODIFIED", {**beat, "status": {**beat.get("status", {}), "conditions": []}})
    followed._replace(resource, dict(followed._known[resource]))
    assert resource not in followed._stale
    followed._take_in(resource, "DELETED", beat)
    assert not followed._known[resource]


def test_what_is_kept_of_objects_is_given_beside_the_facts(server: Server, follow: Callable[..., Cluster]) -> None:
    server.lists[NODES] = [[item("n", 1, x="1")]]
    settings = client.Configuration()
    settings.host = server.url
    followed = Cluster(client.ApiClient(settings), print, read=cluster.READ[1:2], keep=lambda item: item["metadata"])
    followed.start()
    until(followed, lambda facts: len(facts.nodes) == 1)
    assert followed.objects("Node") == (item("n", 1, x="1")["metadata"],)
    followed.stop()
    assert follow().objects("Node") == ()


def test_claims_of_one_template_share_what_is_read_of_them() -> None:
    claim = next(resource for resource in WATCHED if resource.kind == "ResourceClaim")
    one, other = (
        kinds.read({**saying(claim, number, 1), "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"})
        for number in range(2)
    )
    assert one is not None
    assert other is not None
    assert one.value is other.value
    assert one.key != other.key


DEEP = b'{"f:a":' * 1_100 + b"{}" + b"}" * 1_100


@pytest.mark.parametrize("raw", [DEEP, b'"\xff"', rb'"\ud800"'], ids=["levels", "bytes", "half a surrogate"])
def test_raw_json_of_one_tenant_hides_no_object_of_others(
    server: Server, follow: Callable[[], Cluster], logged: list[Any], raw: bytes
) -> None:
    """An API server passes on managed fields and parameters as they were written, in lists and in events."""

    def text(value: object) -> bytes:
        return json.dumps(value).encode().replace(b'"raw"', raw)

    def made(name: str, version: int) -> dict[str, Any]:
        known = item(name, version, x="1")
        known["metadata"]["managedFields"] = [{"fieldsV1": "raw"}]
        return known

    page = {"metadata": {"resourceVersion": "9"}, "items": [made("a", 1), item("b", 2)]}
    server.lists[NAMESPACES] = [(text(page),)]
    server.watches[NAMESPACES] = [[text(event("ADDED", made("c", 11))) + b"\n", event("ADDED", item("d", 12))]]
    facts = until(follow(), lambda facts: "d" in facts.namespaces)
    assert [labels(facts, name) for name in "abcd"] == [{"x": "1"}, {}, {"x": "1"}, {}]
    assert not [line for line in logged if line.get("kind") == "Namespace" and "Decode" in line["error"]]
