"""A pod that may run next to GPUs shares the processes or the memory of its node.

With `hostPID` a pod sees the processes of everyone on the GPU, and their environment through /proc. With `hostIPC` it
reaches the shared memory through which MPS clients talk to their server (k8s-device-plugin cmd/mps-control-daemon).
GKE requires `hostIPC` of MPS clients (cloud.google.com/kubernetes-engine/docs/how-to/nvidia-mps-gpus): a pool may allow
it (`hostIPC: true`) to pods that are restricted to its nodes. A hostPath `/dev/shm` is the same memory, and `/run/shm`
is a link to it. Where a pool allows `hostIPC`, only pods that are restricted to the nodes of one pool may mount it, and
pods whose node selection excludes every such pool by a label of which the pool lists the values.
The rule judges pods that request a GPU, and pods that nothing keeps off GPU nodes (the policy's guard).

Way out: remove `hostPID` and `hostIPC`. MPS needs neither since version 0.15 of NVIDIA's device plugin. In place of a
hostPath `/dev/shm`, mount an `emptyDir` with `medium: Memory` there. An administrator can exempt an agent of the system
in the policy, by its namespace and service account, or list the path under `gpus.hostPaths`. A listed folder above it
needs `recursiveReadOnly: Enabled` or `writable: true` there: `readOnly` leaves the mounts below a folder writable
(KEP-3857).
"""

from collections.abc import Iterator
from dataclasses import replace

from webhook.api.fields import flag
from webhook.api.selectors import Selector
from webhook.catalog.host_paths import ABOVE_SHARED_MEMORY, SHARED_MEMORY, Access, normal
from webhook.cel import policies
from webhook.cel.clauses import ANY_POD, CHANGES, Clause, RequestKind
from webhook.cel.paths import joined, steps, within
from webhook.cel.write import all_of, any_of, negated, text
from webhook.gpu.exposure import HostPath
from webhook.gpu.review import PodReview
from webhook.gpu.selection import MAX_CHOICES, excluded, restricted
from webhook.model import Finding
from webhook.policy.model import Forms, Policy, Pool
from webhook.text.words import listed, shown

SINCE = "0.1"

LOOKS_AT = ("host namespace", "shared_memory", "host_paths")


def check(review: PodReview) -> Iterator[Finding]:
    """Flag pods that join their node's process or IPC namespace, and those that mount their node's shared memory."""
    pod = review.subject
    at = pod.at("spec")
    for key, what in (("hostPID", "the processes"), ("hostIPC", "the shared memory")):
        if flag(pod.spec, key, at) and review.exposed and not (key == "hostIPC" and _allows(_pool(review))):
            yield Finding(
                pod.at("spec", key),
                f"{key}: true lets the pod reach {what} of all pods on its node's GPUs; remove it{review.agents_way}",
            )
    forms, pools = review.policy.forms, [pool.name for pool in review.policy.pools if pool.host_ipc]
    if not pools or not review.exposed:
        return
    found = [each for each in review.exposure.shared_memory if not forms.let_mount(each.name, each.access)]
    above = [each for each in review.exposure.host_paths if _leaves_writable(each, forms)]
    if (found or above) and _may_reach(review):
        ways = ["mount an emptyDir with medium: Memory in its place"] if found else []
        if above:
            ways.append(f"set recursiveReadOnly: Enabled on every mount of {_names(above)}")
        yield Finding(
            pod.at("spec", "volumes"),
            f"hostPath {_names([*found, *above])} lets the pod reach the "
            f"shared memory of MPS and of its clients in {'pool' if len(pools) == 1 else 'pools'} "
            f"{listed(pools, _NAMED)}; {', '.join(ways)}{review.agents_way}",
            parts=tuple(each.name for each in (*found, *above)),
        )


def _leaves_writable(mounted: HostPath, forms: Forms) -> bool:
    """Whether the policy lists a folder above the shared memory for reading only, and a mount of it is `readOnly`.

    The mounts below it stay writable then. `device-path` judges the folder if the policy does not list it.
    """
    reads = Access.READ <= mounted.access < Access.READ_ALL and normal(mounted.name) in ABOVE_SHARED_MEMORY
    return reads and forms.let_mount(mounted.name, Access.READ) and not forms.let_mount(mounted.name, Access.WRITE)


