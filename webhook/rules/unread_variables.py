"""A container that asks for a GPU takes variables from a place that is not read here.

`envFrom` takes all that a ConfigMap or a Secret holds, and both can change until the container starts. A
`NVIDIA_VISIBLE_DEVICES` among it counts over the device plugin's, as one in `env` would, and gives the container every
GPU of its node. Nothing can be written over it, since what the plugin will say is not known. A container that
asks for no GPU may take what it likes: there `void` in `env` counts.

Way out: give the entry a `prefix` with which no such name begins, or name the variables one by one in `env`.
"""

from collections.abc import Iterator

from webhook.gpu.review import PodReview
from webhook.model import Finding


def check(review: PodReview) -> Iterator[Finding]:
    """Flag entries of `envFrom` that may hold what counts over the device plugin."""
    for path, _, _, container in review.exposure.variables_from:
        if container is not None and container.path in review.gpu_containers:
            yield Finding(
                path,
                "what it holds is not read here, and may be NVIDIA_VISIBLE_DEVICES, which counts over what the device "
                "plugin hands out; give it a prefix such as APP_, or name the variables one by one in env",
            )
