"""Reads the labels of Namespaces."""

from collections.abc import Mapping

from webhook.api.resources import Resource
from webhook.facts import parts
from webhook.facts.kind import Fact, Part, Reach, Table
from webhook.model import Object
from webhook.policy.model import Policy

RESOURCES = (Resource("", "v1", "namespaces", "Namespace"),)
TABLE = Table[str, Mapping[str, str]]("namespaces")
FIELDS = ("metadata.labels",)
REACH = Reach.EVERYWHERE
ORDER = 0
ADDS_UP = True


def read(item: Object, _: str, name: str) -> Fact:
    """Read the labels. The API server gives every namespace a label with its name (KEP-2161)."""
    return TABLE.row(name, {"kubernetes.io/metadata.name": name, **parts.labels(item)})


def kept(item: Object) -> Part:
    """Keep the labels."""
    return {"metadata": {"labels": parts.labels(item)}}


def slim(item: Object, _: Policy) -> Part:
    """Keep the labels."""
    return kept(item)
