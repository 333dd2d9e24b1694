"""A pod that may run next to GPUs shares the processes or the memory of its node.

With `hostPID` a pod sees the processes of everyone on the GPU, and their environment through /proc. With `hostIPC` it
reaches the shared memory through which MPS clients talk to their server (k8s-device-plugin cmd/mps-control-daemon).
GKE requires `hostIPC` of MPS clients (cloud.google.com/kubernetes-engine/docs/how-to/nvidia-mps-gpus): a pool may allow
it (`hostIPC: true`) to pods that are restricted to its nodes.
The rule judges pods that request a GPU, and pods that nothing keeps off GPU nodes (the policy's guard).

Way out: remove `hostPID` and `hostIPC`. MPS needs neither since version 0.15 of NVIDIA's device plugin. An
administrator can exempt an agent of the system in the policy, by its namespace and service account.
"""

from collections.abc import Iterator

from webhook.api.fields import flag
from webhook.cel import policies
from webhook.cel.clauses import ANY_POD, CHANGES, Clause, RequestKind
from webhook.cel.write import all_of, any_of, text
from webhook.gpu.review import PodReview
from webhook.gpu.selection import restricted
from webhook.model import Finding
from webhook.policy.model import Policy

SINCE = "0.1"

LOOKS_AT = ("host namespace",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag pods in their node's process or IPC namespace."""
    pod = review.subject
    at = pod.at("spec")
    for key, what in (("hostPID", "the processes"), ("hostIPC", "the shared memory")):
        if flag(pod.spec, key, at) and review.exposed and not (key == "hostIPC" and _allowed(review)):
            yield Finding(
                pod.at("spec", key),
                f"{key}: true lets the pod reach {what} of all pods on its node's GPUs; remove it{review.agents_way}",
            )


def _allowed(review: PodReview) -> bool:
    """Whether the pool of a pod allows it `hostIPC`. A template is restricted to the pool when its pods are made."""
    placement, pod = review.placement, review.subject
    if placement is None or placement.pool is None or placement.clash is not None or not placement.pool.host_ipc:
        return False
    return pod.template or restricted(pod, placement.pool)


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact, where it is certain that the pod may see a GPU.

    If a pool allows `hostIPC`, updates of pods with claims pass with it.
    """
    pools = [pool for pool in policy.pools if pool.host_ipc]
    if not pools:
        yield _clause(_IPC, ANY_POD)
        return
    own = any_of(all_of((f"{text(pool.name)} in variables.willing", *policies.restricted(pool))) for pool in pools)
    yield _clause(f"({_IPC} && !({any_of(('size(variables.asked) > 0', _CLAIMS))} && {own}))", (RequestKind.PODS,))
    # An update opens the way to a GPU only for a pod that requests none, and no pool allows anything to such a pod.
    yield _clause(f"({_IPC} && !({_CLAIMS}))", CHANGES)


_IPC = "object.spec.?hostIPC.orValue(false)"
_CLAIMS = "size(object.spec.?resourceClaims.orValue([])) > 0"


def _clause(ipc: str, asked: tuple[RequestKind, ...]) -> Clause:
    return Clause(
        f"!variables.exposed || !variables.whole || !(object.spec.?hostPID.orValue(false) || {ipc})",
        "hostPID or hostIPC lets the pod reach the processes or the shared memory of all pods on its node's GPUs; "
        "remove it",
        "['hostPID', 'hostIPC'].filter(f, f == 'hostPID' ? object.spec.?hostPID.orValue(false) : "
        f"{ipc}).map(f, 'spec.' + f).join(' and ')",
        asked=asked,
    )
