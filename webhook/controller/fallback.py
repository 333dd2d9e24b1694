"""Keeps the fallback in step with the registration, so that it never denies what the webhook allows.

The fallback is installed as policies without validations, with bindings that never change. A fallback enforces one
policy. So it has validations only while `/validate` and `/mutate` name only that policy. During a change, and in audit
mode, it has none.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webhook import rules
from webhook.controller.order import Place, Write
from webhook.engine.paths import Manner
from webhook.engine.registration import API_VERSION, MADE_FROM, Made
from webhook.fallback import current, policies
from webhook.fallback.answers import ValidationActions
from webhook.model import Object
from webhook.policy.model import Policy

NAMES = tuple(
    f"slicewarden-{name}"
    for name in (
        "pods",
        "pods-audited",
        "pod-updates",
        "pod-statuses",
        "bindings",
        "namespaces",
        "nodes",
        "node-features",
        "devices",
    )
)
"""The names of the policies, and of their bindings."""

PLURAL, KIND = "validatingadmissionpolicies", "ValidatingAdmissionPolicy"


def in_force(place: Place, following: Write | None) -> str:
    """Return the digest of the policy that the fallback must enforce now; empty if it must enforce none.

    `following` is the next write of the registration, if one is due. The fallback must have no validations before that
    write.
    """
    if len(place.validate) != 1 or place.mutate != place.validate or following is not None:
        return ""
    (name,) = place.validate
    return name.digest if name.manner is Manner.ENFORCE else ""


def made(policy: Policy) -> Mapping[str, Object]:
    """Return the policies of the fallback as they should be, by their names."""
    some = policies.fallback(policy, rules.walk(), ValidationActions.BY_RULE)
    return {each["metadata"]["name"]: each for each in some if each["kind"] == KIND}


def changes(installed: Iterable[Object], wanted: Mapping[str, Object]) -> Iterator[Object]:
    """Yield the policies of the fallback that must be applied, each with the version that was read."""
    for each in installed:
        applied = _applied(each, wanted.get(each["metadata"]["name"]))
        if not _holds(each, applied):
            yield applied


def _applied(installed: Object, wanted: Mapping[str, Any] | None) -> Object:
    """Return the fields to apply. The installation owns the scope of a policy, and how it fails."""
    metadata: Made = {key: installed["metadata"][key] for key in ("name", "resourceVersion")}
    made: Made = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}
    if wanted is not None:
        metadata["annotations"] = {MADE_FROM: wanted["metadata"]["annotations"][MADE_FROM]}
        made["spec"] = {key: wanted["spec"][key] for key in current.FILLED}
    return made


def _holds(installed: Object, applied: Object) -> bool:
    """Whether a policy has all fields that would be applied, and no other validations."""
    if "spec" not in applied:
        return not installed["spec"].get("validations") and not installed["spec"].get("matchConditions")
    return within(applied["spec"], installed["spec"])


def within(wanted: Any, found: Any) -> bool:
    """Whether an object has all wanted fields. Defaults that the API server adds are not compared."""
    if wanted == found:
        return True
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            within(value, found.get(key)) or (not value and key not in found) for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return isinstance(found, list) and len(wanted) == len(found) and all(map(within, wanted, found))
    return False