def _names(paths: list[HostPath]) -> str:
    return listed([shown(each.name, quotes=False) for each in paths], _NAMED)


_NAMED = 5
"""Paths and pools that a message names."""


def _pool(review: PodReview) -> Pool | None:
    """Return the pool to whose nodes a pod with a GPU is restricted. A template is when its pods are made."""
    placement, pod = review.placement, review.subject
    if placement is None or placement.pool is None or placement.clash is not None:
        return None
    return placement.pool if pod.template or restricted(pod, placement.pool) else None


def _allows(pool: Pool | None) -> bool:
    return pool is not None and pool.host_ipc


def _may_reach(review: PodReview) -> bool:
    """Whether a pod may reach MPS in the IPC namespace of a node, other than as a pod of a pool that allows it.

    A node selection that is too large to be compared with each pool counts as none.
    """
    pod, pools = review.subject, review.policy.pools
    terms = pod.node_terms or ()
    if _pool(review) is not None:
        return False
    if sum(1 + len(term.expressions or ()) for term in terms) > MAX_CHOICES:
        return True
    away = all(excluded(pod, pool) for pool in pools if pool.host_ipc)
    return not (away or any(restricted(pod, pool) for pool in pools if not pool.host_ipc))


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact for the namespaces of pods that certainly may see a GPU. Weaker for the shared memory.

    If a pool of device classes allows `hostIPC`, an update of a pod with claims may have it. Where a pool allows it, a
    path of the shared memory passes if the policy lists it, even only for reading, and each folder above the shared
    memory passes.
    """
    pools = [pool for pool in policy.pools if pool.host_ipc]
    if not pools:
        yield _clause(_IPC, ANY_POD)
        return
    own = any_of(all_of((f"{text(pool.name)} in variables.willing", *_restricted(pool))) for pool in pools)
    yield _clause(f"({_IPC} && !({own}))", (RequestKind.PODS,))
    # An update opens the way to a GPU only for a pod that requests none. Claims may bring such a pod into a pool.
    yield _clause(f"({_IPC} && !({policies.asks_of(pools, policy)}))", CHANGES)
    yield from _memory(policy)


_IPC = "object.spec.?hostIPC.orValue(false)"


def _clause(ipc: str, asked: tuple[RequestKind, ...]) -> Clause:
    return Clause(
        f"!variables.exposed || !variables.whole || !(object.spec.?hostPID.orValue(false) || {ipc})",
        "hostPID or hostIPC lets the pod reach the processes or the shared memory of all pods on its node's GPUs; "
        "remove it",
        "['hostPID', 'hostIPC'].filter(f, f == 'hostPID' ? object.spec.?hostPID.orValue(false) : "
        f"{ipc}).map(f, 'spec.' + f).join(' and ')",
        asked=asked,
    )


def _restricted(pool: Pool) -> list[str]:
    """Return expressions as policies.restricted does. Here the affinity may have the pool's labels too."""
    return policies.restricted(replace(pool, nodes=Selector({}, pool.nodes.requirements)))


def _memory(policy: Policy) -> Iterator[Clause]:
    """Write the clauses about the shared memory where some pools allow `hostIPC`."""
    listed_ = [each.path for each in policy.forms.host_paths]
    path = all_of((within("path", SHARED_MEMORY), negated(within("path", listed_))))
    mounts = (
        "object.spec.?volumes.orValue([]).exists(v, has(v.hostPath) && v.hostPath.path.contains('shm')"
        f" && [{joined(steps('v.hostPath.path'))}].exists(path, {path}))"
    )
    own = (
        all_of((*([policies.asks_of([each], policy)] if each.host_ipc else []), *_restricted(each)))
        for each in policy.pools
        if each.has_nodes
    )
    away = any_of((*own, all_of(policies.excluded(each) for each in policy.pools if each.host_ipc)))
    for asked, variables in (((RequestKind.PODS,), ()), (CHANGES, policies.SELECTION)):
        yield Clause(
            f"!variables.exposed || !variables.whole || !{mounts} || {away}",
            "a hostPath lets the pod reach the shared memory of MPS and of its clients; mount an emptyDir with "
            "medium: Memory in its place",
            asked=asked,
            variables=variables,
        )
