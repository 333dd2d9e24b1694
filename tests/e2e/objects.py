"""Objects as tenants write them."""

from typing import Any

Object = dict[str, Any]

TRUST = "slicewarden.dev/trust"
TRUSTED = {TRUST: "trusted"}
ONE = {"nvidia.com/gpu": 1}
VERSIONS = {
    "CronJob": "batch/v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "Job": "batch/v1",
    "PodTemplate": "v1",
    "ReplicaSet": "apps/v1",
    "ReplicationController": "v1",
    "StatefulSet": "apps/v1",
}
KINDS = ["Pod", *VERSIONS]


def template(
    limits: dict[str, int] | None = None, annotations: dict[str, str] | None = None, app: str = "a", **spec: Any
) -> Object:
    """A pod template with one container."""
    container = {"name": "c", "image": "i", "resources": {"limits": limits or {}}}
    spec = {"terminationGracePeriodSeconds": 0, **spec}
    return {
        "metadata": {"annotations": annotations or {}, "labels": {"app": app}},
        "spec": {"containers": [container], **spec},
    }


def pod(
    name: str,
    namespace: str,
    limits: dict[str, int] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod with one container; of one GPU, unless the limits say otherwise."""
    made = template(ONE if limits is None else limits, annotations, **spec)
    made["metadata"] |= {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", **made}


def resource(kind: str, name: str, spec: Object, namespace: str | None = None) -> Object:
    """An object of dynamic resource allocation."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def workload(kind: str, name: str, namespace: str, pods: Object, **spec: Any) -> Object:
    """A workload of any kind around a pod template, with as few pods as there can be unless the spec says more."""
    labels = pods["metadata"]["labels"]
    body: Object = {"template": pods, **spec}
    if kind in ("Job", "CronJob"):
        pods["spec"].setdefault("restartPolicy", "Never")
    elif kind == "ReplicationController":
        body["selector"] = labels
    else:
        body["selector"] = {"matchLabels": labels}
    if kind == "StatefulSet":
        body["serviceName"] = name
    if kind == "CronJob":
        body = {"schedule": "0 3 1 1 *", "jobTemplate": {"spec": body}}
    made: Object = {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": {"name": name, "namespace": namespace}}
    return made | ({"template": pods} if kind == "PodTemplate" else {"spec": body})


def config_map(name: str, namespace: str, data: dict[str, str], **more: Any) -> Object:
    """A ConfigMap."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, **more}


def plain(item: Object) -> Object:
    """A copy that asks for no GPU and no trust, wherever it did, and tolerates nothing."""
    return dict(_without(item, (*GPUS, TRUST, "tolerations")))


def without_gpus(item: Object) -> Object:
    """A copy that asks for no GPU, wherever it did."""
    return dict(_without(item, GPUS))


GPUS = ("nvidia.com/", "NVIDIA_VISIBLE_DEVICES")


def _without(value: Any, starts: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _without(each, starts) for key, each in value.items() if not key.startswith(starts)}
    if isinstance(value, list):
        return [_without(each, starts) for each in value if not _name(each).startswith(starts)]
    return value


def _name(value: Any) -> str:
    """The name of a variable; empty for everything else."""
    return value["name"] if isinstance(value, dict) and {"name", "value"} == value.keys() else ""


def definition(group: str, kind: str, plural: str, version: str, scope: str) -> Object:
    """The definition of a kind with any spec."""
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


CRD = definition("nvidia.com", "ClusterPolicy", "clusterpolicies", "v1", "Cluster")
NODE_FEATURES = definition("nfd.k8s-sigs.io", "NodeFeature", "nodefeatures", "v1alpha1", "Namespaced")
