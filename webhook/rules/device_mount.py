"""A container mounts something where a mount is a request for a device.

NVIDIA's toolkit can be told to take requests by the names of mounts under /var/run/nvidia-container-devices, as an
answer to those who set variables (nvidia-container-toolkit internal/config/image/cuda_image.go). The device plugin
then mounts there, and so can any pod: `/var/run/nvidia-container-devices/all` is every GPU of the node. The toolkit
compares how the place begins, and so `/var/run/nvidia-container-devicesall` is the same request.

Way out: remove the mount, and ask for GPUs in `resources.limits`.
"""

from collections.abc import Iterator

from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.text.words import shown


def check(review: PodReview) -> Iterator[Finding]:
    """Flag mounts whose place begins as the folder does that is read as a list of devices."""
    for path, _, value, _ in review.exposure.device_mounts:
        yield Finding(
            path,
            f"a mount at {shown(value)} asks for a GPU past resources.limits; remove it, and ask for GPUs there",
        )
