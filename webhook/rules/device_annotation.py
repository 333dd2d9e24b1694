"""A pod has an annotation by which a container runtime adds devices to it.

Runtimes add CDI devices that `cdi.k8s.io/` annotations name, NVIDIA's NRI plugin those of `nvidia.cdi.k8s.io/` in
every namespace (nvidia-container-toolkit cmd/nvidia-ctk-installer/container/runtime/nri/plugin.go), the device
injectors of NRI those of `devices.nri.io`, GKE's those of `devices.gke.io`, and CRI-O those of `devices.crio.io` and
its older name. No request is counted for any of them, and `NVIDIA_VISIBLE_DEVICES=void` does not hold them up.

Way out: remove the annotation, and ask for GPUs in `resources.limits`. CRI-O's may name devices that lead to no GPU,
such as /dev/fuse.
"""

from collections.abc import Iterator

from webhook.gpu.review import PodReview
from webhook.model import Finding


def check(review: PodReview) -> Iterator[Finding]:
    """Flag annotations that have a container runtime add devices."""
    for path, _, _, _ in review.exposure.device_annotations:
        yield Finding(
            path,
            "has the container runtime add devices past resources.limits; remove it, and ask for GPUs there",
        )
