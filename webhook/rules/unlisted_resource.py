"""A DeviceClass offers GPUs under a name that the policy does not know.

`extendedResourceName` lets every pod request the devices of a class like any resource, without a visible claim
(KEP-5004). A pod that requests a name unknown to the policy counts as a pod without a GPU: it is not steered and not
counted, and usually not even sent to the webhook. Administrators are judged too: a name that they write into a class
they can first write into the policy.

Way out: offer the class under a name that the policy knows, such as NVIDIA's `nvidia.com/gpu`, or add the name to
`gpus.resources` in the policy. If the class has other devices, list the classes that are GPUs in `gpus.deviceClasses`.
A class of a pool is one of GPUs, listed or not.
"""

from collections.abc import Iterator

from webhook.api.devices import DeviceClaim
from webhook.cel.clauses import Clause, RequestKind
from webhook.cel.policies import is_gpu
from webhook.cel.write import any_of, named, negated
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.review import Review
from webhook.text.words import shown

SINCE = "0.1"


def check(review: Review[DeviceClaim]) -> Iterator[Finding]:
    """Flag a GPU class that offers its devices by a resource name which the policy does not list."""
    claim, policy = review.subject, review.policy
    known = policy.gpu_resources
    for_gpus = claim.name in policy.forms.device_classes or policy.pools_of_class(claim.name)
    if claim.resource and for_gpus and claim.resource not in known:
        # a domain that two names share makes them similar
        near = review.allowance.guesses.nearest(claim.resource, known.patterns, 0.9)
        yield Finding(
            ("spec", "extendedResourceName"),
            f"policy {policy.name} does not know {shown(claim.resource)}, so pods could request these GPUs unjudged; "
            + (f"did you mean {near}? If not, " if near else "")
            + "add the name to gpus.resources in the policy, or list only classes of GPUs in gpus.deviceClasses",
        )


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact: the fallback gives the same verdict as the webhook."""
    name, before = "object.spec.?extendedResourceName", "oldObject.spec.?extendedResourceName"
    classes = (policy.forms.device_classes, *(pool.device_classes for pool in policy.pools))
    yield Clause(
        "request.kind.kind != 'DeviceClass' || "
        + any_of(
            (
                f"{name}.orValue('') == ''",
                f"(request.operation == 'UPDATE' && {name} == {before})",
                negated(any_of(named("object.metadata.name", each) for each in classes)),
                f"[{name}.orValue('')].exists(n, {is_gpu('n', policy.gpu_resources)})",
            )
        ),
        f"policy {policy.name} does not know the extendedResourceName, so pods could request these GPUs unjudged; add "
        "the name to gpus.resources in the policy, or list only classes of GPUs in gpus.deviceClasses",
        asked=(RequestKind.DEVICES,),
    )
