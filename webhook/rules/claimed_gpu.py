"""A claim asks for GPUs in a namespace where none may be claimed.

A ResourceClaim, or what a ResourceClaimTemplate makes, holds devices past every pool: no trust is asked for, nothing
is counted, and the pod that uses it says only its name (resource/v1). So claims for GPUs are written where the policy
lets pods claim devices; which account of the namespace may use them is judged with each pod. A request counts with
all its alternatives (`firstAvailable`), since the scheduler may choose any. Which device classes are GPUs is the
policy's word; until it is said, all are.

Way out: ask for GPUs by a resource that a pool offers; or have an administrator list the namespace under
`gpus.claims` in the policy, or, for a class of other devices, name those that are GPUs under `gpus.deviceClasses`.
"""

from collections.abc import Iterator

from webhook.api.objects import DeviceClaim
from webhook.model import Finding
from webhook.review import Review
from webhook.text.words import shown


def check(review: Review[DeviceClaim]) -> Iterator[Finding]:
    """Flag requests for the policy's GPU classes, outside the namespaces that may claim devices."""
    claim, policy = review.subject, review.policy
    labels = review.facts.namespaces.get(claim.namespace)
    if any(scope.reaches(claim.namespace, labels) for scope in policy.forms.claims):
        return
    for request in claim.requests:
        if request.device_class and request.device_class in policy.forms.device_classes:
            yield Finding(
                (*request.path, "deviceClassName"),
                f"{shown(request.device_class)} is a class of GPUs to policy {policy.name}, which lets nobody claim "
                f"devices in namespace {shown(claim.namespace)}; ask for GPUs by a resource that a pool offers, or "
                "have an administrator list in the policy the namespace under gpus.claims, or under "
                "gpus.deviceClasses only the classes that are for GPUs",
            )
