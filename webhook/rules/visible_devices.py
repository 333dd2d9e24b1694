"""A container sets a variable by which NVIDIA's container toolkit gives it devices.

`NVIDIA_VISIBLE_DEVICES=all` gives a container every GPU of its node, whether it asks for one or not: what a pod says
in `env` stands behind what the device plugin says, and the last of two counts (kubernetes pkg/kubelet
kubelet_pods.go, nvidia-container-toolkit internal/config/image). Its siblings give the partitioning of cards, other
nodes' memory and the switches between cards; AMD's toolkit has a variable of its own. `void`, `none` and nothing give
nothing; NVIDIA_DRIVER_CAPABILITIES and CUDA_VISIBLE_DEVICES only narrow what was given.

Way out: remove the variable, and ask for GPUs in `resources.limits`.
"""

from collections.abc import Iterator

from webhook.catalog.doors import DEVICE_VARIABLES
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.text.words import shown


def check(review: PodReview) -> Iterator[Finding]:
    """Flag values that open something, and values that are not known before the pod runs."""
    for path, name, value, container in review.exposure.variables:
        variable = DEVICE_VARIABLES[name]
        asks_here = container is not None and container.path in review.gpu_containers
        if variable.harmless is None or value in variable.harmless or (variable.asking and asks_here):
            continue
        said = "is not known before the pod runs, and may open" if value is None else f"is {shown(value)}, which opens"
        why = (
            "and counts over what the device plugin hands out"
            if asks_here
            else "and the container asks for no GPU in resources.limits"
        )
        yield Finding(path, f"{name} {said} {variable.opens}, {why}; remove it")
