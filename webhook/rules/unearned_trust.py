"""A pod asks for trust that its namespace and service account were not granted.

A trusted pod shares cards with others, and can take all of a card's memory or hang it for everyone on it.
So the pod's annotation only asks; the policy's grants, which tenants cannot write, decide. Without the
annotation a pod has the policy's default.

A grant is read off the namespace and the pod's service account. One that names users or groups is narrower: it
hears only them, be it for a workload or for a bare pod, and the controllers that make pods of the workload. Any
other account that makes pods, a tenant's own or an operator's, has to be named too. Nobody else gives a trusted pod
another image, or a debug container: that is another program in its place. Nobody else writes a ControllerRevision where
such a grant may hold: a StatefulSet's controller makes pods of the one that `status.currentRevision` names, whoever
wrote it (kubernetes pkg/controller/statefulset/stateful_set_control.go).

Way out: have an administrator grant trust to the namespace, or remove the annotation.
"""

from collections.abc import Iterator

from webhook.api.objects import Revision
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import TRUSTED, UNTRUSTED
from webhook.review import Review
from webhook.text.words import shown


def check(review: PodReview | Review[Revision]) -> Iterator[Finding]:
    """Flag a trust annotation that is no trust level, or that no grant covers, and revisions that may bring one."""
    yield from _of_pod(review) if isinstance(review, PodReview) else _of_revision(review)


def _of_pod(review: PodReview) -> Iterator[Finding]:
    pod, policy = review.subject, review.policy
    if pod.annotations.get(policy.annotation) is None:
        return
    claim = review.claim
    path = pod.at("metadata", "annotations", policy.annotation)
    runs_another = pod.exchanged and not pod.template
    if claim.asked not in (TRUSTED, UNTRUSTED):
        yield Finding(path, f"{shown(claim.asked)} is no trust level; use {TRUSTED} or {UNTRUSTED}, or remove it")
    elif claim.asked == TRUSTED and claim.withheld and pod.requester is not None:
        way = "have one of them ask, have an administrator grant it to you, or remove the annotation"
        if runs_another:
            way = "leave its images as they are and add no debug container, or have one of them do it"
        yield Finding(
            path,
            f"policy {policy.name} lets service account {shown(pod.service_account)} of namespace "
            f"{shown(pod.namespace)} be trusted only where others ask for it than {shown(pod.requester.username)}; "
            + way,
        )
    elif claim.asked == TRUSTED and not claim.pools:
        unknown = (
            ""
            if pod.namespace in review.facts.namespaces
            else ", of which the labels are not known here (a check needs the Namespace among its facts),"
        )
        yield Finding(
            path,
            f"no grant of policy {policy.name} lets service account {shown(pod.service_account)} of namespace "
            f"{shown(pod.namespace)}{unknown} be trusted; ask an administrator for one, or remove the annotation",
            parts=("runs another image",) if runs_another else (),  # of which nothing old is an excuse
        )


def _of_revision(review: Review[Revision]) -> Iterator[Finding]:
    """A revision is merged into its workload, so that one without the annotation may run in a trusted pod too."""
    revision, policy = review.subject, review.policy
    requester, old = revision.requester, revision.old
    if requester is None or policy.controllers.include(requester) or (old is not None and old.data == revision.data):
        return
    labels = review.facts.namespaces.get(revision.namespace)
    narrow = [each.requesters for each in policy.grants if each.scope.reaches(revision.namespace, labels)]
    if any(each is not None and not each.include(requester) for each in narrow):
        yield Finding(
            ("data",),
            f"may bring trusted pods, and policy {policy.name} lets only others than {shown(requester.username)} ask "
            f"for those in namespace {shown(revision.namespace)}; leave revisions to the controllers of workloads, or "
            "have one of them write it",
        )
