"""Reports objects with values that SOPS has encrypted: what is denied in them anyway, and where they are."""

from typing import Any

from webhook.api.encryption import holds
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, string
from webhook.documents.files import Item
from webhook.model import Action, Object, Path, Verdict


def is_denied(value: Object, verdict: Verdict) -> bool:
    """Whether an object is denied for a value that is not encrypted."""
    return any(not holds(_at(value, result.finding.path)) for result in verdict.having(Action.DENY))


def named(item: Item) -> tuple[str, str]:
    """Return the kind, namespace and name of an object, and its file and line."""
    metadata = mapping(item.value.get("metadata"))
    name = "/".join(filter(None, (string(metadata.get("namespace")), string(metadata.get("name")))))
    file, line = item.where(())
    return f"{group_kind(item.value)[1]} {name}".rstrip(), f"{file}:{line}" if line else file


def _at(value: Any, path: Path) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            break
    return value
