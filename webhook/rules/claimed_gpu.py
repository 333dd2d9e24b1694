"""A claim asks for GPUs in a namespace where none may be claimed.

A ResourceClaim, or what a ResourceClaimTemplate makes, holds devices past every pool: no trust is asked for, nothing
is counted, and the pod that uses it says only its name (resource/v1). So claims for GPUs are written where the policy
lets pods claim devices; which account of the namespace may use them is judged with each pod. A request counts with
all its alternatives (`firstAvailable`), since the scheduler may choose any.

Which device classes are for GPUs is known from the policy, from the drivers that a DeviceClass among the facts selects,
and from the names that drivers publish. Classes of network cards, channels, TPUs and other known devices pass. A class
of which nothing is known may be one of GPUs, so it is refused as unknown until the policy lists it.

Way out: ask for GPUs by a resource that a pool offers. Or have an administrator list the namespace under `gpus.claims`
in the policy, or the class under `gpus.otherDeviceClasses` if it is not for GPUs.
"""

from collections.abc import Iterator

from webhook.api.devices import DeviceClaim
from webhook.gpu.device_classes import Class, sort_of
from webhook.model import Finding
from webhook.review import Review
from webhook.text.words import shown

SINCE = "0.1"


def check(review: Review[DeviceClaim]) -> Iterator[Finding]:
    """Flag requests for GPU classes and for unknown ones, outside the namespaces that may claim devices."""
    claim, policy, facts = review.subject, review.policy, review.facts
    labels = facts.namespaces.get(claim.namespace)
    if any(scope.reaches(claim.namespace, labels) for scope in policy.forms.claims):
        return
    for request in claim.requests:
        sort = sort_of(request.device_class, policy, facts) if request.device_class else Class.OTHER
        if sort is Class.OTHER:
            continue
        if sort is Class.GPU:
            message = (
                f"class {shown(request.device_class)} is for GPUs, which nobody may claim in namespace "
                f"{shown(claim.namespace)}; request a resource such as nvidia.com/gpu instead, or ask an administrator "
                "to list the namespace under gpus.claims"
            )
        else:
            message = (
                f"class {shown(request.device_class)} is not known, and may be for GPUs; ask an administrator to list "
                "it under gpus.otherDeviceClasses, or under gpus.deviceClasses if it is for GPUs"
            )
        yield Finding((*request.path, "deviceClassName"), message)
