"""A pod that requests GPUs is not restricted to the nodes of its pool.

The pool follows from the pod's trust and from its request: a trusted pod that requests one GPU goes to a shared pool,
every other pod to a pool that is not shared. Slicewarden writes the pool's labels into `nodeSelector`. A label that
must not have a value becomes required node affinity, in every term, because terms are alternatives. Slicewarden adds
the pool's tolerations too.

Slicewarden never replaces what the pod's author chose. It refuses a node selection that contradicts the labels of the
pool. It allows a selection that is compatible with them. A pool with a known node that the pod selects and tolerates,
and that has enough GPUs, comes before one without. If no pool has such a node, the rule warns: one may be added later.
A pool without a known node comes last if it assumes another card than the pod selects, and then the rule warns too.

A GPU requested by a name that no pool offers is refused too: another vendor's or scheduler's resource, a device class,
an annotation, a label, and every name under `nvidia.com/` except those of network cards. Any other name may be another
device's, and is not judged. If it looks like one that a pool offers, the rule warns. The schedulers of the policy may
write such annotations, as KAI does when it binds a pod.

Way out: request what a pool offers, remove the node selection that the message names, or ask for the trust that the
pool takes. An administrator can list a device of NVIDIA's that is no GPU in the policy (`gpus.otherDevices`).
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from webhook.api.pods import REQUIRED_AFFINITY, Pod
from webhook.api.quantity import Amount
from webhook.api.selectors import Requirement
from webhook.catalog.gpu_requests import ALL_CARDS
from webhook.catalog.names import Names
from webhook.cel.clauses import ANY_POD, Clause
from webhook.cel.policies import include
from webhook.cel.write import any_of, named
from webhook.gpu.placement import (
    Placement,
    alternatives,
    choices,
    closed,
    foreign_vendor,
    names,
    offers,
    place,
    selected,
    unoffered,
    without,
)
from webhook.gpu.review import MIRRORED, PodReview
from webhook.gpu.selection import assumes, known_nodes, named_cards, repelled, taken
from webhook.model import Finding, Fix, Object, Path
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy, Pool
from webhook.text.words import listed, shown

SINCE = "0.1"

LOOKS_AT = ("gpu", "extended resource", "mark")

MENDS = True


def check(review: PodReview) -> Iterator[Finding]:
    """Flag a pod that no pool takes, that excludes its own pool, or that is not yet restricted to it."""
    pod, policy = review.subject, review.policy
    for path in _marks(review):
        what = "label" if "labels" in path else "annotation" if "annotations" in path else "name"
        yield Finding(
            path, f"this {what} requests a GPU from another scheduler; remove it, and {_what_to_ask(review, {})}"
        )
    placement = review.placement
    if placement is None:
        yield from _misspelt(review)
        return
    pool = placement.pool
    if pool is None:
        path = review.asks[0]
        parts: tuple[str, ...] = ()
        if unoffered(placement.totals, policy):  # the message depends on other requests, which an update may take away
            parts = tuple(f"{name}: {amount}" for name, amount in placement.totals.items())
        if foreign := _foreign(placement, policy):
            yield Finding(path, foreign, parts=parts)
            return
        why, way = ", ".join(placement.refusals), _what_to_ask(review, placement.totals)
        if review.trust_would_do:
            way += f", or set the annotation {policy.annotation}: {TRUSTED}, which is granted to this pod"
        nowhere = why if why.startswith("no pool offers ") else f"no pool takes {_wants(placement)}: {why}"
        yield Finding(path, f"{nowhere}; {way}", parts=parts)
    elif placement.clash is not None:
        own, needed = placement.clash.tenant, placement.clash.pool
        yield Finding(
            placement.clash.path,
            f"pool {pool.name} takes {_wants(placement)}, but node selection {shown(own, quotes=False)} excludes its "
            f"nodes ({needed}); {_way_out(review, placement, pool)}",
            parts=(f"{pool.name}: {own}",),
        )
    elif not pool.shared and pool.max_request is not None and placement.count > pool.max_request:
        path = review.asks[0]
        yield Finding(
            path,
            f"{_wants(placement)} requests more than pool {pool.name} gives to one pod; request at most "
            f"{pool.max_request}{' in all containers together' if len(review.asks) > 1 else ''}, or split the work",
        )
    else:
        fixes, missing = _steering(pod, pool)
        if fixes:
            yield Finding(
                pod.at("spec"),
                f"the pod lacks what holds it to pool {pool.name}: {', '.join(missing)}"
                f"{MIRRORED if pod.mirror else ''}",
                fixes,
                parts=tuple(f"{pool.name}: {each}" for each in missing),
                left_out=not pod.mirror,
            )
        if placement.waits and (known := known_nodes(pool, review.facts)):
            names = listed([node.name for node in known], _NAMED)
            if keys := repelled(pod, pool, review.facts, placement.totals):
                path = pod.at("spec", "tolerations")
                why = f"no known node of pool {pool.name} ({names}) is without the taint {listed([*keys], _NAMED)}"
                way = "tolerate it if the pod belongs there"
            else:
                path = pod.at("spec", "nodeSelector") if pod.node_terms is None else pod.at(*REQUIRED_AFFINITY)
                why, way = f"no known node of pool {pool.name} ({names}) fits the pod's node selection", "correct it"
            yield Finding(
                path,
                f"{why}, so it waits until one is added; {way}{_instead(review, pool)}",
                advice=True,
                parts=(pool.name,),
            )
        elif placement.waits and pool.assume and assumes(pool, named_cards(pod), review.facts) is False:
            yield Finding(
                pod.at("spec", "nodeSelector") if pod.node_terms is None else pod.at(*REQUIRED_AFFINITY),
                f"no node of pool {pool.name} is known, and the pod's node selection names another card than the pool "
                f"assumes ({pool.assume.product}), so it waits until one with that card is added; correct it"
                f"{_unshared(review, placement, pool)}",
                advice=True,
                parts=(pool.name,),
            )


def _unshared(review: PodReview, placement: Placement, pool: Pool) -> str:
    """Say how a trusted pod gets to a pool that may have the card that it names, without the labels of its own pool."""
    pod, facts, claimed = review.subject, review.facts, review.trust_request
    free = without(pod, *pool.nodes.values)
    own = place(free, review.policy, facts, placement.totals, claimed._replace(level=UNTRUSTED))
    fit = own.pool and own.clash is None and assumes(own.pool, named_cards(pod), facts) is not False
    if not fit or claimed.level == UNTRUSTED:
        return ""
    return f", or annotate the pod with {review.policy.annotation}: {UNTRUSTED}"


def _marks(review: PodReview) -> tuple[Path, ...]:
    """Return the places that request a GPU from another scheduler; none if a scheduler of the policy wrote them."""
    if not review.marks:  # nearly every pod
        return ()
    requester = review.subject.requester
    return () if requester is not None and review.policy.schedulers.include(requester) else review.marks


def _foreign(placement: Placement, policy: Policy) -> str:
    """Say that the policy has no pool of the only GPUs that a pod asks for, which are of another maker; else empty."""
    makers = set()
    for name in placement.totals:  # a pod may request thousands
        if not (maker := foreign_vendor(name, policy)):
            return ""
        makers.add(maker)
    some = " and ".join(sorted(makers))
    domains = " and ".join(sorted({f"{name.partition('/')[0]}/*" for name in placement.totals}))
    return (
        f"policy {policy.name} has no pool of {some} GPUs ({listed([*placement.totals], _NAMED)}); ask an "
        f"administrator for one, or to leave {domains} out of gpus.resources"
    )


def _wants(placement: Placement) -> str:
    each = placement.asked
    return f"{'an' if placement.level[0] in 'aeiou' else 'a'} {placement.level} pod with {each}"


def _what_to_ask(review: PodReview, asked: Mapping[str, Amount]) -> str:
    """Name the requested resources to keep, or those that pools offer to such a pod, most similar names first."""
    offered = offers(review.subject, review.policy, review.facts, review.trust_request)
    if not offered:
        return "ask an administrator for a pool or a grant of trust"
    names = Names(offered)
    kept = [name for name in asked if name in names and name not in ALL_CARDS]
    others = [name for name in asked if name not in names]
    if kept and unoffered(others, review.policy) == others:
        return f"remove {'it' if len(others) == 1 else 'them'}, and keep {listed(kept, _NAMED)}"
    near = (review.allowance.guesses.nearest(name, offered, 0.75) for name in islice(asked, _NAMED))
    usual = filter(offered.__contains__, (USUAL,))
    first = list(dict.fromkeys((*filter(None, near), *usual, *offered)))
    return f"request {' or '.join(first[:_NAMED])}"


def _instead(review: PodReview, excluded: Pool) -> str:
    ways = _staying(review, excluded)
    return f", or {ways}" if ways else ""


def _staying(review: PodReview, excluded: Pool) -> str:
    """Name the resources that other pools offer on nodes that the pod selects, so that it can stay there."""
    pod, policy = review.subject, review.policy
    requested = {request.resource for request in review.requests}
    found = alternatives(pod, policy, review.facts, review.trust_request, excluded)
    names = [name for name in found if name not in requested]
    ways = [f"request {' or '.join(names[:_NAMED])}"] if names else []
    if review.trust_request.level == TRUSTED and not requested.isdisjoint(found):
        ways.append(f"annotate the pod with {policy.annotation}: untrusted")
    return f"{', or '.join(ways)} to stay on those nodes" if ways else ""


def _way_out(review: PodReview, placement: Placement, pool: Pool) -> str:
    """Say how the pod can stay on the nodes that it selects, or which others it can select, and where it goes else."""
    pod, policy, facts, clash = review.subject, review.policy, review.facts, placement.clash
    full = taken(pool, facts)
    away = f"remove it{f' ({full})' if full else ''}"
    if stay := _staying(review, pool):
        return f"{stay}, or {away}"
    own = selected(pod, policy)
    if own is not None:
        if own.shared and review.trust_would_do:
            return f"set the annotation {policy.annotation}: {TRUSTED}, which is granted to this pod, or {away}"
        reason = closed(own, pod.namespace, review.trust_request, facts) or f"pool {own.name} does not take it"
        return f"it selects nodes of pool {own.name}, but {reason}; {away}"
    values = choices(pod, policy, facts, placement, review.trust_request)
    if clash is None or not values:
        return away
    which = "one of the values" if len(values) > 1 else "the value"
    return f"no pool that takes this pod has matching nodes; use {which} {listed(list(values), _NAMED)}, or {away}"


def _misspelt(review: PodReview) -> Iterator[Finding]:
    """Warn of names that resemble a GPU resource but are none. A name that a node has belongs to another device."""
    policy = review.policy
    strange = [resource for resource in review.extended_resources if resource.name not in policy.gpu_resources]
    offered, others = names(policy, review.facts.of_nodes) if strange else ((), frozenset())
    for _, name, _, path in strange[:_NAMED]:
        if name not in others and (near := review.allowance.guesses.nearest(name, offered, _ALIKE)):
            message = (
                f"policy {policy.name} does not know this name as a GPU, and does not judge it; did you mean {near}?"
            )
            yield Finding(path, message, advice=True)


USUAL = "nvidia.com/gpu"
"""The resource that a message names first, unless another name is more similar to the requested one."""

_NAMED = 5
"""Maximum number of names in a message, and of names for which a guess is made."""
_ALIKE = 0.9
"""The similarity above which names match; a shared domain makes names similar."""


def _steering(pod: Pod, pool: Pool) -> tuple[tuple[Fix, ...], list[str]]:
    """Return the change that restricts the pod to the pool, as a value to merge and in words."""
    fixes: list[Fix] = []
    labels = {key: value for key, value in pool.nodes.labels.items() if key not in pod.node_selector}
    if labels:
        fixes.append(Fix(pod.at("spec", "nodeSelector"), labels))
    missing = [f"node selector {key}={value}" for key, value in labels.items()]

    if pool.nodes.expressions:
        selected = {**pod.node_selector, **labels}
        open_ = [r for r in pool.nodes.expressions if not (r.key in selected and r.matches(selected))]
        if affinity := list(_affinity(pod, open_)):
            fixes += affinity
            missing += [f"node affinity {requirement}" for requirement in open_]

    tolerated = pod.tolerations
    tolerations = [t for t in pool.tolerations if not any(_covers(own, t) for own in tolerated)]
    if tolerations:
        fixes.append(Fix(pod.at("spec", "tolerations"), tolerations))
        missing += [f"toleration {t['key']}" for t in tolerations]
    return tuple(fixes), missing


def _affinity(pod: Pod, requirements: list[Requirement]) -> Iterator[Fix]:
    """AND the requirements into every term that matches anything; a pod without required affinity gets a term."""
    if not requirements:
        return
    terms = pod.node_terms
    if terms is None:
        yield Fix(pod.at(*REQUIRED_AFFINITY), [{"matchExpressions": [_written(r) for r in requirements]}])
    for path, expressions, _ in terms or ():
        if expressions is not None:
            missing = [_written(r) for r in requirements if r not in expressions]
            if missing:
                yield Fix((*path, "matchExpressions"), missing)


def _written(requirement: Requirement) -> dict[str, Any]:
    written: dict[str, Any] = {"key": requirement.key, "operator": requirement.operator}
    if requirement.values:
        written["values"] = sorted(requirement.values)
    return written


def _covers(own: Object, wanted: Object) -> bool:
    """Whether a toleration tolerates all that another does (k8s.io/api core/v1 Toleration)."""
    if own.get("key") not in (None, "", wanted["key"]):  # most of them
        return False
    if own.get("effect") and own.get("effect") != wanted.get("effect"):
        return False
    if own.get("tolerationSeconds") not in (None, wanted.get("tolerationSeconds")):
        return False
    if own.get("operator") == "Exists":
        return True
    if own.get("operator") not in (None, "", "Equal") or wanted.get("operator") == "Exists":
        return False
    return (own.get("key"), own.get("value") or "") == (wanted["key"], wanted.get("value") or "")


def fallback(policy: Policy) -> Iterator[Clause]:
    """Weaker: for the fallback, any pool that accepts the pod will do.

    An update may also remove the steering of a gated pod.
    """
    asked, taken = "size(variables.asked) == 0", "size(variables.willing) > 0"
    yield Clause(
        f"{asked} || {taken}",
        "no pool takes a pod that asks for this; request what a pool offers, or ask for a grant of trust",
    )
    yield Clause(
        f"{asked} || !({taken}) || size(variables.pools) > 0",
        "the pod is not held to the nodes of its pool; Slicewarden's mutating webhook writes that, and did not run, or "
        "the pod's own node selection excludes them",
    )
    annotation, label = named("k", policy.forms.annotations), named("k", policy.forms.labels)
    marked = any_of(
        (
            f"variables.annotations.exists(k, {annotation})",
            f"variables.podlabels.exists(k, {label} && variables.podlabels[k] != 'false')",
        )
    )
    yield Clause(
        f"!{marked} || {include(policy.schedulers)}",
        "it requests a GPU from another scheduler; remove it, and request what a pool offers",
        places=f"(variables.annotations.filter(k, {annotation}) + variables.podlabels.filter(k, {label})).join(', ')",
        asked=ANY_POD,
    )
