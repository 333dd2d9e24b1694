"""A container has a mount that requests GPUs.

NVIDIA's toolkit can be set up to read requests from the names of mounts under /var/run/nvidia-container-devices
instead of from variables (nvidia-container-toolkit internal/config/image/cuda_image.go). The device plugin mounts
there, but any pod can do it too: `/var/run/nvidia-container-devices/all` requests every GPU of the node. The toolkit
compares only the beginning of the path, so `/var/run/nvidia-container-devicesall` is the same request.

Way out: remove the mount, and request GPUs in `resources.limits`.
"""

from collections.abc import Iterator

from webhook.catalog.host_paths import DEVICE_MOUNTS
from webhook.cel.clauses import ANY_POD, Clause
from webhook.cel.paths import joined, mounts, steps
from webhook.cel.write import begins
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("device_mounts",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag mounts whose path begins like the folder that the toolkit reads as a list of devices."""
    for path, _, value, _ in review.exposure.device_mounts:
        yield Finding(
            path,
            f"a mount at {shown(value)} requests GPUs past the device plugin; remove it, and {review.request_way}",
        )


def fallback(_: Policy) -> Iterator[Clause]:
    """Weaker: the fallback lets a mount pass if its path has `..` in it."""
    device = begins(joined(steps("m")), DEVICE_MOUNTS)
    one = mounts("c", ("nvidia-container",), device, message=False)
    yield Clause(
        f"!variables.added.exists(c, {one})",
        "a mount requests GPUs past the device plugin; remove it, and request GPUs in resources.limits",
        f"'container ' + variables.added.filter(c, {one}).map(c, c.name).join(', ')",
        asked=ANY_POD,
    )
