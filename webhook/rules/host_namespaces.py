"""A pod that may run beside GPUs shares the processes or the memory of its node.

With `hostPID` it sees the processes of everyone on the card, and through /proc what they were given; with `hostIPC`
it reaches the shared memory by which MPS's clients speak with their server (k8s-device-plugin cmd/mps-control-
daemon). Judged are pods that ask for a GPU, and those that nothing keeps off the nodes with GPUs (the policy's
guard).

Way out: leave `hostPID` and `hostIPC` out; MPS has needed neither since version 0.15 of the device plugin. A part of
the system is exempted in the policy, by namespace and service account.
"""

from collections.abc import Iterator

from webhook.api.fields import flag
from webhook.gpu.review import PodReview
from webhook.model import Finding


def check(review: PodReview) -> Iterator[Finding]:
    """Flag pods in their node's process or IPC namespace."""
    pod = review.subject
    at = pod.at("spec")
    for key, what in (("hostPID", "the processes"), ("hostIPC", "the shared memory")):
        if flag(pod.spec, key, at) and review.exposed:
            yield Finding(
                pod.at("spec", key),
                f"is true, and lets the pod reach {what} of all that share its node's GPUs; leave it out",
            )
