"""Recognizes objects with values that SOPS has encrypted. Such values cannot be judged without the key.

Source: github.com/getsops/sops cmd/sops/formats and aes/cipher.go, for the key `sops` and the form of a value.
"""

from typing import Any

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, string
from webhook.documents.files import Item
from webhook.model import Action, Object, Path, Verdict


def is_encrypted(value: Object) -> bool:
    """Whether an object has the metadata of SOPS, and a value that is encrypted."""
    return isinstance(value.get("sops"), dict) and _holds({key: each for key, each in value.items() if key != "sops"})


def is_denied(value: Object, verdict: Verdict) -> bool:
    """Whether an object is denied for a value that is not encrypted."""
    return any(not _holds(_at(value, result.finding.path)) for result in verdict.having(Action.DENY))


def named(item: Item) -> tuple[str, str]:
    """Return the kind, namespace and name of an object, and its file and line."""
    metadata = mapping(item.value.get("metadata"))
    name = "/".join(filter(None, (string(metadata.get("namespace")), string(metadata.get("name")))))
    file, line = item.where(())
    return f"{group_kind(item.value)[1]} {name}".rstrip(), f"{file}:{line}" if line else file


def _holds(value: Any) -> bool:
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str) and each.startswith("ENC["):
            return True
        if isinstance(each, dict):
            left += each
            left += each.values()
        elif isinstance(each, list):
            left += each
    return False


def _at(value: Any, path: Path) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            break
    return value
