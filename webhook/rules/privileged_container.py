"""A container has a privilege by which it takes devices that it was not given.

A privileged container has every device of its node, a Windows host process is no container at all, and with some
capabilities a container helps itself: SYS_ADMIN has NVIDIA's toolkit believe variables that it is told to ignore
(nvidia-container-toolkit internal/config/image/privileged.go), BPF rewrites what keeps devices from containers, and
DAC_READ_SEARCH opens any file of the node, the kubelet's key among them (open_by_handle_at(2)).
Judged are pods that ask for a GPU, and those that nothing keeps off the nodes with GPUs (the policy's guard).

Way out: leave the privilege out, or the toleration that lets the pod onto nodes with GPUs. A part of the system is
exempted in the policy, by namespace and service account.
"""

from collections.abc import Iterator

from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.text.words import shown


def check(review: PodReview) -> Iterator[Finding]:
    """Flag privileged containers, Windows host processes and capabilities that give devices."""
    privileges = review.exposure.privileges
    if not privileges or not review.exposed:
        return
    for path, name, value, _ in privileges:
        what = "true" if value is True else shown(value)
        if name == "privileged":
            yield Finding(path, f"is {what}, and gives the container every device of its node; leave it out")
        elif name == "hostProcess":
            yield Finding(path, f"is {what}, and makes the container a process of its node; leave it out")
        else:
            yield Finding(path, f"{what} lets the container take devices that it was not given; leave it out")
