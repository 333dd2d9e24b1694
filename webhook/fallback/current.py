"""Compares an installed fallback with the one that a policy needs."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from webhook.api.metadata import annotations_of, labels_of, metadata_of, name_of
from webhook.engine.registration import LABELS, MADE_FROM
from webhook.fallback import mutations
from webhook.fallback.answers import OF_BINDINGS, ValidationActions
from webhook.fallback.params import Params
from webhook.fallback.policies import AUDITED, GUARD, STATIC
from webhook.model import Object
from webhook.text.words import listed, shown

KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")

MUTATING = (mutations.POLICY, mutations.BINDING)
"""The kinds that steer, guard and cap pods, present if the fallback was made with --mutate."""

CONFIG_MAP = "ConfigMap"

SELECTOR = ",".join(f"{key}={value}" for key, value in LABELS.items())
"""The label selector of the policies and bindings of a fallback."""

LOST = "if the registration is removed, nothing enforces the policy (docs/fallback.md)"
"""The end of a sentence that says that there is no fallback."""

FILLED = ("matchConditions", "variables", "validations")
"""The parts of a policy that the controller fills. The installation has the other parts, and the bindings."""

NAMED = 5
"""Maximum number of names in a line."""


def ours(items: Iterable[Object]) -> list[Object]:
    """Choose the policies and bindings of Slicewarden among objects, and the ConfigMap that they read."""
    items = [*items]
    found = [
        item for item in items if item.get("kind") in (*KINDS, *MUTATING) and LABELS.items() <= labels_of(item).items()
    ]
    read = params(found)
    return [*found, *(item for item in items if read and item.get("kind") == CONFIG_MAP and read == _named(item))]


def params(found: Iterable[Object]) -> Params | None:
    """Return the ConfigMap that a fallback reads; None if it reads none, or if its policies read different ones."""
    refs = [item["spec"]["paramRef"] for item in found if isinstance((item.get("spec") or {}).get("paramRef"), dict)]
    named = {Params(str(each.get("namespace")), str(each.get("name"))) for each in refs}
    return named.pop() if len(named) == 1 else None


def without_params(made: Iterable[Object]) -> list[Object]:
    """Leave out the ConfigMap of a fallback, for a comparison of only its policies and bindings."""
    return [each for each in made if each["kind"] != CONFIG_MAP]


def _named(item: Object) -> Params:
    return Params(str(metadata_of(item).get("namespace")), name_of(item))


def answers(found: Iterable[Object]) -> dict[ValidationActions, list[str]]:
    """Return the answers of a fallback's bindings, the strictest first, each with the names of its bindings.

    The binding that guards the fallback itself is left out.
    """
    said: dict[ValidationActions, list[str]] = {}
    for item in ours(found):
        if item["kind"] == KINDS[1] and not _guards(item):
            actions = _actions(item)
            for each in OF_BINDINGS:
                if each in actions:
                    said.setdefault(each, []).append(name_of(item))
                    break
    return {each: said[each] for each in OF_BINDINGS if each in said}


def made_with(found: Iterable[Object]) -> ValidationActions | None:
    """Return the answer with which a fallback was made; None if it has no bindings, or they have several answers."""
    found = ours(found)
    if any(name_of(item).removesuffix(STATIC).endswith(AUDITED) for item in found):
        return ValidationActions.BY_RULE
    has = [*answers(found)]
    return has[0] if len(has) == 1 else None


def answer_of(found: Iterable[Object]) -> ValidationActions:
    """Return the answer with which a fallback was made; the strictest of its bindings if they have several."""
    found = ours(found)
    return made_with(found) or next(iter(answers(found)), ValidationActions.DENY)


def steers(found: Iterable[Object]) -> bool:
    """Whether a fallback was made with `--mutate`, so that it also patches pods."""
    return any(item["kind"] in MUTATING for item in found)


def of_files(found: Iterable[Object]) -> bool:
    """Whether a fallback was made to be read by an API server from a folder of files."""
    return any(name_of(item).endswith(STATIC) for item in ours(found))


def kept(found: Iterable[Object]) -> bool:
    """Whether the controller writes the contents of a fallback. Such a policy has the audit annotation `filled`."""
    return any("filled" in _audit_annotations(item) for item in ours(found))


def empty(found: Iterable[Object]) -> bool:
    """Whether no policy of a fallback has a validation, as in one that the controller has not filled."""
    return not any((item.get("spec") or {}).get("validations") for item in found if item["kind"] == KINDS[0])


def only_records(found: Iterable[Object]) -> bool:
    """Whether a fallback denies nothing, as in audit mode."""
    return [*answers(found)] == [ValidationActions.AUDIT]


def told(found: Iterable[Object]) -> str:
    """Describe in a few words what the bindings of a fallback do; empty if there are none."""
    found = ours(found)
    has = answers(found)
    if only_records(found):
        return f"{ValidationActions.AUDIT}"
    if made := made_with(found):
        return f"{made}"
    return ", ".join(
        f"{each} ({listed([shown(name, quotes=False) for name in names], 3)})" for each, names in has.items()
    )


class ObjectState(StrEnum):
    """The state of a policy or binding of a fallback."""

    CURRENT = "current"
    MISSING = "missing"
    DIFFERING = "differing"
    UNNEEDED = "unneeded"
    """It belongs to an older fallback, or to another policy's."""


