"""A pod may stay on a GPU longer than its pool allows.

Without an end, one forgotten notebook keeps a slice or a whole GPU for weeks, and everyone else waits. So a pool may
have a longest stay, `maxActiveDeadlineSeconds` (gatekeeper-library#737 asks for the same). A pod that sets no
`activeDeadlineSeconds` gets that value. The kubelet ends a pod this many seconds after it has accepted it, whatever
runs in it; the pod is then `Failed`, for the reason `DeadlineExceeded` (kubernetes pkg/kubelet/active_deadline.go).
Time in a queue does not count. The pull of images does.

The grace period comes after the deadline. So what `terminationGracePeriodSeconds` has above its default of 30 counts as
stay, and Slicewarden writes that much less.

In a Job too, the field is that of the pods. `activeDeadlineSeconds` of the Job itself ends all of its pods together,
and is not judged. Kubernetes refuses the field in the templates of Deployments, ReplicaSets, StatefulSets and
DaemonSets. Their pods get it when they are created, and their controllers replace each pod that has ended. The new pod
waits for a GPU like any other. Kubernetes lets nobody raise or remove the deadline of a pod. A pod that is older than
the policy keeps the one that it has.

The pool of a pod with a claim follows from the claim. If that is not known yet, and a pool for claims has a longest
stay, the pod is refused, unless its deadline fits all of these pools.

Way out: set no `activeDeadlineSeconds`, or one that is no larger than the message names. Save the work before the end,
and start again. An administrator can exempt a service that has to stay, by its namespace and service account, or give
it a pool without a longest stay.
"""

from collections.abc import Iterator

from webhook.api.pods import Pod
from webhook.cel.clauses import ASKING, Clause
from webhook.cel.write import text
from webhook.gpu.claims import free
from webhook.gpu.review import MIRRORED, PodReview
from webhook.model import Finding, Fix, Malformed
from webhook.policy.model import DEFAULT_GRACE, Policy

SINCE = "0.1"

LOOKS_AT = ("gpu", "claim")

MENDS = True

DEADLINE, GRACE = "activeDeadlineSeconds", "terminationGracePeriodSeconds"


def applies(policy: Policy) -> bool:
    """Return whether a pool limits how long a pod may stay."""
    return any(pool.max_active_deadline is not None for pool in policy.pools)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag pods without a deadline, or with one that is later than their pool allows."""
    pod, placement = review.subject, review.placement
    if placement is None:
        yield from _unknown(review)
        return
    pool = placement.pool
    if pool is None or pool.max_active_deadline is None:
        return
    said, grace, limit = _seconds(pod, DEADLINE), _grace(pod), pool.max_active_deadline
    most, stay = _most(limit, grace), f"pool {pool.name} ends a pod after {limit} s"
    if most < 1:
        yield Finding(
            pod.at("spec", GRACE),
            f"{stay}, and a grace period counts as far as it exceeds {DEFAULT_GRACE} s; {grace} leaves nothing, so set "
            f"at most {limit + DEFAULT_GRACE - 1}",
        )
    elif said is None and pod.spec.get(DEADLINE) is None:
        yield Finding(
            pod.at("spec", DEADLINE),
            f"the pod lacks the value {most}: {stay}{MIRRORED if pod.mirror else ''}",
            (Fix(pod.at("spec", DEADLINE), most),),
            parts=(pool.name,),
            left_out=not pod.mirror,
        )
    elif said is not None and said > most:
        counted = f" (a grace period of {grace} s counts above {DEFAULT_GRACE})"
        why = counted if most < limit else ""
        yield Finding(pod.at("spec", DEADLINE), f"{stay}{why}; set at most {most}, or leave it out")


def _unknown(review: PodReview) -> Iterator[Finding]:
    """Flag claims of a pod that are not known, if they may be for a pool with a longest stay.

    A template's pods are judged when they are created.
    """
    pod, policy = review.subject, review.policy
    pools = (pool for pool in policy.pools if pool.device_classes.patterns)
    limits = [pool.max_active_deadline for pool in pools if pool.max_active_deadline is not None]
    if pod.template or not limits or not pod.namespace or free(pod, policy, review.facts):
        return
    said, most = _seconds(pod, DEADLINE), _most(min(limits), _grace(pod))
    if said is not None and said <= most:
        return
    way = f", or set {DEADLINE} to at most {most}" if most > 0 else ""
    for each in review.claim_entries:
        if each.contents is None:
            yield Finding(
                each.path,
                "the claim is not known here, and neither is how long its pod may stay; create it or its template "
                f"first, and try again{way}",
            )


def _most(limit: int, grace: int) -> int:
    """Return the largest deadline of a pod with this grace period; below 1 if the grace period leaves nothing."""
    return limit - max(0, grace - DEFAULT_GRACE)


def _grace(pod: Pod) -> int:
    grace = _seconds(pod, GRACE)
    return DEFAULT_GRACE if grace is None else grace


def _seconds(pod: Pod, key: str) -> int | None:
    """Return a number of a pod's spec; None if it has none, or a template has a parameter in its place."""
    value = pod.spec.get(key)
    if value is None or (pod.template and type(value) is not int):
        return None
    if type(value) is not int:
        raise Malformed(pod.at("spec", key), "must be a whole number")
    return value


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact for new pods that ask by resources where unsteered-pod is denied too. Pods that have only claims pass."""
    limits = {pool.name: pool.max_active_deadline for pool in policy.pools if pool.max_active_deadline is not None}
    most = "{" + ", ".join(f"{text(name)}: {seconds}" for name, seconds in limits.items()) + "}"
    if limits:
        yield Clause(
            "size(variables.asked) == 0 || size(variables.pools) == 0 || variables.pools.exists(p,"
            f" [{most}[?p].orValue(-1)].exists(most, most < 0 || (variables.deadline <= most"
            f" && variables.grace <= most - variables.deadline + {DEFAULT_GRACE})))",
            f"the pool of this pod ends its pods after a while; set {DEADLINE}, and with it the part of {GRACE} above "
            f"{DEFAULT_GRACE}, to no more than {' or '.join(map(str, sorted({*limits.values()})))}",
            variables=(
                ("deadline", f"object.spec.?{DEADLINE}.orValue({2**31})"),
                ("grace", f"object.spec.?{GRACE}.orValue({DEFAULT_GRACE})"),
            ),
            only=ASKING,
        )
