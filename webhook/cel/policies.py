"""Writes CEL expressions for a policy's conditions on namespaces, accounts, users, labels and resources."""

from collections.abc import Iterable, Iterator

from webhook.api.pods import KUBELETS, MIRROR
from webhook.api.selectors import Requirement, Selector
from webhook.catalog import device_annotations, gpu_requests
from webhook.cel.write import all_of, any_of, array, begins, matches, named, negated, one_of, text
from webhook.policy.model import Policy, Pool
from webhook.policy.resources import GPUResources, ResourceNames
from webhook.policy.scopes import Requesters, Scope

KUBELETS_OWN = (
    f"({text(MIRROR)} in object.metadata.?annotations.orValue({{}})"
    f" && {text(KUBELETS)} in request.userInfo.?groups.orValue([]))"
)
"""Whether a kubelet sent the pod as the mirror of a static pod, as in Pod.kubelets_own."""


def offered(name: str, names: ResourceNames) -> str:
    """Return the CEL expression that is true if a resource is one of some names, as in ResourceNames."""
    exact = [pattern for pattern in names.patterns if not pattern.endswith("*")]
    starts = matches(name, (pattern for pattern in names.patterns if pattern.endswith("*")))
    if not names.shares and starts != "false":
        starts = f"({starts} && !{name}.endsWith('.shared'))"
    if names.left_out:
        starts = f"({starts} && !({one_of(name, names.left_out)}))"
    return any_of((one_of(name, exact), starts))


def is_gpu(name: str, gpus: GPUResources) -> str:
    """Return the CEL expression that is true if a resource is a GPU or a part of one, as in GPUResources."""
    others = named(name, gpus.others)
    implicit = f"({name}.startsWith({text(gpu_requests.IMPLICIT)}) && {others})" if others != "false" else "false"
    listed = all_of((offered(name, gpus.named), negated(implicit)))
    nvidias = all_of((matches(name, (gpu_requests.NVIDIA_RESOURCES,)), negated(others)))
    return any_of((listed, nvidias))


ASKS = "size(variables.asked) > 0"
"""Whether a pod requests a GPU as a resource."""

CLAIMS = "size(object.spec.?resourceClaims.orValue([])) > 0"
"""Whether a pod names a claim."""


def claims(policy: Policy) -> str:
    """Return the CEL expression that is true if a pod's claims may be for devices of pools, as in PodReview.claims.

    Where no pool has device classes, or `gpus.claims` covers the pod, its claims bring it into no pool.
    """
    if not policy.has_device_pools:
        return "false"
    return all_of((CLAIMS, negated(any_of(map(covers, policy.forms.claims)))))


def asks_of(pools: Iterable[Pool], policy: Policy) -> str:
    """Return the CEL expression that is true if a pod asks for what may bring it into one of some pools."""
    by_claim = policy.has_device_pools and any(pool.offers_classes for pool in pools)
    return any_of((ASKS, "variables.claims" if by_claim else "false"))


def holds(labels: str, requirement: Requirement) -> str:
    """Return the CEL expression that is true if labels satisfy a requirement, as in Requirement.matches."""
    key, values = text(requirement.key), array(sorted(requirement.values))
    match requirement.operator:
        case "In":
            return f"({key} in {labels} && {labels}[{key}] in {values})"
        case "NotIn":
            return f"!({key} in {labels} && {labels}[{key}] in {values})"
        case "Exists":
            return f"{key} in {labels}"
        case "DoesNotExist":
            return f"!({key} in {labels})"
        case "Gt" | "Lt":
            sign, bound = ">" if requirement.operator == "Gt" else "<", next(iter(requirement.values), "")
            number = f"quantity({labels}[{key}]).compareTo(quantity({text(bound)})) {sign} 0"
            return f"({key} in {labels} && {labels}[{key}].matches('^[-+]?[0-9]+$') && {number})"
    return "false"


def selects(labels: str, selector: Selector) -> str:
    """Return the CEL expression that is true if labels satisfy a selector."""
    return all_of(holds(labels, requirement) for requirement in selector.requirements)


def reaches(scope: Scope, namespace: str = "variables.space", labels: str = "variables.labels") -> str:
    """Return the CEL expression that is true if a scope may have pods in the request's namespace.

    Scope.reaches decides the same. The labels are the API server's current ones, which may be newer than the webhook's.
    """
    if scope.everywhere:
        return "true"
    named_ = one_of(namespace, sorted(scope.namespaces))
    return any_of((named_, selects(labels, scope.selector) if scope.selector is not None else "false"))


def covers(scope: Scope, account: str = "variables.account") -> str:
    """Return the CEL expression that is true if a scope covers the request's pod, as in Scope.covers."""
    accounts = matches(account, sorted(scope.service_accounts)) if scope.service_accounts else "true"
    return all_of((accounts, reaches(scope)))


