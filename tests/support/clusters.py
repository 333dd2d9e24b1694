"""Makes objects of invented clusters, as kubectl prints them, with everything that a file of facts must leave out."""

import random
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]

SECRET = "hunter2-s3cr3t"  # noqa: S105 - a word to look for
"""The text in every place where kubectl's output may contain a secret."""


def _noise(name: str, namespace: str, **more: Any) -> Object:
    """Metadata as an API server prints it."""
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "uid": f"{hash((namespace, name)) & 0xFFFFFFFF:08x}-1111-4222-8333-444444444444",
        "resourceVersion": "123456789",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": f'{{"data": "{SECRET}"}}'},
        "managedFields": [
            {"manager": "kubectl", "operation": "Update", "fieldsV1": {f"f:{part}": {} for part in "abcdefgh"}}
        ],
        **more,
    }


def _node(name: str, index: int, gpu: str) -> Object:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "dgx" if gpu else "r650",
        "topology.kubernetes.io/zone": f"zone-{index % 3}",
        **{f"feature.node.kubernetes.io/cpu-cpuid.FLAG{flag}": "true" for flag in range(80)},
        "feature.node.kubernetes.io/pci-10de.present": str(bool(gpu)).lower(),
    }
    allocatable = {"cpu": "128", "memory": "1056000Mi", "ephemeral-storage": "800Gi", "pods": "110"}
    if gpu:
        labels |= {"nvidia.com/gpu.present": "true", "nvidia.com/gfd.timestamp": str(1_700_000_000 + index)}
        for operand in ("dcgm", "dcgm-exporter", "device-plugin", "container-toolkit", "driver", "mig-manager"):
            labels[f"nvidia.com/gpu.deploy.{operand}"] = "true"
    match gpu:
        case "t4":
            labels |= _gfd("Tesla-T4-SHARED", 15360, 4, "time-slicing", 4)
            allocatable |= {"nvidia.com/gpu": "16"}
        case "a100":
            labels |= _gfd("NVIDIA-A100-SXM4-80GB", 81920, 8, "none", 1)
            allocatable |= {"nvidia.com/gpu": "8"}
        case "h100":
            labels |= _gfd("NVIDIA-H100-80GB-HBM3", 81559, 8, "none", 0)
            labels |= {f"nvidia.com/mig-1g.10gb.{key}": "1" for key in ("count", "memory", "product", "replicas")}
            allocatable |= {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "56"}
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}] if gpu else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _noise(name, "", labels=labels),
        "spec": {"podCIDR": f"10.0.{index}.0/24", "taints": taints},
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "images": [{"names": [f"registry.example.com/image-{image}"], "sizeBytes": image} for image in range(50)],
        },
    }


def _gfd(product: str, memory: int, count: int, strategy: str, replicas: int) -> dict[str, str]:
    return {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": str(memory),
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.sharing-strategy": strategy,
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.family": "ampere",
        "nvidia.com/cuda.driver-version.full": "570.86.15",
    }


def large(gpu_nodes: int = 40, other_nodes: int = 60, pods: int = 1500, seed: int = 1) -> Iterator[Object]:
    """Return a cluster with the GPU Operator, GPU nodes of three kinds, other nodes, and pods, a third with a GPU."""
    choice = random.Random(seed)  # noqa: S311 - a cluster, no secret
    for index in range(40):
        metadata = _noise(f"team-{index}", "", labels={"kubernetes.io/metadata.name": f"team-{index}"})
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        for name in ("kube-root-ca.crt", "settings"):
            data = {"config.yaml": f"password: {SECRET}\n" + "key: value\n" * 50}
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _noise(name, f"team-{index}"), "data": data}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": _noise("gpu-operator", "")}
    sharing = "version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n"
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _noise("time-slicing-config", "gpu-operator"),
        "data": {"any": sharing},
    }
    yield {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": _noise("cluster-policy", ""),
        "spec": {
            "devicePlugin": {"config": {"name": "time-slicing-config", "default": "any"}},
            "driver": {"licensingConfig": {"secretName": SECRET}},
            "mig": {"strategy": "mixed"},
        },
        "status": {"state": "ready", "namespace": "gpu-operator"},
    }
    kinds = ["t4"] * (gpu_nodes * 2 // 5) + ["a100"] * (gpu_nodes * 2 // 5)
    kinds += ["h100"] * (gpu_nodes - len(kinds)) + [""] * other_nodes
    names = [f"{kind or 'cpu'}-{index:03}" for index, kind in enumerate(kinds)]
    for index, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        yield _node(name, index, kind)
    for index in range(30):
        yield agent(f"agent-{index}", f"team-{index % 3}", privileged=index % 2 == 0)
    for index in range(pods):
        place = choice.randrange(len(names))
        resource = {"h100": "nvidia.com/mig-1g.10gb"}.get(kinds[place], "nvidia.com/gpu")
        yield pod(f"pod-{index}-x{index:05}", f"team-{index % 40}", names[place], resource if kinds[place] else "")


def agent(name: str, namespace: str, *, privileged: bool) -> Object:
    """Return a DaemonSet that runs on every node."""
    container = {
        "name": "agent",
        "image": "registry.example.com/agent:1.2.3",
        "env": [{"name": "API_KEY", "value": SECRET}],
        "args": [f"--password={SECRET}"],
        "securityContext": {"privileged": privileged},
        "volumeMounts": [{"name": "proc", "mountPath": "/host/proc"}, {"name": "own", "mountPath": "/data"}],
    }
    volumes = [{"name": "proc", "hostPath": {"path": "/proc"}}, {"name": "own", "secret": {"secretName": "own"}}]
    spec = {
        "serviceAccountName": name,
        "tolerations": [{"operator": "Exists"}],
        "hostPID": privileged,
        "containers": [container],
        "volumes": volumes,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _noise(name, namespace),
        "spec": {"selector": {}, "template": {"metadata": {"annotations": {"checksum/config": SECRET}}, "spec": spec}},
    }


def pod(name: str, namespace: str, node: str, resource: str) -> Object:
    """Return a running pod of a Deployment, with a GPU if it requests a resource."""
    container = {
        "name": "main",
        "image": "registry.example.com/team/image:2026.01",
        "env": [{"name": f"SETTING_{index}", "value": SECRET} for index in range(15)],
        "resources": {"limits": {"cpu": "4", "memory": "16Gi", **({resource: "1"} if resource else {})}},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _noise(name, namespace, ownerReferences=[{"kind": "ReplicaSet", "name": name, "controller": True}]),
        "spec": {
            "nodeName": node,
            "serviceAccountName": "default",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}],
            "containers": [container],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}] * 4},
    }
