"""A pod belongs to a pool of one scheduler and names another.

Two schedulers on one node count its GPUs separately. kube-scheduler does not see the fractions that KAI hands out, and
neither sees what the other is about to bind: so the same GPU is assigned twice (KAI-Scheduler#416). So a pool may name
its `scheduler`, and every pod of the pool has to name it too. Slicewarden does not write the name, because it also
decides about queues and gangs. `foreign-binding` keeps other schedulers from binding pods to the pool's nodes.

Way out: set `schedulerName` to the scheduler of the pool, or ask for a GPU of another pool.
"""

from collections.abc import Iterator

from webhook.api.fields import text
from webhook.cel.clauses import Clause
from webhook.cel.write import strings
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import DEFAULT_SCHEDULER, Policy
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("gpu",)


def applies(policy: Policy) -> bool:
    """Return whether a pool names its scheduler."""
    return any(pool.scheduler is not None for pool in policy.pools)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag a `schedulerName` other than the pool's. Without one, a pod uses Kubernetes' own scheduler."""
    pod, placement = review.subject, review.placement
    if placement is None or placement.pool is None or placement.pool.scheduler is None:
        return
    wanted = placement.pool.scheduler
    named = text(pod.spec, "schedulerName", pod.at("spec")) or DEFAULT_SCHEDULER
    if named != wanted:
        yield Finding(
            pod.at("spec", "schedulerName"),
            f"pool {placement.pool.name} is scheduled by {wanted} alone, and {shown(named)} does not count what it "
            f"hands out; set schedulerName: {wanted}",
        )


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact for pods that request GPUs by resources, if the policy also denies unsteered-pod.

    Pods that have only claims pass.
    """
    wanted = {pool.name: pool.scheduler for pool in policy.pools if pool.scheduler is not None}
    named = f"[object.spec.?schedulerName.orValue('')].map(n, n == '' ? '{DEFAULT_SCHEDULER}' : n)[0]"
    if wanted:
        yield Clause(
            f"size(variables.asked) == 0 || size(variables.pools) == 0"
            f" || variables.pools.exists(p, {strings(wanted)}[?p].orValue(variables.scheduler) == variables.scheduler)",
            "the pool is scheduled by another scheduler alone, which does not count what this one hands out; name that "
            "one under schedulerName",
            variables=(("scheduler", named),),
        )