MISSING = {
    KINDS[1]: "its binding is missing, so it is not in force",
    MUTATING[1]: "its binding is missing, so it is not in force",
    CONFIG_MAP: "the ConfigMap is missing, so every pod is refused",
}
"""The messages about a missing part."""


class Drift(NamedTuple):
    """A part of a policy or binding that differs from the one that is needed."""

    kind: str
    name: str
    state: ObjectState
    text: str


def differences(wanted: Iterable[Object], found: Iterable[Object], *, actions: bool = False) -> list[str]:
    """Describe the differences that `differing` finds in a fallback; nothing if it is current."""
    said: dict[str, list[str]] = {}
    for each in differing(wanted, found, actions=actions):
        name = shown(each.name, quotes=False)
        said.setdefault(each.text, []).append(f"{MUTATING[0]} {name}" if each.kind in MUTATING else name)
    return [f"{listed(list(dict.fromkeys(names)), NAMED)}: {text}" for text, names in said.items()]


def states(wanted: Collection[Object], found: Iterable[Object]) -> dict[ObjectState, int]:
    """Count the policies and bindings of a fallback in each state. A binding with wrong actions counts as differing."""
    by_state: dict[ObjectState, set[tuple[str, str]]] = {state: set() for state in ObjectState}
    for each in differing(wanted, found, actions=True):
        by_state[each.state].add((each.kind, each.name))
    counts = {state: len(names) for state, names in by_state.items()}
    counts[ObjectState.CURRENT] = len(wanted) - counts[ObjectState.MISSING] - counts[ObjectState.DIFFERING]
    return counts


def differing(wanted: Iterable[Object], found: Iterable[Object], *, actions: bool = False) -> Iterator[Drift]:
    """Yield the parts of an installed fallback that differ from the wanted one.

    Defaults of the API server are no difference. Without `actions`, the actions of bindings may differ, except those of
    the binding that guards the fallback itself.
    """
    there = {(item["kind"], name_of(item)): item for item in ours(found)}
    by_controller = kept(there.values())
    for each in wanted:
        kind, name = each["kind"], each["metadata"]["name"]
        item = there.pop((kind, name), None)
        if item is None:
            yield Drift(kind, name, ObjectState.MISSING, MISSING.get(kind, "is missing"))
        else:
            wanted_of, found_of = (_filled(each), _filled(item)) if by_controller else (each, item)
            texts = _between(wanted_of, found_of, actions)
            yield from (Drift(kind, name, ObjectState.DIFFERING, text) for text in texts)
    for kind, name in there:
        audited = str(name).removesuffix(STATIC).endswith(AUDITED)
        text = "is not of this policy's fallback, and may deny what the webhook allows; delete it"
        if audited and only_records(item for item in there.values() if name_of(item) == name):
            text = "belongs to a fallback with other --actions; it only records; delete it"
        if kind in MUTATING:
            text = "is not of this policy's fallback, and may write what the webhook does not; delete it"
        yield Drift(kind, str(name), ObjectState.UNNEEDED, text)


