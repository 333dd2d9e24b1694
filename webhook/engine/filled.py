"""Makes the webhooks that a controller writes into a registration. Their paths name the policies that answer.

While a path names two policies, a request is allowed if either policy allows it. A policy allows every request that its
own registration would not send. So only the requests that both policies ask for are sent. Otherwise an object that one
policy never patched could be refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from webhook.engine import probe, registration
from webhook.engine.paths import MUTATE, Manner, Name, Path
from webhook.engine.registration import NAME, Asked, Webhook, as_json
from webhook.model import Object
from webhook.policy.model import NAMESPACE, Policy

POLICY_PATH = "/policy"
"""The path at which the webhook checks a policy that is being applied."""

POLICIES = "slicewarden-policies"
"""The name of the ValidatingWebhookConfiguration for policies."""


def webhooks(
    path: Path, policies: Mapping[str, Policy], ca_bundle: str, *, url: str | None = None, user: str | None = None
) -> list[Object]:
    """Make the webhooks of one configuration whose paths name policies, with the one for the probe.

    `policies` are by digest. `ca_bundle` is in base64. `url` is the origin of a webhook outside the cluster, and
    replaces the Service. `user` is the account that sends probes; default: the controller's.
    """
    first, *others = (_asked(path.half, name, policies[name.digest]) for name in path.names)
    for other in others:
        first = both(first, other)
    hooks = [*map(as_json, first)]
    if path.half == MUTATE:
        hooks = [{**hook, "reinvocationPolicy": "IfNeeded"} for hook in hooks]
    hooks.append(probe.webhook(path.half, NAMESPACE, user or probe.account(NAMESPACE)))
    return [{**hook, "clientConfig": _client(str(path), ca_bundle, url)} for hook in hooks]


def policy_webhook(ca_bundle: str, *, url: str | None = None) -> Object:
    """Make the webhook that checks policies when they are applied. If it cannot be reached, policies are accepted."""
    rule = {"apiGroups": ["slicewarden.dev"], "apiVersions": ["v1alpha1"], "resources": ["gpusharingpolicies"]}
    return {
        "name": "policies.slicewarden.dev",
        "clientConfig": _client(POLICY_PATH, ca_bundle, url),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 5,
        "rules": [{**rule, "operations": ["CREATE", "UPDATE"]}],
    }


def named(configuration: Object) -> tuple[Name, ...]:
    """Return the names of the policies in the webhooks' paths of a configuration; none if it has no webhooks.

    Raises ValueError if a path names no policy, or if two paths differ.
    """
    found = {_path(hook) for hook in configuration.get("webhooks") or ()}
    if not found:
        return ()
    paths = {text: Path.read(text) for text in found}
    if unknown := sorted(text for text, path in paths.items() if path is None):
        raise ValueError(f"a webhook has the path {unknown[0]!r}, which names no policy")
    if len(found) > 1:
        raise ValueError(f"webhooks have different paths: {', '.join(sorted(found))}")
    (path,) = paths.values()
    return path.names if path else ()


def both(one: Sequence[Webhook], other: Sequence[Webhook]) -> list[Webhook]:
    """Return webhooks for the requests that both lists of webhooks ask for, in the order of the first list."""
    named = {hook.name: hook for hook in other}
    shared = (_both(hook, named[hook.name]) for hook in one if hook.name in named)
    return [hook for hook in shared if hook is not None]


def _asked(half: str, name: Name, policy: Policy) -> list[Webhook]:
    hooks = [registration.mutating(policy)] if half == MUTATE else [*registration.webhooks(policy)]
    return [replace(hook, required=False) for hook in hooks] if name.manner is Manner.AUDIT else hooks


def _both(one: Webhook, other: Webhook) -> Webhook | None:
    """Return a webhook for the requests that two webhooks of one name both ask for; None if there are none."""
    rules = _rules(one.rules, other.rules)
    versions = one.versions if other.versions == ("*",) else other.versions
    only = _only(one.only, other.only)
    if not rules or (not only and (one.only or other.only)):
        return None
    excluded = None if one.excluded is None else tuple(dict.fromkeys((*one.excluded, *(other.excluded or ()))))
    title, expression = one.condition
    if expression != other.condition[1]:
        expression = f"({expression.strip()}) && ({other.condition[1].strip()})\n"
    return replace(
        one,
        rules=rules,
        condition=(title, expression),
        excluded=excluded,
        required=one.required and other.required,
        only=only,
        versions=versions,
    )


def _rules(one: Sequence[Asked], other: Sequence[Asked]) -> tuple[Asked, ...]:
    asked = {(group, resource): operations for group, resources, operations in other for resource in resources}
    made: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
    for group, resources, operations in one:
        for resource in resources:
            shared = tuple(each for each in operations if each in asked.get((group, resource), ()))
            if shared:
                made[group, shared] = (*made.get((group, shared), ()), resource)
    return tuple((group, resources, operations) for (group, operations), resources in made.items())


def _only(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    if not one or not other:
        return one or other
    return tuple(each for each in one if each in other)


def _client(path: str, ca_bundle: str, url: str | None) -> dict[str, Any]:
    if url is not None:
        return {"url": f"{url}{path}", "caBundle": ca_bundle}
    service = {"namespace": NAMESPACE, "name": NAME, "path": path, "port": 443}
    return {"service": service, "caBundle": ca_bundle}


def _path(hook: Object) -> str:
    client = hook.get("clientConfig") or {}
    if "url" in client:
        return urlsplit(str(client["url"])).path
    return str((client.get("service") or {}).get("path") or "")
