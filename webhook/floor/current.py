"""Compares a floor that is there with the one that a policy needs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from webhook.engine.registration import LABELS, MADE_FROM
from webhook.floor.policies import GUARD, STATIC, Answer
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


def answers(found: Iterable[Object]) -> list[Answer]:
    """Return the answers of the bindings of a floor, without its guard: the strictest first, and each once."""
    has = [_actions(item) for item in ours(found) if item["kind"] == KINDS[1] and not _guards(item)]
    strictest = [next((each for each in Answer if each in actions), None) for actions in has]
    return [each for each in Answer if each in strictest]


def differences(wanted: Iterable[Object], found: Iterable[Object], *, actions: bool = False) -> list[str]:
    """Say what of a floor is not as it has to be; nothing if it is current.

    Defaults of the API server may be there. The actions of bindings may differ without `actions`, but for the guard's.
    """
    there = {(item["kind"], _metadata(item).get("name")): item for item in ours(found)}
    said: dict[str, list[str]] = {}
    for each in wanted:
        for text in _between(each, there.pop((each["kind"], each["metadata"]["name"]), None), actions):
            said.setdefault(text, []).append(each["metadata"]["name"])
    for _, name in there:
        said.setdefault("is not of this policy's floor, and may deny what the webhook allows; delete it", []).append(
            str(name)
        )
    return [f"{listed(list(dict.fromkeys(names)), NAMED)}: {text}" for text, names in said.items()]


def _between(wanted: Object, found: Object | None, actions: bool) -> Iterator[str]:
    if found is None:
        yield "is missing"
        return
    digest = wanted["metadata"]["annotations"][MADE_FROM]
    stamp = (_metadata(found).get("annotations") or {}).get(MADE_FROM)
    if stamp != digest:
        yield f"was made from policy {shown(stamp, quotes=False)}, but this policy is {digest}"
    spec: Mapping[str, Any] = found.get("spec") or {}
    for part, value in wanted["spec"].items():
        if part == "validationActions":
            if (actions or _guards(wanted)) and {*value} != {*_actions(found)}:
                yield f"actions are {_said(_actions(found))}, not {_said(value)}"
        elif not _holds(value, spec.get(part)):
            yield f"{part} differs"


def _guards(item: Object) -> bool:
    return _metadata(item).get("name") == GUARD + STATIC


def _actions(binding: Object) -> list[str]:
    spec = binding.get("spec")
    actions = spec.get("validationActions") if isinstance(spec, dict) else None
    return [*map(str, actions)] if isinstance(actions, list) else []


def _said(actions: Sequence[str]) -> str:
    return " and ".join(shown(each, quotes=False) for each in actions[:NAMED]) or "none"


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
