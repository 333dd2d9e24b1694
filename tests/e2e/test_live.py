"""Facts watched from a real API server, with the powers that the manifests give and no others."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e import control_plane
from tests.e2e.access import served
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.objects import CRD
from tests.support.manifests import powers
from webhook.cluster import client as connection_client
from webhook.cluster import watch as live

WATCHER = User("slicewarden")


def grant(cluster: Cluster, kind: str, role: str, *where: str) -> None:
    """Give the watcher a role of the manifests."""
    rendered = cluster.do("kustomize", ROOT / "manifests" / "base")
    parts = [part for part in rendered.split("\n---\n") if "\nkind: ClusterRole\n" in f"\n{part}\n"]
    cluster.do("apply", "--filename=-", stdin="\n---\n".join(parts))
    cluster.do("create", kind, "watcher", f"--clusterrole={role}", f"--user={WATCHER.name}", *where)


@pytest.fixture(scope="module")
def watched(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, live.Cluster]]:
    with (
        control_plane.running(tmp_path_factory.mktemp("live"), programs) as cluster,
        pytest.MonkeyPatch.context() as fast,
    ):
        fast.setattr(live, "ABSENT_PAUSE", 0.5)
        fast.setattr(live, "HOLDERS_SECONDS", 0.5)
        cluster.add_nodes()
        grant(cluster, "clusterrolebinding", "slicewarden")
        connection = connection_client.connect(str(cluster.kubeconfig(WATCHER)))
        followed = live.Cluster(connection, lambda _: None, ["gpu-operator"])  # which is not there yet
        followed.start()
        assert eventually(lambda: followed.facts() is not None)
        yield cluster, followed
        followed.stop()


def test_the_watch_reads_nodes_and_namespaces(watched: tuple[Cluster, live.Cluster]) -> None:
    cluster, followed = watched
    facts = followed.facts()
    assert facts is not None
    assert {node.name for node in facts.nodes} == {each["metadata"]["name"] for each in cluster.get("nodes")["items"]}
    shared = next(node for node in facts.nodes if node.name == "t4-shared")
    assert shared.labels["nvidia.com/gpu.replicas"] == "4"
    assert "kube-system" in facts.namespaces


def test_a_label_is_seen_soon_after_it_is_written(watched: tuple[Cluster, live.Cluster]) -> None:
    cluster, followed = watched
    cluster.add_namespace("late")
    cluster.do("label", "namespace", "late", "slicewarden.dev/trust=trusted")

    def granted() -> bool:
        facts = followed.facts()
        return facts is not None and facts.namespaces.get("late", {}).get("slicewarden.dev/trust") == "trusted"

    assert eventually(granted)
    cluster.do("label", "namespace", "late", "slicewarden.dev/trust-")
    assert eventually(lambda: not granted())


def test_a_node_that_goes_is_forgotten(watched: tuple[Cluster, live.Cluster]) -> None:
    cluster, followed = watched
    cluster.do("delete", "node", "m60-exclusive")
    assert eventually(lambda: "m60-exclusive" not in {node.name for node in getattr(followed.facts(), "nodes", ())})


def test_the_watch_finds_a_gpu_operator_installed_later(watched: tuple[Cluster, live.Cluster]) -> None:
    cluster, followed = watched
    assert cluster.apply(CRD).returncode == 0
    served(cluster, "clusterpolicies.nvidia.com")
    policy = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy"},
        "spec": {"devicePlugin": {"config": {"name": "plugin-config", "default": "any"}}},
    }
    assert cluster.apply(policy).returncode == 0
    assert eventually(
        lambda: [each.config_map for each in getattr(followed.facts(), "installations", ())] == ["plugin-config"]
    )


def test_the_watch_finds_a_sharing_namespace_created_later(watched: tuple[Cluster, live.Cluster]) -> None:
    cluster, followed = watched
    assert getattr(followed.facts(), "config_maps", None) == {}
    cluster.add_namespace("gpu-operator")
    grant(cluster, "rolebinding", "slicewarden-sharing", "--namespace=gpu-operator")
    cluster.do("create", "configmap", "plugin-config", "--from-literal=any=version: v1", "--namespace=gpu-operator")
    cluster.do("create", "configmap", "plugin-config", "--from-literal=any=x", "--namespace=default")

    def texts(name: str) -> object:
        return getattr(followed.facts(), "config_maps", {}).get(("gpu-operator", name))

    assert eventually(lambda: texts("plugin-config") == {"any": "version: v1"})
    assert {namespace for namespace, _ in getattr(followed.facts(), "config_maps", ())} == {"gpu-operator"}
    cluster.do("delete", "configmap", "plugin-config", "--namespace=gpu-operator")
    assert eventually(lambda: texts("plugin-config") is None)


def test_a_daemon_set_of_the_plugin_is_known(watched: tuple[Cluster, live.Cluster]) -> None:
    cluster, followed = watched
    container = {
        "name": "nvidia-device-plugin-ctr",
        "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
        "env": [{"name": "CONFIG_FILE", "value": "/etc/plugin/config.yaml"}],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/plugin"}],
    }
    volumes = [{"name": "config", "configMap": {"name": "plugin-file"}}]
    item = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "plugin", "namespace": "gpu-operator"},
        "spec": {
            "selector": {"matchLabels": {"app": "plugin"}},
            "template": {
                "metadata": {"labels": {"app": "plugin"}},
                "spec": {"nodeSelector": {"none": "such"}, "containers": [container], "volumes": volumes},
            },
        },
    }
    assert cluster.apply(item).returncode == 0

    def known() -> list[tuple[str, str]]:
        return [(each.config_map, each.key) for each in getattr(followed.facts(), "installations", ())]

    assert eventually(lambda: ("plugin-file", "config.yaml") in known())
    cluster.do("delete", "daemonset", "plugin", "--namespace=gpu-operator")
    assert eventually(lambda: ("plugin-file", "config.yaml") not in known())


def test_pods_that_hold_gpus_are_counted(watched: tuple[Cluster, live.Cluster]) -> None:
    cluster, followed = watched
    limits = {"nvidia.com/gpu": "1"}
    for name, amounts in (("holder", limits), ("cpu-only", {})):
        item = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": "t4-shared",
                "containers": [{"name": "c", "image": "i", "resources": {"limits": amounts}}],
            },
        }
        assert cluster.apply(item).returncode == 0

    def held() -> list[tuple[str, str, dict[str, int]]]:
        return [(each.name, each.node, dict(each.asks)) for each in getattr(followed.facts(), "holders", ())]

    assert eventually(lambda: held() == [("holder", "t4-shared", {"nvidia.com/gpu": 1})])
    cluster.do("delete", "pod", "holder", "cpu-only", "--namespace=default", "--force", "--grace-period=0")
    assert eventually(lambda: held() == [])


def test_the_roles_of_the_manifests_allow_exactly_what_the_webhook_reads_and_asks(
    watched: tuple[Cluster, live.Cluster],
) -> None:
    cluster, _ = watched
    rights = {("authorization.k8s.io", "subjectaccessreviews", "create")}
    for read, more, role in (
        ((*live.READ, *live.READ_IF_NEEDED), rights, cluster.get("clusterrole", "slicewarden")),
        (live.READ_WITHIN, set(), cluster.get("clusterrole", "slicewarden-sharing")),
    ):
        reads = {(each.group, each.plural, verb) for each in read for verb in ("get", "list", "watch")}
        assert powers(role) == reads | more
    for verb, resource in (("list", "secrets"), ("create", "pods"), ("update", "nodes"), ("list", "configmaps")):
        asked = cluster.kubectl("auth", "can-i", verb, resource, "--all-namespaces", user=WATCHER)
        assert asked.stdout.strip() == "no", json.dumps([verb, resource])
