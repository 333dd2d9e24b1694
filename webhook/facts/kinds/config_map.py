"""Reads ConfigMaps: sharing configurations of the device plugin, and lists of images."""

from typing import Any

from webhook.api.lenient import from_base64, mapping
from webhook.api.resources import Resource
from webhook.facts.installations import Texts
from webhook.facts.kind import Fact, Part, Reach, Table
from webhook.model import Object
from webhook.policy.model import Policy

MAX_TEXT = 64 * 1024
"""Maximum characters of a ConfigMap's text that are kept. Only the key of a longer text is kept."""

RESOURCES = (Resource("", "v1", "configmaps", "ConfigMap", namespaced=True),)
TABLE = Table[tuple[str, str], Texts]("config_maps")
REACH = Reach.WITHIN
ORDER = 4


def read(item: Object, namespace: str, name: str) -> Fact:
    """Read the texts."""
    return TABLE.row((namespace, name), _texts(item))


def kept(item: Object) -> Part:
    """Keep the texts."""
    return {"data": _texts(item)}


def slim(item: Object, _: Policy) -> Part:
    """Keep the texts. The other objects of a file decide which ConfigMaps the file has."""
    return kept(item)


def _texts(item: Object) -> Texts:
    data = mapping(item.get("data"))
    texts: dict[str, str | None] = {key: _small(text) for key, text in data.items()}
    for key, encoded in mapping(item.get("binaryData")).items():
        try:
            texts[key] = _small(from_base64(encoded).decode("utf-8"))
        except (AttributeError, ValueError):  # no text, or no base64 of UTF-8
            texts[key] = None
    return texts


def _small(text: Any) -> str | None:
    return text if isinstance(text, str) and len(text) <= MAX_TEXT else None
