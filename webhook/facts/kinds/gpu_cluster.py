"""Reads the names of GPUClusters of the GPU Operator, which replace its ClusterPolicy."""

from webhook.api.resources import Resource
from webhook.facts import parts
from webhook.facts.kind import Fact, Part, Table
from webhook.model import Object
from webhook.policy.model import Policy

GPU_CLUSTER = ("nvidia.com", "GPUCluster")

RESOURCES = (Resource(GPU_CLUSTER[0], "v1alpha1", "gpuclusters", GPU_CLUSTER[1]),)
TABLE = Table[str, str]("gpu_clusters")


def read(_: Object, __: str, name: str) -> Fact:
    """Read the name."""
    return TABLE.row(name, name)


def slim(item: Object, _: Policy) -> Part:
    """Keep the operator's namespace."""
    return {"spec": {}, **parts.home(item)}
