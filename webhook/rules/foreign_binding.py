"""An account that is no scheduler binds a pod to a GPU node, or adds annotations on the way.

A binding (`pods/binding`, or the older `bindings`) sets a pod's node without regard to taints. It also merges its
annotations and labels into the pod, which is not judged again (kubernetes pkg/registry/core/pod/storage/storage.go).
So only the schedulers that the policy names may bind pods to nodes of the pools, because they respect the node
selection that Slicewarden writes. No binding may have annotations that pods are judged by: the trust annotation,
devices for a runtime to add (CDI, NRI and CRI-O annotations), or what a container runtime reads as root, in
annotations and in labels. Only a scheduler may write the annotations for a chosen GPU, or for other schedulers.

A pool may name its one `scheduler`. Then no other scheduler may bind pods to its nodes.

A binding has only the pod's name. The scheduler and the kubelet check that the pod fits the node: both compare node
selector and affinity.

Way out: leave the pod to its scheduler, or ask an administrator to add the account to `schedulers` in the policy.
"""

from collections.abc import Iterator

from webhook.api.objects import Binding
from webhook.catalog.device_annotations import (
    PLACEMENT_ANNOTATIONS,
    PLACEMENT_LABELS,
    RUNTIME_ANNOTATIONS,
    adds_devices,
)
from webhook.cel.clauses import Clause, RequestKind
from webhook.cel.policies import device_domain, include
from webhook.cel.write import any_of, array, named
from webhook.gpu.guard import gpus_of
from webhook.memory.shim.delivery import CODE
from webhook.model import Finding, Requester
from webhook.policy.model import DEFAULT_SCHEDULER, Policy
from webhook.policy.scopes import SCHEDULER
from webhook.review import Review
from webhook.text.words import shown

SINCE = "0.1"


def check(review: Review[Binding]) -> Iterator[Finding]:
    """Flag bindings by non-schedulers to nodes that have or may have GPUs, and judged annotations in bindings."""
    binding, policy = review.subject, review.policy
    for key in binding.annotations:
        if key in (policy.annotation, CODE) or adds_devices(key) or key in RUNTIME_ANNOTATIONS:
            yield Finding(
                ("metadata", "annotations", key),
                "a binding's annotation reaches the pod unjudged; remove it here, and create the pod with it",
            )
    for key in RUNTIME_ANNOTATIONS.among(binding.labels):
        yield Finding(
            ("metadata", "labels", key),
            "a binding's label reaches the pod unjudged; remove it here, and create the pod with it",
        )
    requester = binding.requester
    if requester is None:
        return
    if policy.schedulers.include(requester):
        yield from _of_another(binding, requester, review)
        return
    for part, there, placements, requests in (
        ("annotations", binding.annotations, PLACEMENT_ANNOTATIONS, policy.forms.annotations),
        ("labels", binding.labels, PLACEMENT_LABELS, policy.forms.labels),
    ):
        for key in there:
            if key in placements or key in requests:
                may = "which GPU it chose" if key in placements else "what asks another one for a GPU"
                yield Finding(
                    ("metadata", part, key),
                    f"only a scheduler may write {may}, and {_stranger(requester, policy)}; remove it",
                )
    if where := gpus_of(binding.node, policy, review.facts):
        yield Finding(
            ("target", "name"),
            f"node {shown(binding.node)} {where}, and {_stranger(requester, policy)}; leave the pod to its scheduler",
        )


def _of_another(binding: Binding, requester: Requester, review: Review[Binding]) -> Iterator[Finding]:
    """Flag the binding of a scheduler to a node of a pool that has another one."""
    node = review.facts.named.get(binding.node)
    pool = review.policy.pool_of(node.labels) if node is not None else None
    if pool is None or pool.scheduler is None:
        return
    if (requester.username == SCHEDULER) != (pool.scheduler == DEFAULT_SCHEDULER):
        yield Finding(
            ("target", "name"),
            f"node {shown(binding.node)} is in pool {pool.name}, which only {pool.scheduler} may schedule, and "
            f"user {shown(requester.username)} is another scheduler; set schedulerName: {pool.scheduler} in the pod",
        )


def _stranger(requester: Requester, policy: Policy) -> str:
    return f"user {shown(requester.username)} is not one of the schedulers of policy {policy.name}"


def fallback(policy: Policy) -> Iterator[Clause]:
    """Weaker: the fallback does not know which nodes have GPUs.

    So an account with the right to bind pods may bind one to a GPU node.
    """
    annotations, labels = (f"object.?metadata.?{part}.orValue({{}})" for part in ("annotations", "labels"))
    judged = any_of(
        (
            f"k in {array((policy.annotation, CODE))}",
            f"[k.split('/')[0]].exists(d, {device_domain('d')})",
            named("k", RUNTIME_ANNOTATIONS),
        )
    )
    yield Clause(
        f"!{annotations}.exists(k, {judged})",
        "a binding's annotation reaches the pod unjudged; remove it here, and create the pod with it",
        places=f"{annotations}.filter(k, {judged}).join(', ')",
        asked=(RequestKind.BINDINGS,),
    )
    of_runtime = named("k", RUNTIME_ANNOTATIONS)
    yield Clause(
        f"!{labels}.exists(k, {of_runtime})",
        "a binding's label reaches the pod unjudged; remove it here, and create the pod with it",
        places=f"{labels}.filter(k, {of_runtime}).join(', ')",
        asked=(RequestKind.BINDINGS,),
    )
    annotated = any_of((named("k", PLACEMENT_ANNOTATIONS), named("k", policy.forms.annotations)))
    labelled = any_of((named("k", PLACEMENT_LABELS), named("k", policy.forms.labels)))
    yield Clause(
        f"{include(policy.schedulers)} || (!{annotations}.exists(k, {annotated}) && !{labels}.exists(k, {labelled}))",
        f"only a scheduler of policy {policy.name} may write which GPU it chose, or what asks another one; remove it",
        asked=(RequestKind.BINDINGS,),
    )
