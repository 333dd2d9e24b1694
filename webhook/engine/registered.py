"""Compares the webhook configurations that are registered with those that a policy needs.

Objects that fail a condition never reach the webhook, so if the registration was made from another policy, some pods
are not judged.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from webhook.api.metadata import annotations_of, name_of
from webhook.engine.comparison import Comparison
from webhook.engine.registration import MADE_FROM, NAME, configurations
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.text.words import listed, shown

KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

NAMED = 3
"""Maximum webhooks, and quoted words of a condition, that a difference names; the rest are counted."""

_DEFAULTS: Mapping[str, Any] = {"namespaceSelector": {}, "objectSelector": {}}


def ours(items: Iterable[Object]) -> list[Object]:
    """Find the two configurations of Slicewarden among some objects, by kind and name."""
    return [item for item in items if item.get("kind") in KINDS and name_of(item) == NAME]


def differences(policy: Policy, found: Iterable[Object]) -> list[str]:
    """Describe how the installed configurations differ from those that the policy needs.

    Returns nothing if they are current.

    Labels, other annotations and the caBundle may differ, because an installation adds them. `failurePolicy` may differ
    if it is Ignore for all webhooks, as in audit mode.
    """
    registered = {item["kind"]: item for item in ours(found)}
    hooks = [hook for item in registered.values() for hook in _hooks(item)]
    audit = bool(hooks) and all(hook.get("failurePolicy") == "Ignore" for hook in hooks)
    said: dict[str, list[str]] = {}
    for wanted in configurations(policy):
        for name, text in _between(wanted, registered.get(wanted["kind"]), audit=audit):
            said.setdefault(text, []).append(name)
    return [f"{listed(list(dict.fromkeys(names)), NAMED)}: {text}" for text, names in said.items()]


def compare(policy: Policy, found: Sequence[Object]) -> Comparison:
    """Compare the installed configurations with those that the policy needs."""
    differing = differences(policy, found)
    wanted = configurations(policy)
    return Comparison("the registration", policy.digest, found, wanted, differing, "slicewarden registration")


def _between(wanted: Object, found: Object | None, *, audit: bool) -> Iterator[tuple[str, str]]:
    """Yield the name of a configuration or webhook, and a difference."""
    if found is None:
        yield wanted["kind"], "is not registered, so the API server does not call the webhook"
        return
    digest, stamp = wanted["metadata"]["annotations"][MADE_FROM], annotations_of(found).get(MADE_FROM)
    if stamp is None:
        yield wanted["kind"], f"does not say which policy it was made from; this policy is {digest}"
    elif stamp != digest:
        yield wanted["kind"], f"was made from policy {shown(stamp, quotes=False)}, but this policy is {digest}"
    there = {str(hook.get("name")): hook for hook in _hooks(found)}
    for hook in _hooks(wanted):
        name = hook["name"]
        if name in there:
            yield from ((name, text) for text in _differ(hook, there.pop(name), audit=audit))
        else:
            yield name, "is missing"
    for name in there:
        yield shown(name, quotes=False), "is not needed by this policy"


def _differ(wanted: Object, found: Object, *, audit: bool) -> Iterator[str]:
    compared = dict.fromkeys([*_DEFAULTS, *wanted])
    for key in compared:
        want, have = wanted.get(key, _DEFAULTS.get(key)), found.get(key, _DEFAULTS.get(key))
        if key == "failurePolicy" and audit:
            continue
        if key == "clientConfig":
            want, have = _place(want), _place(have)
        if key == "rules":
            want, have = _rules(want), _rules(have)
        if want == have:
            continue
        if key == "matchConditions":
            yield _conditions(want, have)
        elif isinstance(want, str | int) and isinstance(have, str | int):
            yield f"{key} is {shown(have)}, but must be {shown(want)}"
        else:
            yield f"{key} differs"


def _place(client: Any) -> Any:
    """Return the address of a webhook without the caBundle, which the installation adds."""
    return {key: value for key, value in client.items() if key != "caBundle"} if isinstance(client, dict) else client


def _rules(rules: Any) -> Any:
    """Return rules without the scope that the API server writes by default."""
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        return rules
    return [{key: value for key, value in rule.items() if (key, value) != ("scope", "*")} for rule in rules]


def _conditions(wanted: Any, found: Any) -> str:
    """Name the quoted words that only one of two lists of conditions has."""
    want, have = _words(wanted), _words(found)
    changes = (("lacks", want - have), ("still has", have - want))
    parts = [f"{verb} {listed([*map(shown, sorted(words))], NAMED)}" for verb, words in changes if words]
    return f"the condition {' and '.join(parts)}" if parts else "the condition differs"


def _words(conditions: Any) -> set[str]:
    """Return the quoted texts of expressions: names of labels, taints, resources and namespaces."""
    expressions = (each.get("expression") for each in conditions if isinstance(each, dict)) if conditions else ()
    return {word for text in expressions for word in re.findall(r"'([^']*)'", str(text))}


def _hooks(configuration: Object) -> list[Object]:
    hooks = configuration.get("webhooks")
    return [hook for hook in hooks if isinstance(hook, dict)] if isinstance(hooks, list) else []
