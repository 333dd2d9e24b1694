"""A pod belongs to a pool of one scheduler and names another.

Two schedulers on one node count its GPUs apart. kube-scheduler does not see the fractions that KAI hands out, and
neither sees what the other is about to bind: the same GPU is given twice (KAI-Scheduler#416). So a pool may name its
`scheduler`, and every pod of the pool has to name it too. Slicewarden does not write the name, since it decides about
queues and gangs as well. `foreign-binding` keeps other schedulers from binding pods to the pool's nodes.

Way out: set `schedulerName` to the scheduler of the pool, or ask for a GPU of another pool.
"""

from collections.abc import Iterator

from webhook.api.fields import text
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import DEFAULT_SCHEDULER
from webhook.text.words import shown

SINCE = "0.1"


def check(review: PodReview) -> Iterator[Finding]:
    """Flag a `schedulerName` other than that of the pool. An absent one is that of Kubernetes' own scheduler."""
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
