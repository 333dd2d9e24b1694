"""Reads the metadata of objects that another program wrote. A value of an unexpected type counts as absent."""

from collections.abc import Mapping
from typing import Any

from webhook.api.lenient import mapping, string, strings
from webhook.model import Object


def metadata_of(item: Object) -> Mapping[str, Any]:
    """Return an object's metadata."""
    return mapping(item.get("metadata"))


def name_of(item: Object) -> str:
    """Return an object's name; empty if it has none."""
    return string(metadata_of(item).get("name"))


def namespace_of(item: Object) -> str:
    """Return an object's namespace; `default` if it names none."""
    return string(metadata_of(item).get("namespace")) or "default"


def labels_of(item: Object) -> Mapping[str, str]:
    """Return an object's labels."""
    return strings(metadata_of(item).get("labels"))


def annotations_of(item: Object) -> Mapping[str, Any]:
    """Return an object's annotations, including those that are not strings."""
    return mapping(metadata_of(item).get("annotations"))
