"""Sharing configurations, and what names and chooses them, before a real API server and as kubectl sees it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import control_plane, offered
from tests.e2e.access import allowed, served
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.guard import Guard, logged, policy_of
from tests.e2e.objects import CRD, Object, config_map

JANE = User("jane", ("vision",))
LABEL = "nvidia.com/device-plugin.config"
NAME = "plugin-config"
RESTART = "kubectl -n gpu-operator rollout restart daemonset/nvidia-device-plugin-daemonset"


def sharing(replicas: int) -> str:
    entry = f"{{name: nvidia.com/gpu, replicas: {replicas}}}"
    return f"sharing: {{timeSlicing: {{failRequestsGreaterThanOne: true, resources: [{entry}]}}}}\n"


TEXTS = {"any": "version: v1\n", "t4": sharing(4), "spare": "version: v1\n"}


def plugin_config(data: dict[str, str], name: str = NAME) -> Object:
    return config_map(name, "gpu-operator", data)


def cluster_policy(name: str, default: str, **more: Any) -> Object:
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy", **more},
        "spec": {"devicePlugin": {"config": {"name": name, "default": default}}},
    }


@pytest.fixture(scope="module")
def shared(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose GPU Operator reads a ConfigMap of three keys, of which the node t4-shared chose one."""
    with control_plane.running(tmp_path_factory.mktemp("sharing"), programs) as cluster:
        cluster.add_nodes()
        for name in ("vision", "visitors", "gpu-operator"):
            cluster.add_namespace(name)
        assert cluster.apply(CRD).returncode == 0
        served(cluster, "clusterpolicies.nvidia.com")
        assert cluster.apply(plugin_config(TEXTS), cluster_policy(NAME, "any")).returncode == 0
        cluster.do("label", "node", "t4-shared", f"{LABEL}=t4")
        cluster.do("create", "clusterrole", "node-writer", "--verb=get,list,patch", "--resource=nodes,nodes/status")
        cluster.do("create", "clusterrolebinding", "jane", "--clusterrole=node-writer", f"--user={JANE.name}")
        allowed(cluster, JANE, "patch", "nodes")
        guard = Guard(cluster)
        guard.start(policy_of(cluster) + "  gpus: {claims: [{namespaces: [vision]}]}\n")
        guard.register()
        yield cluster


def reviews(cluster: Cluster) -> list[str]:
    """The path of every review so far; each is logged before it is answered."""
    return [entry["endpoint"] for entry in logged(cluster) if "endpoint" in entry]


def reached_by(cluster: Cluster, item: Object) -> list[str]:
    """Return what the webhook is asked while an object is created for show, which has to succeed."""
    before = len(reviews(cluster))
    cluster.do("create", "--dry-run=server", "--filename=-", stdin=json.dumps(item))
    return reviews(cluster)[before:]


def refused(cluster: Cluster, item: Object, *reasons: str) -> None:
    said = cluster.kubectl("apply", "--filename=-", stdin=json.dumps(item))
    assert said.returncode == 1
    assert "denied the request" in said.stderr
    assert [reason for reason in reasons if reason not in said.stderr] == [], said.stderr


def data(cluster: Cluster) -> object:
    return cluster.get("configmap", NAME, "--namespace=gpu-operator")["data"]


def test_an_invalid_sharing_configuration_cannot_be_created(shared: Cluster) -> None:
    refused(shared, plugin_config({"any": sharing(64)}, "another"), "unsafe-sharing-config: data.any: ", "is 64")
    tutorial = "sharing: {timeSlicing: {replicas: 4}}"
    refused(shared, plugin_config({"any": tutorial}, "another"), "invalid-sharing-config: ", "would not start")
    misspelt = sharing(4).replace("sharing", "share")
    named = plugin_config({"any": misspelt}, "time-slicing-config")
    refused(shared, named, "ignored-sharing-key: data.any: share", "ignores it")
    assert shared.kubectl("get", "configmap", "another", "--namespace=gpu-operator").returncode == 1


def test_an_invalid_edit_of_a_sharing_configuration_is_denied(shared: Cluster) -> None:
    refused(shared, plugin_config({**TEXTS, "t4": sharing(64)}), "unsafe-sharing-config: data.t4: ")
    assert data(shared) == TEXTS


