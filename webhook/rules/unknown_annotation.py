"""A pod that asks for a GPU carries an annotation under `slicewarden.dev/` that nobody reads.

A misspelt `slicewarden.dev/trsut` asks for no trust, and `slicewarden.dev/gpu-memroy` leaves the pod all of its slice,
and neither shows. The message says which was likely meant. It only warns: what nobody reads opens nothing, and a newer
Slicewarden may read more. Where the policy reads trust from an annotation of its own, `slicewarden.dev/trust` is
unknown too.

Way out: correct the name, or remove the annotation.
"""

from collections.abc import Iterator

from webhook.gpu.review import PodReview
from webhook.memory.annotation import KEY
from webhook.memory.budget import MEMORY, PROCESSES
from webhook.memory.frameworks.pytorch import TORCH_VERSION
from webhook.model import Finding

PREFIX = "slicewarden.dev/"
SAID = (MEMORY, PROCESSES, TORCH_VERSION)
"""What pods may say, beside their trust."""
MOST = 10
"""How many are told of: a pod may have thousands, and a guess at each takes its time."""


def check(review: PodReview) -> Iterator[Finding]:
    """Flag annotations under the prefix that are none of those read or written here."""
    pod = review.subject
    known = (review.policy.annotation, *SAID)
    strange = [key for key in pod.annotations if key.startswith(PREFIX) and key not in known and key != KEY]
    if not strange or not review.requests:
        return
    ends = {key.rpartition("/")[2]: key for key in known}
    for key in strange[:MOST]:
        near = review.allowance.guesses.nearest(key.removeprefix(PREFIX), ends)
        meant = f"did you mean {ends[near]}?" if near else f"known are {', '.join(known)}"
        path = pod.at("metadata", "annotations", key)
        yield Finding(path, f"is an annotation that nobody reads; {meant}", advice=True)
