"""Compares a floor that is there with the one that a policy needs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webhook.engine.registration import LABELS, MADE_FROM
from webhook.model import Object
from webhook.text.words import listed, shown

KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")

NAMED = 5
"""How many names a line has."""


def ours(items: Iterable[Object]) -> list[Object]:
    """Choose the policies and bindings of Slicewarden among objects, by kind and label."""
    return [
        item
        for item in items
        if item.get("kind") in KINDS and LABELS.items() <= (_metadata(item).get("labels") or {}).items()
    ]


def differences(wanted: Iterable[Object], found: Iterable[Object]) -> list[str]:
    """Say what of a floor is not as it has to be; nothing if it is current.

    Defaults of the API server may be there, and the actions of a binding may differ.
    """
    there = {(item["kind"], _metadata(item).get("name")): item for item in ours(found)}
    said: dict[str, list[str]] = {}
    for each in wanted:
        for text in _between(each, there.pop((each["kind"], each["metadata"]["name"]), None)):
            said.setdefault(text, []).append(each["metadata"]["name"])
    for _, name in there:
        said.setdefault("is not of this policy's floor, and may deny what the webhook allows; delete it", []).append(
            str(name)
        )
    return [f"{listed(list(dict.fromkeys(names)), NAMED)}: {text}" for text, names in said.items()]


def _between(wanted: Object, found: Object | None) -> Iterator[str]:
    if found is None:
        yield "is missing"
        return
    digest = wanted["metadata"]["annotations"][MADE_FROM]
    stamp = (_metadata(found).get("annotations") or {}).get(MADE_FROM)
    if stamp != digest:
        yield f"was made from policy {shown(stamp, quotes=False)}, but this policy is {digest}"
    spec: Mapping[str, Any] = found.get("spec") or {}
    for part, value in wanted["spec"].items():
        if part != "validationActions" and not _holds(value, spec.get(part)):
            yield f"{part} differs"


def _holds(wanted: Any, found: Any) -> bool:
    """Tell whether a value is there, whatever else a map has."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_holds(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        same = isinstance(found, list) and len(found) == len(wanted)
        return same and all(map(_holds, wanted, found))
    return bool(wanted == found)


def _metadata(item: Object) -> Mapping[str, Any]:
    value = item.get("metadata")
    return value if isinstance(value, dict) else {}
