"""A container has a privilege that gives it devices it did not request.

A privileged container has every device of its node. A Windows host process is no container at all. Some capabilities
let a container help itself: with SYS_ADMIN, NVIDIA's toolkit trusts variables that it is told to ignore
(nvidia-container-toolkit internal/config/image/privileged.go); BPF rewrites the program that keeps devices from
containers; DAC_READ_SEARCH opens any file of the node, such as the kubelet's key (open_by_handle_at(2)). The rule
judges pods that request a GPU, and pods that nothing keeps off GPU nodes (the policy's guard).

Way out: remove the privilege, or remove the toleration that lets the pod onto GPU nodes. An administrator can exempt
an agent of the system in the policy, by its namespace and service account.
"""

from collections.abc import Iterator

from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.text.words import shown

SINCE = "0.1"


def check(review: PodReview) -> Iterator[Finding]:
    """Flag privileged containers, Windows host processes and capabilities that give devices."""
    privileges = review.exposure.privileges
    if not privileges or not review.exposed:
        return
    for path, name, value, _ in privileges:
        if name == "privileged":
            yield Finding(
                path, "privileged: true gives the container every device of its node, all GPUs too; remove it"
            )
        elif name == "hostProcess":
            yield Finding(path, "hostProcess: true makes the container a process of its node; remove it")
        else:
            message = f"capability {shown(value)} lets the container take devices that it was not given; remove it"
            yield Finding(path, message)
