"""Makes small Kubernetes objects, and parts of them."""

from typing import Any

Object = dict[str, Any]


def pod(**spec: Any) -> Object:
    """Return a pod of vision that requests one GPU and may be trusted. `more` is added to its spec."""
    gpu = {"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    metadata = {"name": "p", "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [gpu], **spec}}


def untrusted_pod(**metadata: Any) -> Object:
    """Return a pod of vision that requests one GPU without a trust annotation. `more` is added to its metadata."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "vision", **metadata},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    }


def affinity(*terms: list[Object]) -> Object:
    """Return a required node affinity. Each term is a list of expressions."""
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(operator: str, *values: object, key: str = "k") -> Object:
    """Return one requirement of a selector."""
    return {"key": key, "operator": operator, "values": [str(value) for value in values]}


def config_map(text: str, name: str = "c", namespace: str = "visitors") -> Object:
    """Return a ConfigMap with one entry."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": text}}