def test_a_sharing_configuration_in_use_cannot_be_deleted(shared: Cluster) -> None:
    refused(
        shared,
        plugin_config({key: TEXTS[key] for key in ("any", "spare")}),
        'data.t4: key "t4" is used by 1 node (t4-shared)',
    )
    said = shared.kubectl("delete", "configmap", NAME, "--namespace=gpu-operator")
    assert "sharing-config-in-use: " in said.stderr
    assert "ClusterPolicy cluster-policy" in said.stderr
    assert data(shared) == TEXTS


def test_an_unused_sharing_configuration_can_be_deleted(shared: Cluster) -> None:
    assert shared.apply(plugin_config({"any": sharing(2)}, "old")).returncode == 0
    before = len(reviews(shared))
    shared.do("delete", "configmap", "old", "--namespace=gpu-operator")
    assert len(reviews(shared)) == before + 1


def test_a_valid_edit_warns_that_a_restart_is_needed(shared: Cluster) -> None:
    edited = plugin_config({**TEXTS, "t4": sharing(3)})
    said = shared.kubectl("apply", "--dry-run=server", "--filename=-", stdin=json.dumps(edited))
    assert said.returncode == 0, said.stderr
    assert f"this edit takes effect on 1 node (t4-shared) only after a restart; run {RESTART}" in said.stderr


def test_pods_that_run_are_counted(shared: Cluster) -> None:
    for number in range(3):
        container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        spec = {"nodeName": "t4-shared", "containers": [container]}
        metadata = {"name": f"holder-{number}", "namespace": "kube-system"}  # where nobody is asked
        assert shared.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).returncode == 0
    edited = json.dumps(plugin_config({**TEXTS, "t4": sharing(2)}))

    def counted() -> bool:
        said = shared.kubectl("apply", "--dry-run=server", "--filename=-", stdin=edited)
        return "3 pods on 1 node (t4-shared) hold 3 slices, and only 2 would be left" in said.stderr

    assert eventually(counted)


def test_other_config_maps_never_wait(shared: Cluster) -> None:
    before = len(reviews(shared))
    item = config_map("settings", "visitors", {"settings.yaml": "replicas: 4\nmps: 3\n"})
    for data_ in (item["data"], {"settings.yaml": "changed"}):
        assert shared.apply({**item, "data": data_}).returncode == 0
    shared.do("delete", "configmap", "settings", "--namespace=visitors")
    assert reviews(shared)[before:] == []


def test_a_large_edit_is_within_what_an_expression_may_cost(shared: Cluster) -> None:
    before = len(reviews(shared))
    for letter in "xy":
        item = config_map("large", "visitors", {"any": letter * 1024 * 1023})
        made = shared.kubectl("replace" if letter == "y" else "create", "--filename=-", stdin=json.dumps(item))
        assert made.returncode == 0, made.stderr
    shared.do("delete", "configmap", "large", "--namespace=visitors")
    assert reviews(shared)[before:] == []


# Nodes


def test_a_tenant_may_not_choose_for_a_node(shared: Cluster) -> None:
    for change in (f"{LABEL}=t4", f"{LABEL}=spare"):
        said = shared.kubectl("label", "node", "a100-exclusive", change, user=JANE)
        assert "foreign-node-config: " in said.stderr
        assert '"jane"' in said.stderr
    said = shared.kubectl("label", "node", "t4-shared", f"{LABEL}-", user=JANE)
    assert "may not remove this label" in said.stderr
    patch = json.dumps({"metadata": {"labels": {LABEL: "t4"}}})
    said = shared.kubectl("patch", "node", "a100-exclusive", "--subresource=status", f"--patch={patch}", user=JANE)
    assert "foreign-node-config: " in said.stderr


def test_an_administrator_may_choose_what_is_there(shared: Cluster) -> None:
    shared.do("label", "node", "a100-exclusive", f"{LABEL}=spare")
    said = shared.kubectl("label", "node", "a100-exclusive", "--overwrite", f"{LABEL}=none-such")
    assert "missing-sharing-config: " in said.stderr
    assert "use one of any, spare, t4, or add the key" in said.stderr
    shared.do("label", "node", "a100-exclusive", f"{LABEL}-")


