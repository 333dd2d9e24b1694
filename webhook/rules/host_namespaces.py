"""A pod that may run next to GPUs shares the processes or the memory of its node.

With `hostPID` a pod sees the processes of everyone on the GPU, and their environment through /proc. With `hostIPC` it
reaches the shared memory through which MPS clients talk to their server (k8s-device-plugin cmd/mps-control-daemon).
The rule judges pods that request a GPU, and pods that nothing keeps off GPU nodes (the policy's guard).

Way out: remove `hostPID` and `hostIPC`. MPS needs neither since version 0.15 of the device plugin. An administrator
can exempt an agent of the system in the policy, by its namespace and service account.
"""

from collections.abc import Iterator

from webhook.api.fields import flag
from webhook.cel.clauses import ANY_POD, Clause
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy

SINCE = "0.1"

LOOKS_AT = ("host namespace",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag pods in their node's process or IPC namespace."""
    pod = review.subject
    at = pod.at("spec")
    for key, what in (("hostPID", "the processes"), ("hostIPC", "the shared memory")):
        if flag(pod.spec, key, at) and review.exposed:
            yield Finding(
                pod.at("spec", key),
                f"{key}: true lets the pod reach {what} of all pods on its node's GPUs; remove it{review.agents_way}",
            )


def fallback(_: Policy) -> Iterator[Clause]:
    """Exact, where it is certain that the pod may see a GPU."""
    yield Clause(
        "!variables.exposed || !variables.whole"
        " || !(object.spec.?hostPID.orValue(false) || object.spec.?hostIPC.orValue(false))",
        "hostPID or hostIPC lets the pod reach the processes or the shared memory of all pods on its node's GPUs; "
        "remove it",
        asked=ANY_POD,
    )
