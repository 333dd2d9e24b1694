"""A pod is put on a GPU's node by no scheduler, or is given annotations on the way there.

A binding, be it of `pods/binding` or of the older `bindings`, sets a pod's node without the scheduler's looking at
taints, and merges its annotations into the pod, which nobody judges again (kubernetes
pkg/registry/core/pod/storage/storage.go). So nodes of the pools are for the schedulers that the policy names, which
keep to the node selection that steering writes; and no binding carries what a pod is judged by: its trust, or the
devices that a runtime is to inject (CDI, NRI and CRI-O annotations).

Of the pod itself a binding says only its name. That it suits the node is left to the scheduler, and to the kubelet,
which compares node selector and affinity once more.

Way out: leave the pod to its scheduler, or have an administrator name the account under `schedulers`.
"""

from collections.abc import Iterator

from webhook.doors import adds_devices
from webhook.facts import Facts
from webhook.guard import gpus_of
from webhook.model import Finding, shown
from webhook.policy import Policy
from webhook.targets import Binding


def check(binding: Binding, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag a binding by no scheduler to a node that has GPUs, or may have, and annotations that are judged."""
    for key in binding.annotations:
        if key == policy.annotation or adds_devices(key):
            yield Finding(
                ("metadata", "annotations", key),
                "would reach the pod without being judged; remove it from the binding, and create the pod with it",
            )
    requester = binding.requester
    if requester is None or policy.schedulers.include(requester):
        return
    if where := gpus_of(binding.node, policy, facts):
        yield Finding(
            ("target", "name"),
            f"node {shown(binding.node)} {where}, and {shown(requester.username)} is no scheduler of policy "
            f"{policy.name}; leave the pod to its scheduler",
        )
