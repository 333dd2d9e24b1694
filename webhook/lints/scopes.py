"""Lints about the namespaces that a policy names."""

from collections.abc import Iterator

from webhook.api.selectors import equals
from webhook.lints.base import Linted, LintFinding, Table, at
from webhook.model import Action, Object, Path
from webhook.policy.model import TRUSTED
from webhook.text.words import listed


def unknown_namespace(of: Linted) -> Iterator[LintFinding]:
    """A namespace that the policy names does not exist.

    Anyone who may create it would get what the policy gives to it.

    Way out: correct the name, create the namespace, or remove it from the policy.
    """
    if not of.facts.namespaces:
        return
    for path, name in _namespaces_named(of.spec):
        if name not in of.facts.namespaces and path[:3] not in _systems(of.spec):
            yield LintFinding(path, f"there is no namespace {name}; correct the name, or remove it")


def absent_agent(of: Linted) -> Iterator[LintFinding]:
    """An exemption for system components names namespaces that do not exist.

    The sample policy exempts the agents of several clouds. Users who may create such a namespace could use its
    exemption.

    Way out: remove the exemptions for agents that your cluster does not run.
    """
    if not of.facts.namespaces:
        return
    absent = [
        each["name"]
        for each in of.spec.get("exemptions", ())
        if "system" in each and of.facts.namespaces.keys().isdisjoint(each["namespaces"])
    ]
    if absent:
        yield LintFinding(
            ("spec", "exemptions"),
            f"no namespace of {listed(absent, 10)} exists; remove the exemptions for agents that you do not run",
        )


def _systems(spec: Object) -> set[Path]:
    """The paths of exemptions for system components, which `absent_agent` checks."""
    return {("spec", "exemptions", index) for index, each in enumerate(spec.get("exemptions", ())) if "system" in each}


def _namespaces_named(spec: Object) -> Iterator[tuple[Path, str]]:
    yield from at("leaveAlone", spec.get("leaveAlone", ()))
    holders: list[tuple[Path, Object]] = [(("spec", "sharing"), spec.get("sharing", {}))]
    holders += at("trust.grants", spec.get("trust", {}).get("grants", ()))
    holders += [((*path, "tenants"), pool.get("tenants", {})) for path, pool in at("pools", spec["pools"])]
    holders += at("gpus.claims", spec.get("gpus", {}).get("claims", ()))
    holders += at("memory.torch.versions", spec.get("memory", {}).get("torch", {}).get("versions", ()))
    for key in ("overrides", "exemptions"):
        holders += at(key, spec.get(key, ()))
    for path, holder in holders:
        for place, name in enumerate(holder.get("namespaces", ())):
            yield (*path, "namespaces", place), name


def unjudged_namespace(of: Linted) -> Iterator[LintFinding]:
    """No pod of a namespace is ever judged, because `leaveAlone` names it.

    Anyone who may create a pod there can use every GPU of the cluster. No policy judges the pods of `kube-system` and
    `slicewarden-system`.

    Way out: make sure that no tenant may create pods there. If no component there has to start before the webhook,
    remove the namespace from `leaveAlone`, and exempt the components by account.
    """
    if names := of.policy.leave_alone:
        *others, last = names
        spaces = f"namespaces {', '.join(others)} and {last}" if others else f"namespace {last}"
        yield LintFinding(
            ("spec", "leaveAlone"),
            f"no pod of {spaces} is ever judged; make sure that no tenant may create pods there",
        )


def idle_scope(of: Linted) -> Iterator[LintFinding]:
    """A grant, a pool's `tenants`, an override or an exemption covers no existing namespace.

    It is without effect until a namespace gets the labels that it selects.

    Way out: correct the labels, or remove it.
    """
    for path, wanted in _idle(of, waiting=False):
        yield LintFinding(path, f"no namespace has {wanted}; correct it, or remove it")


def waiting_grant(of: Linted) -> Iterator[LintFinding]:
    """A grant selects namespaces by Slicewarden's own label, which none has yet.

    `slicewarden policy init` writes it, so that an administrator can grant trust by setting that label.

    Way out: label the namespaces whose pods may share cards, or remove the grant.
    """
    for path, wanted in _idle(of, waiting=True):
        yield LintFinding(path, f"no namespace has {wanted} yet; label those whose pods may share cards, or remove it")


def _idle(linted: Linted, *, waiting: bool) -> Iterator[tuple[Path, str]]:
    """Yield the selectors that no known namespace fits, with their words: grants that wait for their label, or others.

    Such a grant selects the label whose key is the policy's trust annotation, with the value `trusted`.
    """
    for path, scope in linted.scopes:
        if not linted.facts.namespaces or scope.selector is None or linted.reached(scope):
            continue
        own = equals({linted.policy.annotation: TRUSTED})
        if (path[:3] == ("spec", "trust", "grants") and scope.selector.requirements == own) is waiting:
            yield (*path, "namespaceSelector"), " and ".join(map(str, scope.selector.requirements))


LINTS: Table = {
    unknown_namespace: Action.WARN,
    absent_agent: Action.AUDIT,
    unjudged_namespace: Action.AUDIT,
    idle_scope: Action.WARN,
    waiting_grant: Action.AUDIT,
}
