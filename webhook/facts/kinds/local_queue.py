"""Reads LocalQueues of Kueue: the ClusterQueue to which each leads."""

from webhook.api.lenient import mapping, string
from webhook.api.resources import Resource
from webhook.facts import queues
from webhook.facts.kind import Fact, Table
from webhook.model import Object

RESOURCES = (Resource(queues.GROUP, "v1beta2", "localqueues", "LocalQueue", namespaced=True),)
TABLE = Table[tuple[str, str], str]("local_queues")


def read(item: Object, namespace: str, name: str) -> Fact:
    """Read the name of its ClusterQueue."""
    return TABLE.row((namespace, name), string(mapping(item.get("spec")).get("clusterQueue")))
