"""The API server goes away and comes back, and loses its memory: reviews go on, and facts catch up."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.e2e import control_plane
from tests.e2e.conftest import granted, spaces
from tests.e2e.control_plane import Cluster, answers, eventually
from tests.e2e.guard import Guard
from tests.e2e.objects import TRUSTED, pod
from webhook.cluster.watch import READ, READ_WITHIN


@pytest.fixture(scope="module")
def restarted(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    """A cluster and a webhook of our own, that nobody minds; with the plugin that tolerates taints named like GPUs."""
    folder = tmp_path_factory.mktemp("restart")
    with control_plane.running(folder, programs, admission=["ExtendedResourceToleration"]) as cluster:
        cluster.add_nodes()
        guard = Guard(cluster)
        guard.start()
        guard.register()
        yield guard


@pytest.fixture
def space(restarted: Guard) -> Iterator[str]:
    making = spaces(restarted.cluster)
    yield granted(restarted, next(making)(TRUSTED))
    next(making, None)


def refused(guard: Guard, namespace: str) -> bool:
    """Tell whether trust counts for nothing in a namespace, in the webhook's eyes."""
    asks = json.dumps(pod("probe", namespace, annotations=TRUSTED))
    made = guard.cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=asks)
    return "unearned-trust:" in made.stderr


def test_tolerations_that_the_api_server_adds_move_no_pod(restarted: Guard, space: str) -> None:
    """ExtendedResourceToleration adds a toleration of a taint that is not ours, and moves no pod."""
    cluster = restarted.cluster
    assert cluster.apply(pod("shared", space, annotations=TRUSTED), pod("whole", space)).returncode == 0
    assert cluster.node_of("shared", space) == "t4-shared"
    assert cluster.node_of("whole", space) == "a100-exclusive"
    tolerations = cluster.get("pod", "shared", f"--namespace={space}")["spec"]["tolerations"]
    keys = [each["key"] for each in tolerations if each["effect"] == "NoSchedule"]
    assert sorted(keys) == ["nvidia.com/gpu", "slicewarden.dev/pool"]


def test_facts_come_back_after_a_restart_of_the_api_server(restarted: Guard, space: str) -> None:
    """The first review after it is answered from the last snapshot; what changes afterwards is seen."""
    cluster = restarted.cluster
    cluster.restart("kube-apiserver")
    cluster.wait_until("the API server is ready", lambda: answers(cluster))
    before = len(restarted.asked(space))
    made = cluster.kubectl("create", "--filename=-", stdin=json.dumps(pod("first", space, annotations=TRUSTED)))
    assert made.returncode == 0, made.stderr
    assert restarted.asked(space)[before:] == ["/mutate", "/validate"]
    assert cluster.node_of("first", space) == "t4-shared"
    broke = {entry["kind"] for entry in restarted.logged() if entry.get("message") == "watch broke"}
    assert broke <= {resource.kind for resource in (*READ, *READ_WITHIN)}
    cluster.do("label", "namespace", space, "slicewarden.dev/trust-")
    assert eventually(lambda: refused(restarted, space))


def test_changes_missed_by_a_stopped_watch_are_found_by_a_new_list(restarted: Guard, space: str) -> None:
    """The watches' past is compacted away while the webhook is stopped: only a new list can tell what changed."""
    cluster = restarted.cluster
    assert not refused(restarted, space)
    seen = cluster.get("namespace", space)["metadata"]["resourceVersion"]
    (webhook,) = [each for each in cluster.components if each.name == "webhook"]
    restarted.unregister()  # which else would have to answer for the label
    os.killpg(webhook.process.pid, signal.SIGSTOP)
    try:
        cluster.do("label", "namespace", space, "slicewarden.dev/trust-")
        cluster.do("label", "namespace", space, "example.com/later=yes")
        latest = cluster.get("namespace", space)["metadata"]["resourceVersion"]
        compact(cluster, int(latest))
        cluster.restart("kube-apiserver")
        cluster.wait_until("the API server is ready", lambda: answers(cluster))
        watch = f"--raw=/api/v1/namespaces?watch=1&timeoutSeconds=5&resourceVersion={seen}"
        assert '"code":410' in said(cluster, watch)
    finally:
        os.killpg(webhook.process.pid, signal.SIGCONT)
    restarted.register()
    assert eventually(lambda: refused(restarted, space))
    cluster.do("label", "namespace", space, "slicewarden.dev/trust=trusted")
    assert eventually(lambda: not refused(restarted, space))


def said(cluster: Cluster, path: str) -> str:
    asked = cluster.kubectl("get", path)
    return (asked.stdout + asked.stderr).replace(" ", "")


def compact(cluster: Cluster, revision: int) -> None:
    """Have etcd forget everything before a revision, through its JSON gateway."""
    connection = HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(cluster.folder / "client.sock"))
    body = json.dumps({"revision": str(revision), "physical": True})
    connection.request("POST", "/v3/kv/compaction", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    connection.close()
