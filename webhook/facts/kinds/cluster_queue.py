"""Reads the quotas of Kueue's ClusterQueues."""

from webhook.api.lenient import mapping
from webhook.api.resources import Resource
from webhook.facts import queues
from webhook.facts.kind import Fact, Table
from webhook.facts.queues import Quota
from webhook.model import Object

RESOURCES = (Resource(queues.GROUP, "v1beta2", "clusterqueues", "ClusterQueue"),)
TABLE = Table[str, tuple[Quota, ...]]("quotas")


def read(item: Object, _: str, name: str) -> Fact:
    """Read the quotas."""
    return TABLE.row(name, tuple(queues.quotas(mapping(item.get("spec")))))
