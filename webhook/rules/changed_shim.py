"""The text of the memory shim in a pod is changed after the pod was created.

The annotation `slicewarden.dev/memory-shim-code` holds a Python file that runs in the pod's containers, and a container
that restarts reads it again. A user who may write only annotations, or only a pod's status, could run their own code
there, or take the memory cap away. So nobody may change the text, through any subresource.

Way out: leave the annotation unchanged. To use another text, delete the pod and create it again.
"""

from collections.abc import Iterator

from webhook.cel.clauses import CHANGES, Clause
from webhook.cel.write import text
from webhook.gpu.review import PodReview
from webhook.memory.shim.delivery import CODE
from webhook.model import Finding
from webhook.policy.model import Policy

SINCE = "0.1"

LOOKS_AT = ("old",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag a changed text."""
    pod = review.subject
    if pod.template or pod.old is None or pod.annotations.get(CODE) == pod.old.annotations.get(CODE):
        return
    path = pod.at("metadata", "annotations", CODE)
    yield Finding(path, "the memory shim of a pod does not change while the pod lives; leave the annotation as it was")


def fallback(_: Policy) -> Iterator[Clause]:
    """Exact: the fallback gives the same verdict as the webhook."""
    key = text(CODE)
    yield Clause(
        f"object.metadata.?annotations[?{key}] == oldObject.metadata.?annotations[?{key}]",
        f"the memory shim of a pod does not change while the pod lives; leave annotation {CODE} as it was",
        asked=CHANGES,
    )