def test_other_changes_of_nodes_never_wait(shared: Cluster) -> None:
    before = len(reviews(shared))
    shared.do("label", "node", "t4-shared", "any=label", user=JANE)
    shared.do("annotate", "node", "t4-shared", "any=annotation")
    ready = {"status": {"conditions": [{"type": "Test", "status": "True"}]}}
    shared.do("patch", "node", "t4-shared", "--subresource=status", f"--patch={json.dumps(ready)}")
    assert reviews(shared)[before:] == []


def test_a_kubelet_registers_its_node(shared: Cluster) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late", "labels": {LABEL: "t4"}}}
    kubelet = User("system:node:late", ("system:nodes",))
    shared.do("create", "clusterrole", "registrar", "--verb=create,get", "--resource=nodes")
    shared.do("create", "clusterrolebinding", "late", "--clusterrole=registrar", f"--user={kubelet.name}")
    allowed(shared, kubelet, "create", "nodes")
    said = shared.kubectl("create", "--filename=-", stdin=json.dumps(node), user=kubelet)
    assert said.returncode == 0
    assert "Warning: foreign-node-config: " in said.stderr
    shared.do("delete", "node", "late")


# The GPU Operator


def test_a_cluster_policy_names_what_is_there(shared: Cluster) -> None:
    refused(shared, cluster_policy("none-such", ""), "missing-sharing-config: ", 'ConfigMap "none-such" does not exist')
    refused(shared, cluster_policy(NAME, "none-such"), f'ConfigMap gpu-operator/{NAME} has no key "none-such"')
    assert shared.apply(cluster_policy(NAME, "spare")).returncode == 0
    assert shared.apply(cluster_policy(NAME, "any")).returncode == 0


def test_other_changes_of_a_cluster_policy_never_wait(shared: Cluster) -> None:
    before = len(reviews(shared))
    shared.do("annotate", "clusterpolicy", "cluster-policy", "any=annotation")
    assert reviews(shared)[before:] == []


# Dynamic resource allocation


def claim(kind: str, devices: Object) -> Object:
    spec = devices if kind == "DeviceClass" else {"devices": devices}
    metadata: Object = {"name": "c"} if kind == "DeviceClass" else {"name": "c", "namespace": "vision"}
    spec = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def configured(**parameters: Any) -> Object:
    whole = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **parameters}
    return {"config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": whole}}]}


def requested(**more: Any) -> Object:
    return {"requests": [{"name": "one", "exactly": {"deviceClassName": "gpu.nvidia.com", **more}}]}


CRASHES = configured(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {}})
LONG = configured(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}})


@pytest.mark.needs(offered.DEVICES)
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate", "DeviceClass"])
def test_a_claim_that_would_crash_the_driver_is_denied(shared: Cluster, kind: str) -> None:
    more = {} if kind == "DeviceClass" else requested()
    refused(shared, claim(kind, CRASHES | more), "unsafe-device-claim: ", "NVIDIA's driver crashes")
    assert reached_by(shared, claim(kind, LONG | more)) == ["/validate"]


@pytest.mark.needs(offered.DEVICES)
def test_a_claim_for_all_devices_is_denied(shared: Cluster) -> None:
    refused(
        shared, claim("ResourceClaim", requested(allocationMode="All")), "unsafe-device-claim: ", "allocationMode: All"
    )
    alternatives = [{"name": "all", "deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}]
    first = {"requests": [{"name": "one", "firstAvailable": alternatives}]}
    refused(shared, claim("ResourceClaim", first), "firstAvailable[0].allocationMode: allocationMode: All")


@pytest.mark.needs(offered.DEVICES)
def test_claims_for_other_devices_are_let_in(shared: Cluster) -> None:
    """They wait: no class is known to have no GPUs until the policy says so."""
    other = {"requests": [{"name": "one", "exactly": {"deviceClassName": "nic.example.com", "allocationMode": "All"}}]}
    for kind in ("ResourceClaim", "ResourceClaimTemplate"):
        assert reached_by(shared, claim(kind, other)) == ["/validate"]
    assert reached_by(shared, claim("DeviceClass", {})) == []
