"""Platforms and network plugins come up without the webhook: by the policy of `init`, nobody asks about their pods.

The conditions are evaluated by Google's own CEL, as an API server does (tests/support/conditions.py).
"""

from typing import Any

import pytest

from tests import ROOT
from tests.support.conditions import receivers, request_of
from tests.support.starting import made, objects, spec_of
from webhook.catalog.platforms import NETWORK_PLUGINS, PLATFORMS, NetworkPlugin
from webhook.engine.registration import configurations

KUBE_SYSTEM = (
    "aws-node",
    "azure-cni",
    "cilium",
    "antrea-agent",
    "weave-net",
    "kube-router",
    "kube-ovn-cni",
    "kube-multus-ds",
)
"""The DaemonSets of common network plugins that are in kube-system."""


def gpu_node(reason: str = "", **labels: str) -> Any:
    """A node with a GPU; `reason` is that of its condition about the network."""
    conditions = [{"type": "NetworkUnavailable", "status": "False", "reason": reason}] if reason else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "gpu",
            "labels": {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "1", **labels},
        },
        "status": {"allocatable": {"nvidia.com/gpu": "1"}, "conditions": conditions},
    }


def namespace(name: str) -> Any:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def agent(name: str, space: str) -> Any:
    """A DaemonSet that does all that a network plugin does: it is on every node, with all its powers."""
    container = {
        "name": "main",
        "image": "i",
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "run", "mountPath": "/host/run"}],
    }
    spec = {
        "hostNetwork": True,
        "hostPID": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "run", "hostPath": {"path": "/var/run"}}],
    }
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": space},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def pod_of(daemon_set: Any) -> Any:
    metadata = {"name": "a-b1c2d", "namespace": daemon_set["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": daemon_set["spec"]["template"]["spec"]}


def asked(policy: Any, item: Any) -> list[str]:
    hooks = [hook for each in configurations(policy) for hook in each["webhooks"]]
    return receivers(hooks, request_of(item))


@pytest.mark.parametrize("plugin", NETWORK_PLUGINS, ids=lambda plugin: plugin.namespace)
def test_no_network_plugin_depends_on_the_webhook(plugin: NetworkPlugin) -> None:
    own = agent(plugin.daemon_set, plugin.namespace)
    spaces = [namespace(name) for name in (plugin.namespace, *plugin.needs, "ml")]
    said = [] if plugin.reason else [plugin.namespace]  # no node names it, so an administrator has to
    made_for = made([gpu_node(plugin.reason), *spaces, own], no_tenants=said).policy
    assert {plugin.namespace, *plugin.needs} <= {*made_for.leave_alone}
    for name in (plugin.namespace, *plugin.needs):
        for item in (agent(plugin.daemon_set, name), pod_of(agent(plugin.daemon_set, name))):
            assert asked(made_for, item) == []
    assert "pods.slicewarden.dev" in asked(made_for, pod_of(agent("other", "ml"))), (
        "such a pod is asked about elsewhere"
    )


@pytest.mark.parametrize("name", KUBE_SYSTEM)
def test_no_network_plugin_of_kube_system_depends_on_the_webhook(name: str) -> None:
    own = agent(name, "kube-system")
    policy = made([gpu_node(), namespace("kube-system"), own]).policy
    assert asked(policy, own) == asked(policy, pod_of(own)) == []


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.name)
def test_the_namespaces_of_a_platform_are_left_alone_where_they_exist_and_there_alone(platform: Any) -> None:
    named = [pattern.replace("*", "thing") for pattern in platform.namespaces.patterns]
    items = [gpu_node(**dict.fromkeys(platform.node_labels, "x")), *map(namespace, (*named, "ml"))]
    assert [*made(items).policy.leave_alone] == sorted(named)
    assert made([gpu_node(), *map(namespace, named)]).policy.leave_alone == (), (
        "on another platform they are a tenant's"
    )
    first = made([gpu_node(**dict.fromkeys(platform.node_labels, "x")), namespace("ml")]).policy
    assert first.leave_alone == (), "no namespace is named that does not exist"


def test_a_daemonset_of_a_plugins_name_in_another_namespace_says_nothing() -> None:
    items = [gpu_node("CalicoIsUp"), namespace("ml"), namespace("calico-system"), agent("calico-node", "ml")]
    assert made(items).policy.leave_alone == ()


def test_openshifts_installers_are_not_asked_about() -> None:
    """They tolerate everything, and mount /etc/kubernetes. No revision of the API server comes up without them."""
    installer = pod_of(agent("installer", "openshift-kube-apiserver"))
    installer["spec"]["volumes"] = [{"name": "kubelet-dir", "hostPath": {"path": "/etc/kubernetes/"}}]
    label = {"node.openshift.io/os_id": "rhcos"}
    policy = made([gpu_node(**label), namespace("openshift-kube-apiserver")]).policy
    assert asked(policy, installer) == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("aks", {"calico-system", "tigera-operator"}),
        ("gke", {"gke-managed-system", "gmp-system"}),
        (
            "openshift",
            {
                "nvidia-gpu-operator",
                "openshift-config",
                "openshift-etcd",
                "openshift-kube-apiserver",
                "openshift-multus",
                "openshift-network-operator",
                "openshift-nfd",
                "openshift-ovn-kubernetes",
            },
        ),
        ("eks", set()),
    ],
)
def test_the_platform_of_a_cluster_is_known_without_an_option(name: str, wanted: set[str]) -> None:
    items = objects(ROOT / f"tests/clusters/{name}.yaml")
    assert {*made(items).policy.leave_alone} == wanted
    labels = [item["metadata"].get("labels", {}) for item in items if item["kind"] == "Node"]
    for each in labels:
        for platform in PLATFORMS:
            for key in platform.node_labels:
                each.pop(key, None)
    assert {*made(items).policy.leave_alone} == wanted & {"nvidia-gpu-operator"}, "its nodes say it, and no name does"


def test_no_gpu_operator_is_named_where_there_is_none() -> None:
    spec = spec_of(made(objects(ROOT / "tests/clusters/gke.yaml")).text)
    assert spec["sharing"]["namespaces"] == []
    policy = made(objects(ROOT / "tests/clusters/gke.yaml")).policy
    assert asked(policy, pod_of(agent("thief", "gpu-operator"))) != [], "whoever makes such a namespace is judged"
