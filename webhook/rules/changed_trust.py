"""A pod's trust annotation is added, changed or removed after the pod was created.

A pod's pool, its steering and its memory caps follow from the trust it was created with, and none of them can be
changed once it runs: raised, the annotation would say what nobody judged, and lowered, it would leave an untrusted
pod on a card that trusted ones share. So it stays as it is, for everyone, through whichever subresource it is
written. Workloads may change it in their templates: that makes new pods.

Way out: delete the pod, and create it with the annotation it is to have.
"""

from collections.abc import Iterator

from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.text.words import shown


def check(review: PodReview) -> Iterator[Finding]:
    """Flag a trust annotation that is not what it was."""
    pod, key = review.subject, review.policy.annotation
    if pod.template or pod.old is None:
        return
    before, now = pod.old.annotations.get(key), pod.annotations.get(key)
    if before != now:
        yield Finding(
            pod.at("metadata", "annotations", key),
            f"was {_said(before)} and is {_said(now)} now, which changes nothing about where the pod runs; leave it as "
            "it was, or create the pod anew",
        )


def _said(value: object) -> str:
    return "absent" if value is None else shown(value)
