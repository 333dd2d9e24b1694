"""A pod with a GPU request has an annotation under `slicewarden.dev/` that Slicewarden does not read.

A misspelt `slicewarden.dev/trsut` asks for no trust, and `slicewarden.dev/gpu-memroy` leaves the pod its whole slice.
Neither fault is visible. The message suggests the right name. The rule only warns: an annotation that is not read does
no harm, and a newer Slicewarden may read it. If the policy reads trust from another annotation, `slicewarden.dev/trust`
is unknown too.

Way out: correct the name, or remove the annotation.
"""

from collections.abc import Iterator

from webhook.gpu.review import PodReview
from webhook.memory.annotation import KEY
from webhook.memory.budget import MEMORY, PROCESSES
from webhook.memory.frameworks.pytorch import TORCH_VERSION
from webhook.memory.shim.delivery import CHOICE, CODE, IMAGE_PATH
from webhook.model import Finding
from webhook.policy.model import PAUSABLE

SINCE = "0.1"

LOOKS_AT = ("gpu",)

PREFIX = "slicewarden.dev/"
SAID = (MEMORY, PROCESSES, PAUSABLE, TORCH_VERSION, CHOICE, IMAGE_PATH)
"""The annotations that pods may have in addition to their trust."""
MOST = 10
"""The number of annotations that are named: a pod may have thousands, and each guess at a spelling takes time."""


def check(review: PodReview) -> Iterator[Finding]:
    """Flag annotations under the prefix that Slicewarden neither reads nor writes."""
    pod = review.subject
    known = (review.policy.annotation, *SAID)
    strange = [key for key in pod.annotations if key.startswith(PREFIX) and key not in (*known, KEY, CODE)]
    if not strange or not review.requests:
        return
    ends = {key.rpartition("/")[2]: key for key in known}
    for key in strange[:MOST]:
        near = review.allowance.guesses.nearest(key.removeprefix(PREFIX), ends)
        meant = f"did you mean {ends[near]}?" if near else f"it reads {', '.join(known)}"
        path = pod.at("metadata", "annotations", key)
        yield Finding(path, f"Slicewarden does not read this annotation; {meant}", advice=True)
