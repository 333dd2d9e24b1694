"""A workload patches its pods with a text that cannot be read before its placeholders are filled in.

An Argo workflow may contain changes to its pods (`podSpecPatch`) and whole objects (`resource.manifest`) as texts with
placeholders, which are YAML only after Argo has filled them in. Spark's configuration may name a file with a template
of its pods. Such pods cannot be judged before they are created. Then the webhook judges them like all others. The rule
ignores a text that is only one parameter, because it cannot be written in a way that could be read.

Way out: write the text so that it is YAML or JSON before it is filled in: put placeholders in quotes.
Write a template of Spark's pods into the object.
"""

from collections.abc import Iterator

from webhook.api.templates import FILE, PARAMETER
from webhook.gpu.review import PodReview
from webhook.model import Finding

SINCE = "0.1"

LOOKS_AT = ("unread",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag a text that cannot be judged. The finding is never more than a warning."""
    pod = review.subject
    if pod.unread and pod.unread != PARAMETER:
        what, way = "text", "put placeholders in quotes"
        if pod.unread.startswith(FILE):
            what, way = "template", "write it into the object"
        yield Finding(
            pod.spec_path,
            f"the {what} is not judged here, because it cannot be read ({pod.unread}); its pods are judged when they "
            f"are created; {way}",
            advice=True,
            parts=("unread",),
        )
