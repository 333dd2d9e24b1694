"""A pod has an annotation that makes a container runtime add devices.

Container runtimes add the CDI devices that `cdi.k8s.io/` annotations name. NVIDIA's NRI plugin adds those of
`nvidia.cdi.k8s.io/`, in every namespace (nvidia-container-toolkit
cmd/nvidia-ctk-installer/container/runtime/nri/plugin.go). The device injectors of NRI, GKE and CRI-O read
`devices.nri.io`, `devices.gke.io`, and `devices.crio.io` with its older name. None of these devices is requested or
counted, and `NVIDIA_VISIBLE_DEVICES=void` does not stop them.

Way out: remove the annotation, and request GPUs in `resources.limits`. CRI-O's annotation may name devices that lead
to no GPU, such as /dev/fuse.
"""

from collections.abc import Iterator

from webhook.gpu.review import PodReview
from webhook.model import Finding

SINCE = "0.1"


def check(review: PodReview) -> Iterator[Finding]:
    """Flag annotations that have a container runtime add devices."""
    for path, _, _, _ in review.exposure.device_annotations:
        yield Finding(
            path,
            "this annotation makes the container runtime add devices; remove it, and request GPUs in resources.limits",
        )
