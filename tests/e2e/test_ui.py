"""A user sees on the page of `slicewarden ui` what a real API server's RBAC lets them read, and nothing else."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.access import allowed, bound, role
from tests.e2e.control_plane import ADMIN, Cluster, User, eventually
from tests.e2e.objects import TRUSTED, Object, pod
from tests.support.policies import POLICY
from webhook.cluster import events
from webhook.cluster.events import EventNote, Owner

VIEWER = User("viewer-of-one")
"""Has the cluster's role `view` in one namespace."""
LISTER = User("lister-of-pods")
"""May list the pods of that namespace, and nothing else."""
MINE, THEIRS = "ui-mine", "ui-theirs"
NAMES = {"cards", "pools", "usage", "events", "enforcing"}


def holder(name: str, namespace: str) -> Object:
    """A running pod with two slices of a node, which an audit would deny."""
    made = pod(name, namespace, {"nvidia.com/gpu.shared": 2}, TRUSTED)
    made["spec"]["nodeName"] = "t4-shared-renamed"
    return made


def event(namespace: str) -> Object:
    """A denial, as the webhook writes it."""
    note = EventNote(Owner("apps/v1", "ReplicaSet", namespace, f"{namespace}-replicas", "u"), f"denied in {namespace}")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {**events.body(note, 1, now, "host")}


@pytest.fixture(scope="module")
def tenants(cluster: Cluster) -> Iterator[Cluster]:
    """Two namespaces with pods and Events, and users of the first one."""
    made = role("ui-list-pods", {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]})
    assert cluster.apply(made).returncode == 0
    for namespace in (MINE, THEIRS):
        cluster.add_namespace(namespace)
        assert cluster.apply(holder(f"{namespace}-pod", namespace)).returncode == 0
        cluster.do("create", "--filename=-", stdin=json.dumps(event(namespace)))
    bindings = (
        bound("RoleBinding", "viewer", "view", VIEWER.name, namespace=MINE),
        bound("RoleBinding", "lister", "ui-list-pods", LISTER.name, namespace=MINE),
    )
    assert cluster.apply(*bindings).returncode == 0
    for user in (VIEWER, LISTER):
        allowed(cluster, user, "list", "pods", MINE)
    allowed(cluster, VIEWER, "list", "events", MINE)
    listed = ("get", "pods", f"--namespace={MINE}", "--field-selector=spec.nodeName!=", "--output=name")
    assert eventually(lambda: bool(cluster.kubectl(*listed).stdout))
    yield cluster
    cluster.do("delete", "namespace", MINE, THEIRS, "--wait=false")
    cluster.do("delete", "clusterrole", "ui-list-pods")


@contextmanager
def command(cluster: Cluster, user: User, *arguments: str) -> Iterator[str]:
    """Run the command as a user knows it. Yields the address of the page."""
    line: list[str | Path] = [sys.executable, "-m", "webhook", "ui", "--no-browser", "--policy", POLICY]
    line += ["--kubeconfig", cluster.kubeconfig(user), *arguments]
    # A shell has its background jobs ignore SIGINT, and so would what they start.
    run = subprocess.Popen(
        line,
        cwd=cluster.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert run.stdout
        yield run.stdout.readline().strip()
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=300)[1]
        assert (run.returncode, "Traceback" in said) == (0, False), said
    finally:
        run.kill()
        run.communicate()


def seen(cluster: Cluster, user: User, *arguments: str) -> dict[str, str]:
    """The parts of the page that a user sees, once each was read. `page` is the page itself."""
    with command(cluster, user, *arguments) as address:
        url = urlsplit(address)
        found = dict[str, str]()
        connection = http.client.HTTPConnection(url.netloc, timeout=300)
        connection.request("GET", url.path)
        found["page"] = connection.getresponse().read().decode()
        connection.close()
        connection.request("GET", f"{url.path}live")
        for row in connection.getresponse():
            if row.startswith(b"data: "):
                part = json.loads(row.removeprefix(b"data: "))
                found[part["part"]] = part["html"]
            if found.keys() >= NAMES:
                break
        connection.close()
        return found


def test_who_may_read_everything_sees_both_namespaces(tenants: Cluster) -> None:
    found = seen(tenants, ADMIN)
    for namespace in (MINE, THEIRS):
        assert f"{namespace}-pod" in found["pools"]
        assert f"denied in {namespace}" in found["events"]
        assert f"{namespace}-pod" in found["enforcing"]
    assert "would be denied" in found["enforcing"]
    assert "nodes may not be listed" not in found["pools"]


def test_a_tenant_sees_their_namespace_and_nothing_else(tenants: Cluster) -> None:
    found = seen(tenants, VIEWER, "--namespace", MINE)
    assert f"{MINE}-pod" in found["pools"]
    assert f"denied in {MINE}" in found["events"]
    assert f"{MINE}-pod" in found["enforcing"]
    assert "cluster: nodes may not be listed: nodes is forbidden" in found["pools"]
    assert "cluster: pods in namespace slicewarden-node may not be listed" in found["cards"]
    assert THEIRS not in "".join(found.values())


def test_a_tenant_who_may_only_list_pods_sees_these_pods(tenants: Cluster) -> None:
    found = seen(tenants, LISTER, "--namespace", MINE)
    assert f"{MINE}-pod" in found["pools"]
    assert f"cluster: events in namespace {MINE} may not be listed" in found["events"]
    assert f"denied in {MINE}" not in found["events"]
    assert "deployments.apps" in found["enforcing"], "what could not be judged is named"
    assert THEIRS not in "".join(found.values())


def test_a_tenant_who_asks_for_everything_or_for_others_is_told_what_they_may_not_read(tenants: Cluster) -> None:
    everywhere = seen(tenants, VIEWER)
    assert "cluster: pods may not be listed: pods is forbidden" in everywhere["pools"]
    assert "cluster: events may not be listed" in everywhere["events"]
    others = seen(tenants, VIEWER, "--namespace", THEIRS)
    assert f"cluster: events in namespace {THEIRS} may not be listed" in others["events"]
    for found in (everywhere, others):
        text = "".join(found.values())
        assert f"{THEIRS}-pod" not in text
        assert f"denied in {THEIRS}" not in text
        assert f"{MINE}-pod" not in text
