"""Trust on a real API server: what a tenant cannot take, whatever RBAC gave away, and whom that leaves in peace."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import control_plane
from tests.e2e.access import bound, refusal, role
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.guard import Guard, logged
from tests.e2e.objects import TRUSTED, Object, plain, pod

TENANT = User("dana")
"""Has the cluster's ordinary role `edit` in the namespace visitors."""
GIFTED = User("eve")
"""Was given what no tenant should have, by carelessness."""
KUBELET = User("system:node:newcomer", ("system:nodes",))
DISCOVERY = User("system:serviceaccount:gpu-operator:node-feature-discovery")
TRUST = "slicewarden.dev/trust"
STRATEGY = "nvidia.com/gpu.sharing-strategy"
VISITORS = "--namespace=visitors"


@pytest.fixture(scope="module")
def guarded(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own with the webhook in front, and people with more and fewer rights."""
    with control_plane.running(tmp_path_factory.mktemp("trust"), programs) as cluster:
        cluster.add_nodes()
        for name, labels in {"vision": TRUSTED, "visitors": {}}.items():
            cluster.add_namespace(name, labels)
        assert cluster.apply(*rights()).returncode == 0
        guard = Guard(cluster)
        guard.start()
        guard.register()
        yield cluster


def rights() -> Iterator[Object]:
    yield bound("RoleBinding", "tenant", "edit", TENANT.name, namespace="visitors")
    nodes = {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]}
    much = ["namespaces", "namespaces/status", "namespaces/finalize", "pods", "pods/status", "pods/binding", "bindings"]
    yield role("careless", nodes, {"apiGroups": [""], "resources": much, "verbs": ["*"]})
    yield bound("ClusterRoleBinding", "gifted", "careless", GIFTED.name)
    yield role("node", nodes)
    for user in (KUBELET, DISCOVERY):
        yield bound("ClusterRoleBinding", user.name.rpartition(":")[2], "node", user.name)


def judged(cluster: Cluster) -> list[Object]:
    """Every review so far, as logged."""
    return [entry for entry in logged(cluster) if "endpoint" in entry]


def namespace(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def labels_of(cluster: Cluster, kind: str, name: str) -> dict[str, str]:
    return dict(cluster.get(kind, name)["metadata"]["labels"])


# Labels of namespaces


def test_an_ordinary_tenant_cannot_even_try(guarded: Cluster) -> None:
    """Before the webhook stands RBAC, which gives `edit` neither namespaces nor bindings."""
    assert "cannot patch" in refusal(guarded, TENANT, "label", "namespace", "visitors", f"{TRUST}=trusted")
    for way in ways("any"):
        arguments = ("create", f"--raw={way}", "--filename=-")
        assert "cannot create resource" in refusal(guarded, TENANT, *arguments, item=bind("any", "t4-shared"))
    assert 'User "dana" cannot' in refusal(guarded, TENANT, "label", "node", "t4-shared", f"{STRATEGY}-")


def merge(**labels: str | None) -> str:
    return f"--patch={json.dumps({'metadata': {'labels': labels}})}"


MINE = merge(**{TRUST: "trusted"})
FORGED = merge(**{TRUST: "trusted", "kubernetes.io/metadata.name": "kube-system"})


@pytest.mark.parametrize(
    "arguments",
    [
        ("label", "namespace", "visitors", f"{TRUST}=trusted"),
        ("label", "namespace", "visitors", f"{TRUST}=trusted", "--dry-run=server"),
        ("patch", "namespace", "visitors", "--type=merge", MINE),
        ("patch", "namespace", "visitors", "--type=strategic", MINE),
        ("patch", "namespace", "visitors", "--type=merge", FORGED),
        ("patch", "namespace", "visitors", "--type=merge", "--subresource=status", MINE),
    ],
    ids=" ".join,
)
def test_a_label_that_grants_is_not_written_by_a_patch(guarded: Cluster, arguments: tuple[str, ...]) -> None:
    assert "self-granted-trust:" in refusal(guarded, GIFTED, *arguments)
    assert TRUST not in labels_of(guarded, "namespace", "visitors")


@pytest.mark.parametrize(
    "arguments",
    [
        ("apply", "--filename=-"),
        ("apply", "--server-side", "--force-conflicts", "--filename=-"),
        ("replace", "--filename=-"),
        ("replace", "--raw=/api/v1/namespaces/visitors", "--filename=-"),
        ("replace", "--raw=/api/v1/namespaces/visitors/status", "--filename=-"),
        ("replace", "--raw=/api/v1/namespaces/visitors/finalize", "--filename=-"),
    ],
    ids=" ".join,
)
def test_a_label_that_grants_is_not_written_by_an_update(guarded: Cluster, arguments: tuple[str, ...]) -> None:
    item = guarded.get("namespace", "visitors")
    del item["metadata"]["managedFields" if "managedFields" in item["metadata"] else "creationTimestamp"]
    item["metadata"]["labels"][TRUST] = "trusted"
    assert "self-granted-trust:" in refusal(guarded, GIFTED, *arguments, item=item)
    assert TRUST not in labels_of(guarded, "namespace", "visitors")


@pytest.mark.parametrize("arguments", [("create",), ("apply",), ("apply", "--server-side")], ids=" ".join)
def test_no_tenant_creates_a_namespace_with_a_label_that_grants_trust(
    guarded: Cluster, arguments: tuple[str, ...]
) -> None:
    item = namespace("mine", **TRUSTED)
    assert "self-granted-trust:" in refusal(guarded, GIFTED, *arguments, "--filename=-", item=item)
    assert guarded.kubectl("get", "namespace", "mine").returncode


def test_a_label_that_grants_trust_cannot_be_removed_by_a_tenant(guarded: Cluster) -> None:
    assert "self-granted-trust:" in refusal(guarded, GIFTED, "label", "namespace", "vision", f"{TRUST}-")
    assert labels_of(guarded, "namespace", "vision")[TRUST] == "trusted"


def test_other_labels_of_namespaces_are_not_reviewed(guarded: Cluster) -> None:
    before = len(judged(guarded))
    guarded.do("label", "namespace", "vision", "team=eyes", user=GIFTED)
    guarded.do("create", "--filename=-", stdin=json.dumps(namespace("plain", team="any")), user=GIFTED)
    guarded.do("delete", "namespace", "plain", "--timeout=300s", user=GIFTED)
    assert judged(guarded)[before:] == []


def test_an_administrator_grants_and_the_namespace_goes_as_any_other(guarded: Cluster) -> None:
    before = len(judged(guarded))
    guarded.add_namespace("granted", TRUSTED)
    guarded.do("delete", "namespace", "granted", "--timeout=300s")
    assert [entry["operation"] for entry in judged(guarded)[before:]] == ["CREATE"]


def test_kube_system_is_left_alone(guarded: Cluster) -> None:
    before = len(judged(guarded))
    guarded.do("label", "namespace", "kube-system", f"{TRUST}=trusted")
    guarded.do("label", "namespace", "kube-system", f"{TRUST}-")
    assert judged(guarded)[before:] == []


# The annotation of a pod


@pytest.fixture(scope="module")
def running(guarded: Cluster) -> str:
    """An untrusted pod of the tenant that runs."""
    guarded.do("create", "--filename=-", stdin=json.dumps(pod("train", "visitors")), user=TENANT)
    assert guarded.node_of("train", "visitors") == "a100-exclusive"
    return "train"


def annotate(trust: str | None) -> str:
    return f"--patch={json.dumps({'metadata': {'annotations': {TRUST: trust}}})}"


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
@pytest.mark.parametrize("user", [TENANT, None], ids=["tenant", "administrator"])
def test_trust_is_not_written_into_a_pod_that_is_there(
    guarded: Cluster, running: str, user: User | None, trust: str
) -> None:
    arguments = ("annotate", "pod", running, f"{TRUST}={trust}", VISITORS)
    assert "changed-trust:" in refusal(guarded, user, *arguments)


@pytest.mark.parametrize("trust", ["untrusted", None], ids=["lowered", "removed"])
def test_trust_is_not_taken_from_a_pod_that_shares(guarded: Cluster, trust: str | None) -> None:
    guarded.apply(pod("notebook", "vision", annotations=TRUSTED))
    assert guarded.node_of("notebook", "vision") == "t4-shared"
    for where in ((), ("--subresource=status",)):
        arguments = ("patch", "pod", "notebook", "--type=merge", annotate(trust), "--namespace=vision", *where)
        assert "changed-trust:" in refusal(guarded, None, *arguments)


def test_trust_does_not_come_with_the_status(guarded: Cluster, running: str) -> None:
    arguments = ("patch", "pod", running, "--subresource=status", "--type=merge", annotate("trusted"), VISITORS)
    assert "changed-trust:" in refusal(guarded, GIFTED, *arguments)
    assert TRUST not in guarded.get("pod", running, VISITORS)["metadata"].get("annotations", {})


def test_the_rest_of_a_pod_may_be_changed(guarded: Cluster, running: str) -> None:
    guarded.do("annotate", "pod", running, "example.com/note=mine", VISITORS, user=TENANT)
    before = len(judged(guarded))
    note = json.dumps({"metadata": {"annotations": {"example.com/note": "theirs"}}})
    status = ("patch", "pod", running, "--subresource=status", "--type=merge", f"--patch={note}", VISITORS)
    guarded.do(*status, user=GIFTED)
    assert judged(guarded)[before:] == []


# Bindings


def waiting(cluster: Cluster, name: str) -> None:
    """A plain pod that no scheduler looks at."""
    item = plain(pod(name, "visitors"))
    item["spec"]["schedulerName"] = "nobody"
    cluster.do("create", "--filename=-", stdin=json.dumps(item), user=TENANT)


def bind(name: str, node: str, **annotations: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": "visitors", "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def ways(name: str) -> list[str]:
    return [f"/api/v1/namespaces/visitors/{path}" for path in (f"pods/{name}/binding", "bindings")]


@pytest.mark.parametrize("way", [0, 1], ids=["pods/binding", "bindings"])
@pytest.mark.parametrize(
    ("node", "annotations"),
    [
        ("a100-exclusive", {}),
        ("t4-shared", {}),
        ("nowhere", {}),
        ("cpu", TRUSTED),
        ("cpu", {"nvidia.cdi.k8s.io/container.c": "nvidia.com/gpu=all"}),
    ],
    ids=["exclusive", "shared", "unknown", "trust", "devices"],
)
def test_only_the_scheduler_may_bind_pods_to_gpu_nodes(
    guarded: Cluster, way: int, node: str, annotations: dict[str, str]
) -> None:
    if guarded.kubectl("get", "pod", "lurker", VISITORS).returncode:
        waiting(guarded, "lurker")
    arguments = ("create", f"--raw={ways('lurker')[way]}", "--filename=-")
    said = refusal(guarded, GIFTED, *arguments, item=bind("lurker", node, **annotations))
    assert "foreign-binding:" in said
    item = guarded.get("pod", "lurker", VISITORS)
    assert "nodeName" not in item["spec"]
    assert item["metadata"].get("annotations", {}).keys().isdisjoint(annotations)


@pytest.mark.parametrize("way", [0, 1], ids=["pods/binding", "bindings"])
def test_a_node_without_a_gpu_may_be_bound_to(guarded: Cluster, way: int) -> None:
    name = f"bound-{way}"
    waiting(guarded, name)
    item = bind(name, "cpu", **{"example.com/note": "mine"})
    guarded.do("create", f"--raw={ways(name)[way]}", "--filename=-", stdin=json.dumps(item), user=GIFTED)
    assert guarded.node_of(name, "visitors") == "cpu"


def test_what_the_scheduler_binds_and_kubelets_say_never_reaches_the_webhook(guarded: Cluster) -> None:
    before = len(judged(guarded))
    assert guarded.apply(pod("scheduled", "visitors"), plain(pod("also", "visitors"))).returncode == 0
    assert guarded.node_of("scheduled", "visitors") == "a100-exclusive"
    assert guarded.node_of("also", "visitors") == "cpu"
    assert {(entry["name"], entry["subresource"]) for entry in judged(guarded)[before:]} == {("scheduled", "")}


# Labels of nodes


@pytest.mark.parametrize(
    "arguments",
    [
        ("label", "node", "t4-shared", f"{STRATEGY}=none", "--overwrite"),
        ("label", "node", "t4-shared", f"{STRATEGY}-"),
        ("label", "node", "a100-exclusive", f"{STRATEGY}=time-slicing", "--overwrite"),
        ("label", "node", "cpu", "nvidia.com/gpu.product=Tesla-T4"),
        ("patch", "node", "t4-shared", "--subresource=status", "--type=merge", merge(**{STRATEGY: "none"})),
    ],
    ids=" ".join,
)
def test_a_tenant_cannot_move_a_node_to_another_pool(guarded: Cluster, arguments: tuple[str, ...]) -> None:
    before = labels_of(guarded, *arguments[1:3])
    assert "relabelled-node:" in refusal(guarded, GIFTED, *arguments)
    assert labels_of(guarded, *arguments[1:3]) == before


def test_a_tenant_cannot_create_a_node_in_a_pool(guarded: Cluster) -> None:
    item = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine", "labels": {STRATEGY: "time-slicing"}}}
    assert "relabelled-node:" in refusal(guarded, GIFTED, "create", "--filename=-", item=item)


def test_a_kubelet_registers_its_node_and_leaves_its_pool_alone(guarded: Cluster) -> None:
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "kubernetes.io/os": "linux"}
    item = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "newcomer", "labels": labels}}
    guarded.do("create", "--filename=-", stdin=json.dumps(item), user=KUBELET)
    before = len(judged(guarded))
    beat: dict[str, Any] = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}
    for _ in range(3):
        status = ("patch", "node", "newcomer", "--subresource=status", f"--patch={json.dumps(beat)}")
        guarded.do(*status, user=KUBELET)
    guarded.do("label", "node", "newcomer", "topology.kubernetes.io/zone=a", user=KUBELET)
    assert judged(guarded)[before:] == []
    moved = ("label", "node", "newcomer", f"{STRATEGY}=time-slicing")
    assert "relabelled-node:" in refusal(guarded, KUBELET, *moved)
    guarded.do(*moved, user=DISCOVERY)
    guarded.do("delete", "node", "newcomer")


def test_nodes_of_a_running_cluster_do_not_reach_the_webhook(guarded: Cluster) -> None:
    """Leases, taints of the node controller, labels that no pool speaks of."""
    before = len(judged(guarded))
    guarded.do("taint", "node", "cpu", "example.com/busy=yes:NoSchedule")
    guarded.do("taint", "node", "cpu", "example.com/busy-")
    guarded.do("label", "node", "t4-shared", "example.com/rack=7")
    guarded.do("cordon", "t4-shared")
    guarded.do("uncordon", "t4-shared")
    assert judged(guarded)[before:] == []


def test_trust_counts_from_the_administrator_s_label(guarded: Cluster) -> None:
    """The last test: what eve could not take, dana is given."""
    item = pod("early", "visitors", annotations=TRUSTED)
    assert "unearned-trust:" in refusal(guarded, TENANT, "create", "--filename=-", item=item)
    guarded.do("label", "namespace", "visitors", f"{TRUST}=trusted")
    create = ("create", "--filename=-")
    assert eventually(lambda: not guarded.kubectl(*create, stdin=json.dumps(item), user=TENANT).returncode)
    assert guarded.node_of("early", "visitors") == "t4-shared"
