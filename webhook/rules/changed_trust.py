"""A pod's trust annotation is added, changed or removed after the pod was created.

A pod's pool, its node selection and its memory caps follow from the trust it was created with, and cannot change while
it runs. A raised level would claim what was never judged. A lowered level would leave an untrusted pod on a GPU that
trusted pods share. So no user may change the annotation, through any subresource. Workloads may change it in
their templates, because that makes new pods.

Way out: delete the pod, and create it again with the other annotation.
"""

from collections.abc import Iterator

from webhook.cel.clauses import CHANGES, Clause
from webhook.cel.write import text
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("old",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag a changed trust annotation."""
    pod, key = review.subject, review.policy.annotation
    if pod.template or pod.old is None:
        return
    before, now = pod.old.annotations.get(key), pod.annotations.get(key)
    if before != now:
        yield Finding(
            pod.at("metadata", "annotations", key),
            f"trust changed from {_said(before)} to {_said(now)}, but a pod stays in the pool it was created for; "
            "change it back, or delete the pod and create it again",
        )


def _said(value: object) -> str:
    return "absent" if value is None else shown(value)


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact: the fallback gives the same verdict as the webhook."""
    key = text(policy.annotation)
    yield Clause(
        f"object.metadata.?annotations[?{key}] == oldObject.metadata.?annotations[?{key}]",
        f"a pod stays in the pool it was created for, so annotation {policy.annotation} does not change; change it "
        "back, or delete the pod and create it again",
        asked=CHANGES,
    )
