"""A DeviceClass offers GPUs under a name that the policy does not know.

`extendedResourceName` lets every pod ask for a class's devices as for any resource, with no claim to be seen
(KEP-5004). A pod that asks by a name of which the policy knows nothing is taken for one without a GPU: it is not
steered, not counted, and as a rule not even sent here. Administrators are held to it too: what they write into a class
they can write into the policy first.

Way out: offer the class under a name that the policy knows, as NVIDIA's `nvidia.com/gpu`, or list the name under
`gpus.resources` in the policy; for a class of other devices name those that are GPUs under `gpus.deviceClasses`.
"""

from collections.abc import Iterator

from webhook.api.objects import DeviceClaim
from webhook.model import Finding
from webhook.review import Review
from webhook.text.words import shown


def check(review: Review[DeviceClaim]) -> Iterator[Finding]:
    """Flag the name of a GPU class's resource that is none of the policy's."""
    claim, policy = review.subject, review.policy
    known = policy.gpu_resources
    if claim.resource and claim.name in policy.forms.device_classes and claim.resource not in known:
        # A domain that two names share makes them much alike.
        near = review.allowance.guesses.nearest(claim.resource, known.patterns, 0.9)
        yield Finding(
            ("spec", "extendedResourceName"),
            f"would let pods ask for GPUs as {shown(claim.resource)}, of which policy {policy.name} knows nothing; "
            + (f"did you mean {near}? If not, " if near else "")
            + "list in the policy the name under gpus.resources, or under gpus.deviceClasses only the classes that are "
            "for GPUs",
        )