def include(requesters: Requesters) -> str:
    """Return the CEL expression that is true if the request's user is one of the requesters."""
    return any_of(_includes(requesters))


def _includes(requesters: Requesters) -> Iterator[str]:
    yield one_of("request.userInfo.username", sorted(requesters.users))
    if requesters.groups:
        groups = array(sorted(requesters.groups))
        yield f"request.userInfo.?groups.orValue([]).exists(group, group in {groups})"


def pool_of(labels: str, policy: Policy) -> str:
    """Return the expression for the pool of a node with these labels, empty for none, as Policy.pool_of decides."""
    return "".join(f"{selects(labels, pool.nodes)} ? {text(pool.name)} : " for pool in policy.pools) + "''"


SELECTION = (
    ("selector", "object.spec.?nodeSelector.orValue({})"),
    (
        "alternatives",
        "object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution"
        ".?nodeSelectorTerms.orValue([])",
    ),
    # An empty term matches no node, so nothing has to be written into it.
    (
        "terms",
        "variables.alternatives.filter(t, size(t.?matchExpressions.orValue([])) > 0"
        " || size(t.?matchFields.orValue([])) > 0)",
    ),
)
"""The variables that `restricted` reads, with their expressions."""


def restricted(pool: Pool) -> list[str]:
    """Return expressions that are all true if a pod's own node selection leaves only nodes of a pool.

    Together they are `restricted` of webhook/gpu/selection.py in CEL.
    """
    clauses = [f"variables.selector[?{text(key)}].orValue('') == {text(v)}" for key, v in pool.nodes.labels.items()]
    for requirement in pool.nodes.expressions:
        key, values = text(requirement.key), array(sorted(requirement.values))
        written = (
            f"e.key == {key} && e.operator == {text(requirement.operator)}"
            f" && e.?values.orValue([]).all(v, v in {values}) && {values}.all(v, v in e.?values.orValue([]))"
        )
        in_terms = (
            "(size(variables.alternatives) > 0 && variables.terms.all(t,"
            f" t.?matchExpressions.orValue([]).exists(e, {written})))"
        )
        selected = all_of((f"{key} in variables.selector", holds("variables.selector", requirement)))
        clauses.append(any_of((selected, in_terms)))
    return clauses


def excluded(pool: Pool) -> str:
    """Return the CEL expression that is true if a pod's own node selection leaves no node of a pool.

    `excluded` of webhook/gpu/selection.py decides the same. A condition `Gt` or `Lt` on a label of the pool counts as
    one that no value satisfies.
    """
    listed = {key: array(sorted(left.listed)) for key, left in pool.nodes.values.items() if left.listed is not None}
    selected = [
        f"({text(key)} in variables.selector && !(variables.selector[{text(key)}] in {v}))" for key, v in listed.items()
    ]
    own = "e.?values.orValue([])"
    matched = f"e.operator == 'Exists' || e.operator == (v in {own} ? 'In' : 'NotIn')"
    rejects = any_of(
        f"{left}.all(v, t.?matchExpressions.orValue([]).exists(e, e.key == {text(key)} && !({matched})))"
        for key, left in listed.items()
    )
    in_terms = f"(size(variables.alternatives) > 0 && variables.terms.all(t, {rejects}))"
    return any_of((*selected, in_terms))


def tolerated(toleration: str, policy: Policy, key: str | None) -> str:
    """Return the CEL expression that is true if a toleration's effect may match a taint of the pools.

    Only taints with this key count, or all taints if it is None. guard.defeats decides the same, and also reads the
    nodes, which could only add effects to a taint, so that more tolerations match.
    """
    effects = {
        each.get("effect") or "" for pool in policy.pools for each in pool.tolerations if key in (None, each["key"])
    }
    if not effects or "" in effects:
        return "true"
    return one_of(f"{toleration}.?effect.orValue('')", ("", *sorted(effects)))


def device_domain(domain: str) -> str:
    """Return the CEL expression that is true if an annotation of this domain makes a runtime add devices.

    `adds_devices` decides the same.
    """
    names = [name for name in device_annotations.DEVICE_ANNOTATIONS if not name.startswith("*.")]
    ends = [name[1:] for name in device_annotations.DEVICE_ANNOTATIONS if name.startswith("*.")]
    return any_of(
        (
            one_of(domain, names),
            *(f"{domain}.endsWith({text(end)})" for end in ends),
            begins(domain, device_annotations.DOTTED),
        )
    )


def registers() -> str:
    """Return the CEL expression that is true if a kubelet creates its own node object."""
    return "(request.operation == 'CREATE' && request.userInfo.username == 'system:node:' + object.metadata.name)"
