"""A pod is put on a GPU's node by no scheduler, or is given annotations on the way there.

A binding, be it of `pods/binding` or of the older `bindings`, sets a pod's node without the scheduler's looking at
taints, and merges its annotations and labels into the pod, which nobody judges again (kubernetes
pkg/registry/core/pod/storage/storage.go). So nodes of the pools are for the schedulers that the policy names, which
keep to the node selection that steering writes; and no binding carries what a pod is judged by: its trust, or the
devices that a runtime is to inject (CDI, NRI and CRI-O annotations). Which GPU was chosen only a scheduler says there.

Of the pod itself a binding says only its name. That it suits the node is left to the scheduler, and to the kubelet,
which compares node selector and affinity once more.

Way out: leave the pod to its scheduler, or have an administrator name the account under `schedulers`.
"""

from collections.abc import Iterator

from webhook.api.objects import Binding
from webhook.catalog.doors import PLACEMENT_ANNOTATIONS, PLACEMENT_LABELS, adds_devices
from webhook.gpu.guard import gpus_of
from webhook.model import Finding
from webhook.review import Review
from webhook.text.words import shown


def check(review: Review[Binding]) -> Iterator[Finding]:
    """Flag a binding by no scheduler to a node that has GPUs, or may have, and annotations that are judged."""
    binding, policy = review.subject, review.policy
    for key in binding.annotations:
        if key == policy.annotation or adds_devices(key):
            yield Finding(
                ("metadata", "annotations", key),
                "would reach the pod without being judged; remove it from the binding, and create the pod with it",
            )
    requester = binding.requester
    if requester is None or policy.schedulers.include(requester):
        return
    for part, there, placements in (
        ("annotations", binding.annotations, PLACEMENT_ANNOTATIONS),
        ("labels", binding.labels, PLACEMENT_LABELS),
    ):
        for key in there:
            if key in placements:
                yield Finding(
                    ("metadata", part, key),
                    f"says which GPU a scheduler chose, and {shown(requester.username)} is no scheduler of policy "
                    f"{policy.name}; remove it",
                )
    if where := gpus_of(binding.node, policy, review.facts):
        yield Finding(
            ("target", "name"),
            f"node {shown(binding.node)} {where}, and {shown(requester.username)} is no scheduler of policy "
            f"{policy.name}; leave the pod to its scheduler",
        )