def recording(made: Iterable[Object]) -> list[Object]:
    """Return a fallback that denies nothing and only records, for audit mode, made from one that denies."""
    return [
        {**each, "spec": {**each["spec"], "validationActions": [ValidationActions.AUDIT.value]}}
        if each["kind"] == KINDS[1]
        else each
        for each in made
    ]


def _between(wanted: Object, found: Object, actions: bool) -> Iterator[str]:
    digest = wanted["metadata"]["annotations"].get(MADE_FROM)
    stamp = annotations_of(found).get(MADE_FROM)
    if digest and stamp != digest:
        yield f"was made from policy {shown(stamp, quotes=False)}, but this policy is {digest}"
    if wanted["kind"] == MUTATING[0] and mutations.recorded(wanted) != mutations.recorded(found):
        yield "its caps are those of other cards; give it the cluster's nodes by --facts"
    if wanted["kind"] == CONFIG_MAP:
        yield from ("its data differ" for _ in (1,) if found.get("data") != wanted["data"])
        return
    spec: Mapping[str, Any] = found.get("spec") or {}
    for part, value in wanted["spec"].items():
        if part == "validationActions":
            if (actions or _guards(wanted)) and {*value} != {*_actions(found)}:
                yield f"actions are {_said(_actions(found))}, not {_said(value)}"
        elif not _holds(value, spec.get(part)):
            yield f"its {part} {'differ' if part.endswith('s') else 'differs'}"
    yield from (f"has {part} of its own" for part in spec if part not in wanted["spec"] and not _default(part, spec))


def _filled(item: Object) -> Object:
    """Leave out of a policy or a binding what the installation owns: its scope, how it fails, and other annotations."""
    policy = item["kind"] == KINDS[0]
    parts = FILLED if policy else {"policyName", "validationActions"}
    spec = {key: value for key, value in (item.get("spec") or {}).items() if key in parts}
    stamps = {key: value for key, value in annotations_of(item).items() if policy and key == MADE_FROM}
    return {"kind": item["kind"], "metadata": {"name": name_of(item), "annotations": stamps}, "spec": spec}


def _audit_annotations(item: Object) -> list[Any]:
    given = (item.get("spec") or {}).get("auditAnnotations")
    return [each.get("key") for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def _guards(item: Object) -> bool:
    return name_of(item) == GUARD + STATIC


def _actions(binding: Object) -> list[str]:
    spec = binding.get("spec")
    actions = spec.get("validationActions") if isinstance(spec, dict) else None
    return [*map(str, actions)] if isinstance(actions, list) else []


def _said(actions: Sequence[str]) -> str:
    return " and ".join(shown(each, quotes=False) for each in actions[:NAMED]) or "none"


def _holds(wanted: Any, found: Any) -> bool:
    """Whether a wanted value is present, with no additions except the API server's defaults.

    Any other addition, such as a selector or a condition, could exclude requests.
    """
    if isinstance(wanted, dict):
        same = isinstance(found, dict) and all(_holds(value, found.get(key)) for key, value in wanted.items())
        return same and all(key in wanted or _default(key, found) for key in found)
    if isinstance(wanted, list):
        same = isinstance(found, list) and len(found) == len(wanted)
        return same and all(map(_holds, wanted, found))
    return bool(wanted == found)


def _default(key: str, holder: Mapping[str, Any]) -> bool:
    """Whether a value is a default of the API server (its defaults.go)."""
    return not holder[key] or (key, holder[key]) in (("scope", "*"), ("matchPolicy", "Equivalent"))
