"""A pod under gVisor claims a GPU, and may get every GPU of its node.

gVisor's runtime (runsc, with nvproxy) does not respect what a claim allocates: a container with a claim for one GPU saw
all GPUs of its node, while runc gave it one (google/gvisor#13621, open). If the container has a CDI hook of NVIDIA's,
runsc uses the image's variable, which many images set to `all`, and creates a device file for each GPU of the node
(gvisor runsc/specutils/nvidia.go, runsc/boot/vfs.go).

The policy names the runtime classes of gVisor (`gpus.sandboxes`): a pod names a class, and the facts do not show which
runtime it uses. A resource that is offered by a device class counts as a claim too. GPUs of a device plugin pass. An
unknown claim only warns if the policy lets the pod claim any device.

A claim that is known to hold no GPU passes only where no claim of the namespace may hold a GPU, by a pool or by
`gpus.claims`. Elsewhere the author of the pod can replace it by a claim for a GPU before the pod runs.

Way out: remove `runtimeClassName`, or request a GPU by a resource of the device plugin.
"""

from collections.abc import Iterator

from webhook.catalog.gpu_requests import IMPLICIT
from webhook.gpu import claims
from webhook.gpu.review import PodReview
from webhook.model import Finding, Path
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("runtime class",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag claims that may be for GPUs, and resources that stand for them, in pods of gVisor's runtime classes."""
    pod, policy, facts = review.subject, review.policy, review.facts
    runtime = pod.spec.get("runtimeClassName")
    if not isinstance(runtime, str) or runtime not in policy.forms.sandboxes:
        return
    free = bool(review.claim_entries) and claims.free(pod, policy, facts)
    replaceable = "resourceClaims" in pod.spec and not free and claims.may_be_for_gpus(pod.namespace, policy, facts)
    for each in review.claim_entries:
        if not each.others:
            unknown = each.contents is None or not each.contents.classes
            yield _finding(each.path, "the claim may be for a GPU", runtime, advice=unknown and free)
        elif replaceable:
            yield _finding(each.path, "a claim for a GPU may replace this one before the pod runs", runtime)
    standing = {known.resource for known in facts.device_classes.values()}
    for request in review.requests:
        if request.resource.startswith(IMPLICIT) or request.resource in standing:
            yield _finding(request.path, "a device class stands for this resource", runtime)


def _finding(path: Path, why: str, runtime: str, *, advice: bool = False) -> Finding:
    message = (
        f"{why}, and runtime class {shown(runtime)} is one of gVisor, which shows a pod with a claim every GPU of its "
        "node; remove runtimeClassName, or request a GPU of the device plugin"
    )
    return Finding(path, message, advice=advice)
