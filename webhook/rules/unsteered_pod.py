"""A pod that asks for GPUs is not held to the nodes of the pool it belongs to.

Which pool that is follows from its trust and from what it asks for: trusted pods that ask for one GPU go to a
shared pool, all others to one that is not shared. The pool's labels are written into `nodeSelector`; a
label that must not have a value becomes required node affinity, in every term there is, since terms are
alternatives. The pool's tolerations are added.

What the pod's author chose is never replaced: a selection by labels that contradict those by which the policy says
which nodes are the pool's is refused. One that could hold with them is not, even while no known node has those labels
or as many GPUs: such a node may be added yet. `slicewarden check` says where a pod would land, and of which known
nodes none would do.

A GPU that is asked for by a name that no pool offers is refused too: another vendor's or scheduler's resource, a
device class, an annotation, a label, and every name under `nvidia.com/` but those of network cards. A name that the
policy does not know for a GPU's may be another device's, and is passed over; where it looks like one that a pool
offers, a warning tells of that.

Way out: ask for what a pool offers, remove the node selection that the message names, or ask for the trust that its
pool takes. A device of NVIDIA's that is no GPU is named in the policy (`gpus.otherDevices`).
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from webhook.api.pods import REQUIRED_AFFINITY, Pod
from webhook.api.selectors import Requirement
from webhook.gpu.placement import Placement, names, offers
from webhook.gpu.requests import marked
from webhook.gpu.review import PodReview
from webhook.model import Finding, Fix, Object
from webhook.policy.model import TRUSTED, Pool
from webhook.text.words import shown

MENDS = True

MENDED = "create it where Slicewarden's mutating webhook is in force, and undo none of its changes"
MIRRORED = "write them into the file that the kubelet runs the pod from: a mirror pod is never patched"


def check(review: PodReview) -> Iterator[Finding]:
    """Flag a pod that no pool takes, that keeps itself out of its pool, or that is not yet held to it."""
    pod, policy = review.subject, review.policy
    for path in marked(pod, policy):
        yield Finding(path, f"asks another scheduler for a GPU, and no pool takes that; {_what_to_ask(review, ())}")
    placement = review.placement
    if placement is None:
        yield from _misspelt(review)
        return
    pool, wants = placement.pool, _wants(placement)
    if pool is None:
        path = review.requests[0].path
        why, way = ", ".join(placement.refusals), _what_to_ask(review, placement.totals)
        if review.trust_would_do:
            way += f", or annotate the pod with {policy.annotation}: {TRUSTED}, which it was granted"
        yield Finding(path, f"no pool takes {wants}: {why}; {way}")
    elif placement.clash is not None:
        own, needed = placement.clash.tenant, placement.clash.pool
        yield Finding(
            placement.clash.path,
            f"{shown(own, quotes=False)} excludes every node of pool {pool.name} ({needed}), where {wants} "
            "belongs; remove it from the pod",
            parts=(f"{pool.name}: {own}",),
        )
    elif not pool.shared and pool.max_request is not None and placement.count > pool.max_request:
        path = review.requests[0].path
        yield Finding(path, f"{wants} is too much for pool {pool.name}; ask for at most {pool.max_request}")
    else:
        fixes, missing = _steering(pod, pool)
        if fixes:
            yield Finding(
                pod.at("spec"),
                f"{wants} belongs to pool {pool.name} and is not held to it: {', '.join(missing)} missing; "
                f"{MIRRORED if pod.mirror else MENDED}",
                fixes,
                parts=tuple(f"{pool.name}: {each}" for each in missing),
            )


def _wants(placement: Placement) -> str:
    each = placement.asked
    return f"{'an' if placement.level[0] in 'aeiou' else 'a'} {placement.level} pod with {each}"


def _what_to_ask(review: PodReview, asked: Iterable[str]) -> str:
    """Name what the pools offer that take such a pod, and first what is most like the names that none offers."""
    offered = offers(review.subject, review.policy, review.facts, review.claim)
    if not offered:
        return "ask an administrator for a pool, or for a grant of trust"
    near = (review.allowance.guesses.nearest(name, offered, 0.75) for name in islice(asked, _NAMED))
    first = list(dict.fromkeys((*filter(None, near), *offered)))
    return f"ask for {' or '.join(first[:_NAMED])}"


def _misspelt(review: PodReview) -> Iterator[Finding]:
    """Tell of names that are none of a GPU, and much like one that is; a name that a node has is another device's."""
    pod, policy = review.subject, review.policy
    strange = [
        ((*container.path, "resources", where, name), name)
        for container in pod.containers
        for name, _, where in container.extended_resources
        if name not in policy.gpu_resources
    ]
    offered, others = names(policy, review.facts) if strange else ((), frozenset())
    for path, name in strange[:_NAMED]:
        if name not in others and (near := review.allowance.guesses.nearest(name, offered, _ALIKE)):
            message = f"is no GPU's name to policy {policy.name}, and is passed over; did you mean {near}?"
            yield Finding(path, message, advice=True)


_NAMED = 5
"""How many names a message has, and for how many it is guessed what was meant."""
_ALIKE = 0.9
"""A domain that two names share makes them much alike."""


def _steering(pod: Pod, pool: Pool) -> tuple[tuple[Fix, ...], list[str]]:
    """What has to be merged into the pod to hold it to the pool, and the same in words."""
    fixes: list[Fix] = []
    labels = {key: value for key, value in pool.nodes.labels.items() if key not in pod.node_selector}
    if labels:
        fixes.append(Fix(pod.at("spec", "nodeSelector"), labels))
    missing = [f"node selector {key}={value}" for key, value in labels.items()]

    selected = {**pod.node_selector, **labels}
    open_ = [r for r in pool.nodes.expressions if not (r.key in selected and r.matches(selected))]
    affinity = list(_affinity(pod, open_))
    if affinity:
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
    """Tell whether a toleration tolerates all that another does (k8s.io/api core/v1 Toleration)."""
    if own.get("effect") and own.get("effect") != wanted.get("effect"):
        return False
    if own.get("tolerationSeconds") not in (None, wanted.get("tolerationSeconds")):
        return False
    if own.get("operator") == "Exists":
        return own.get("key") in (None, "", wanted["key"])
    if own.get("operator") not in (None, "", "Equal") or wanted.get("operator") == "Exists":
        return False
    return (own.get("key"), own.get("value") or "") == (wanted["key"], wanted.get("value") or "")
