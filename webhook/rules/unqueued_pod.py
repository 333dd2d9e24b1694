"""A pod or a workload asks for a GPU of a pool with queues and names no queue.

Kueue manages only objects that name a queue, so leaving out the label is a known way around a quota (kueue#2119,
#3637). A scheduler with queues of its own, such as KAI or Volcano, puts such a pod into a default queue, where another
team pays.

The queue has to be named in the place where it is read. Kueue reads its label on the workload of a kind that it
manages, and on the pod of any other. Other schedulers read a label or an annotation of the pod; Volcano's own jobs name
it in `spec.queue`. Pods that a controller makes from a judged workload pass. Those of an account that the policy does
not name under `controllers` need the label themselves. The labels that Kueue writes into pods prove nothing: anyone may
copy them. Slicewarden never writes a queue, because the queue decides who pays.

Way out: name a queue as the message says. `kubectl get localqueues` lists those of Kueue in your namespace.
"""

from collections.abc import Iterator

from webhook.api.fields import group_kind, section
from webhook.api.lenient import mapping, mappings, string
from webhook.api.pods import Pod
from webhook.cel import policies as cel
from webhook.cel.clauses import ASKING, Clause
from webhook.cel.write import all_of, any_of, array
from webhook.cel.write import named as matching
from webhook.cel.write import text as written
from webhook.gpu.review import PodReview
from webhook.model import Finding, Object, Path
from webhook.policy.model import Policy, Queue
from webhook.text.words import listed, shown

SINCE = "0.1"

LOOKS_AT = ("gpu",)

ON_PODS = frozenset(("DaemonSet", "Pod", "PodTemplate", "ReplicaSet", "ReplicationController"))
"""Kinds that Kueue does not manage: it reads the label on their pods (kueue pkg/controller/jobs/pod)."""

ON_BOTH = frozenset(("Deployment", "LeaderWorkerSet", "StatefulSet"))
"""Kinds whose label Kueue copies to their pods (kueue pkg/controller/jobs/deployment and its neighbours)."""

VOLCANO = "scheduling.volcano.sh/queue-name"
"""The annotation that Volcano's controller writes into the pods of its jobs, from their `spec.queue`."""


def applies(policy: Policy) -> bool:
    """Return whether a pool gives GPUs to queues only."""
    return any(pool.queue is not None for pool in policy.pools)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag objects that request a GPU of a pool with a queue, and name no queue or a forbidden one."""
    pod, placement = review.subject, review.placement
    if placement is None or placement.pool is None or placement.pool.queue is None:
        return
    pool, queue = placement.pool.name, placement.pool.queue
    if _judged_before(pod, review.policy):
        return
    if not pod.template and pod.old is not None and _values(pod.old, queue) == _values(pod, queue):
        return  # its maker was judged, and a pod gains no GPU later
    part = "label" if queue.label else "annotation"
    named = [(path, value) for path, value in _named(pod, queue) if value]
    if not named:
        where, path = _place(pod, queue)
        allowed = f", one of {listed(list(queue.names), 3)}" if queue.names is not None else ""
        yield Finding(
            path,
            f"pool {pool} gives GPUs to queues only, and the {where} has no {part} {queue.key}; add it with the name "
            f"of your queue{allowed}",
            parts=(f"{pool}: {queue.key}",),
        )
        return
    for path, value in named[:1]:
        if queue.names is not None and value not in queue.names:
            yield Finding(
                path,
                f"pool {pool} does not take GPU work of queue {shown(value)}; use {listed(list(queue.names), 3)}",
                parts=(f"{pool}: {value}",),
            )


def _judged_before(pod: Pod, policy: Policy) -> bool:
    """Whether a controller made this from a workload that was judged."""
    if pod.requester is not None:
        return policy.controllers.include(pod.requester)
    owners = mappings(mapping(pod.whole.get("metadata")).get("ownerReferences"))
    return not pod.template and any(owner.get("controller") is True for owner in owners)


def _named(pod: Pod, queue: Queue) -> Iterator[tuple[Path, str]]:
    """Yield the places where the queue may be named, each with what is named there."""
    own = pod.labels if queue.label else pod.annotations
    at = pod.at("metadata", "labels" if queue.label else "annotations", queue.key)
    if not queue.kueue:
        yield at, string(own.get(queue.key))
        if queue.key == VOLCANO and group_kind(pod.whole)[0].endswith("volcano.sh"):
            spec = mapping(pod.whole.get("spec"))
            inner = mapping(mapping(spec.get("jobTemplate")).get("spec"))
            yield _place(pod, queue)[1], string(spec.get("queue")) or string(inner.get("queue"))
        return
    if pod.kind in ON_PODS or pod.kind in ON_BOTH:
        yield at, string(own.get(queue.key))
    if pod.kind not in ON_PODS:
        yield _place(pod, queue)[1], string(_labels(pod).get(queue.key))


def _values(pod: Pod, queue: Queue) -> list[str]:
    return [value for _, value in _named(pod, queue)]


def _labels(pod: Pod) -> Object:
    """Return the labels of the workload that Kueue manages: the jobs of a CronJob, else the object itself."""
    holder = pod.whole
    if pod.kind == "CronJob":
        holder = section(section(holder, "spec", ()), "jobTemplate", ("spec",))
    return section(section(holder, "metadata", ()), "labels", ("metadata",))


def _place(pod: Pod, queue: Queue) -> tuple[str, Path]:
    """Return which object has to name the queue, in words, and the place for it."""
    part = "labels" if queue.label else "annotations"
    if not queue.kueue or pod.kind in ON_PODS:
        return "template" if pod.template else "pod", pod.at("metadata", part, queue.key)
    if () in pod.elsewhere:  # it is inside another object, and its paths start there
        return pod.kind, pod.at("spec")
    if pod.kind == "CronJob":
        return "jobTemplate", ("spec", "jobTemplate", "metadata", part, queue.key)
    return pod.kind, ("metadata", part, queue.key)


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact for new pods that request GPUs by resources, if the policy also denies unsteered-pod.

    Pods that have only claims pass, and so do updates that remove a queue.
    """
    queues = {pool.name: pool.queue for pool in policy.pools if pool.queue is not None}
    places = " or ".join(sorted({_where(queue) for queue in queues.values()}))
    if queues:
        yield Clause(
            any_of(
                (
                    "size(variables.asked) == 0 || size(variables.pools) == 0",
                    cel.include(policy.controllers),
                    f"variables.pools.exists(p, !(p in {array(queues)})"
                    f" || {any_of(_fine(name, queue) for name, queue in queues.items())})",
                )
            ),
            f"GPUs of this pool go to queues only; name your queue in {places}",
            only=ASKING,
        )


def _fine(pool: str, queue: Queue) -> str:
    """Whether pool `p` is this one, and the pod names a queue that the pool takes."""
    held = "variables.podlabels" if queue.label else "variables.annotations"
    allowed = matching("queue", queue.names) if queue.names is not None else "true"
    named = all_of(("queue != ''", allowed))
    value = f"{held}[?{written(queue.key)}].orValue('')"
    return all_of((f"p == {written(pool)}", f"[{value}].exists(queue, {named})"))


def _where(queue: Queue) -> str:
    return f"{'label' if queue.label else 'annotation'} {queue.key}"
