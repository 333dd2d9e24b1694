"""Reads ResourceFlavors of Kueue: labels and taints of the nodes to which a queue leads."""

from webhook.api.lenient import mapping
from webhook.api.resources import Resource
from webhook.facts import queues
from webhook.facts.kind import Fact, Table
from webhook.facts.queues import Flavor
from webhook.model import Object

RESOURCES = (Resource(queues.GROUP, "v1beta2", "resourceflavors", "ResourceFlavor"),)
TABLE = Table[str, Flavor]("flavors")


def read(item: Object, _: str, name: str) -> Fact:
    """Read a flavour."""
    return TABLE.row(name, queues.flavor(mapping(item.get("spec"))))
