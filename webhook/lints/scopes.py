"""Lints of the namespaces that a policy speaks of."""

from collections.abc import Iterator

from webhook.lints.base import Found, Linted, Table, at
from webhook.model import Action, Object, Path


def unknown_namespace(of: Linted) -> Iterator[Found]:
    """A namespace that the policy names does not exist.

    What it was given is nobody's, or, once someone may create the namespace, theirs.

    Way out: correct the name, create the namespace, or remove it from the policy.
    """
    if not of.facts.namespaces:
        return
    for path, name in _namespaces_named(of.spec):
        if name not in of.facts.namespaces:
            yield Found(path, f"there is no namespace {name}; correct the name, or remove it")


def _namespaces_named(spec: Object) -> Iterator[tuple[Path, str]]:
    holders: list[tuple[Path, Object]] = [(("spec", "sharing"), spec.get("sharing", {}))]
    holders += at("trust.grants", spec.get("trust", {}).get("grants", ()))
    holders += [((*path, "circle"), pool.get("circle", {})) for path, pool in at("pools", spec["pools"])]
    holders += at("gpus.claims", spec.get("gpus", {}).get("claims", ()))
    holders += at("memory.torch.versions", spec.get("memory", {}).get("torch", {}).get("versions", ()))
    for key in ("overrides", "exemptions"):
        holders += at(key, spec.get(key, ()))
    for path, holder in holders:
        for place, name in enumerate(holder.get("namespaces", ())):
            yield (*path, "namespaces", place), name


def idle_scope(of: Linted) -> Iterator[Found]:
    """A grant, circle, override or exemption covers no namespace that there is.

    It does nothing today, and will once somebody gives a namespace the labels.

    Way out: correct the labels, or remove it.
    """
    for path, scope in of.scopes:
        if of.facts.namespaces and scope.selector and not of.reached(scope):
            wanted = " and ".join(map(str, scope.selector.requirements))
            yield Found((*path, "namespaceSelector"), f"no namespace has {wanted}; correct it, or remove it")


LINTS: Table = {
    unknown_namespace: Action.WARN,
    idle_scope: Action.WARN,
}
