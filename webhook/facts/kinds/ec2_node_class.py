"""Reads EC2NodeClasses of Karpenter on AWS: how the device plugin of Bottlerocket shares cards."""

from webhook.api.lenient import mapping, string
from webhook.api.resources import Resource
from webhook.facts import scaling
from webhook.facts.kind import Fact, Part, Table
from webhook.facts.scaling import SHARING_SETTINGS, UNKNOWN_SHARING, WHOLE_CARDS, NodeClassSharing
from webhook.model import Object
from webhook.policy.model import Policy

RESOURCES = (Resource("karpenter.k8s.aws", "v1", "ec2nodeclasses", "EC2NodeClass"),)
TABLE = Table[str, NodeClassSharing]("node_classes")


def read(item: Object, _: str, name: str) -> Fact:
    """Read how cards are shared: not at all if the user data says nothing about it, or is not for Bottlerocket."""
    return TABLE.row(name, _sharing(item))


def slim(item: Object, _: Policy) -> Part:
    """Keep how cards are shared, and nothing else of the user data, which may contain secrets."""
    found = _sharing(item)
    if found == WHOLE_CARDS:
        return {"spec": {}}
    table = ".".join(SHARING_SETTINGS)
    strategy = "unknown" if found == UNKNOWN_SHARING else "time-slicing"
    lines = (
        f"[{table}]",
        f'device-sharing-strategy = "{strategy}"',
        f"[{table}.time-slicing]",
        f"replicas = {found.replicas}",
        f"rename-by-default = {str(found.renamed).lower()}",
    )
    return {"spec": {"userData": "\n".join(lines) + "\n"}}


def _sharing(item: Object) -> NodeClassSharing:
    return scaling.of_user_data(string(mapping(item.get("spec")).get("userData")))
