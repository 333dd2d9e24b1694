"""Reads NodePools of Karpenter: the GPU nodes that each can make."""

from webhook.api.lenient import mapping
from webhook.api.resources import Resource
from webhook.facts import parts, scaling
from webhook.facts.kind import Fact, Part, Table
from webhook.facts.scaling import ScaledNodes
from webhook.model import Object
from webhook.policy.model import Policy

RESOURCES = (Resource("karpenter.sh", "v1", "nodepools", "NodePool"),)
TABLE = Table[str, ScaledNodes]("node_pools")


def read(item: Object, _: str, name: str) -> Fact:
    """Read the nodes that a NodePool can make; None if they have no GPUs of NVIDIA."""
    return TABLE.row(name, scaling.of_node_pool(name, mapping(mapping(item.get("spec")).get("template"))))


def slim(item: Object, _: Policy) -> Part:
    """Keep the parts of the template that describe nodes."""
    template = mapping(mapping(item.get("spec")).get("template"))
    spec = parts.filled(mapping(template.get("spec")), "requirements", "taints", "nodeClassRef")
    labels = mapping(mapping(template.get("metadata")).get("labels"))
    return {"spec": {"template": {**({"metadata": {"labels": labels}} if labels else {}), "spec": spec}}}
