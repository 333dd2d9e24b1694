"""Reads a kustomization as kustomize does: its first document by go-yaml, and its fields without regard to case.

Source: sigs.k8s.io/kustomize api/types/kustomization.go (Unmarshal).
"""

from dataclasses import replace
from typing import Any

from webhook.api.fields import folded
from webhook.catalog.deployer_fields import KUSTOMIZATION, Known
from webhook.documents import files
from webhook.documents.documents import Document
from webhook.model import Problem
from webhook.text.words import shown


def first(data: bytes, name: str) -> Document | Problem | None:
    """Read the contents of a kustomization, with fields as kustomize spells them; None if they are empty.

    Two spellings of one field are a problem: kustomize lets the last one win, or merges both.
    """
    one = files.first(data, name)
    if not isinstance(one, Document):
        return one
    try:
        return replace(one, value=_spelled(one.value, KUSTOMIZATION))
    except _Twice as error:
        return Problem(name, one.first_line, str(error))


class _Twice(ValueError):
    pass


def _spelled(value: Any, known: Known | None) -> Any:
    if known is None:
        return value
    if isinstance(value, list):
        return [_spelled(each, known) for each in value]
    if not isinstance(value, dict):
        return value
    names, found = {folded(name): name for name in known}, dict[str, Any]()
    for key, each in value.items():
        name = names.get(folded(key)) or key
        if name in found:
            raise _Twice(f"{shown(key)} is another spelling of {shown(name)}, and kustomize ignores case")
        found[name] = _spelled(each, known.get(name))
    return found
