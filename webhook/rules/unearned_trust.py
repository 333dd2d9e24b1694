"""A pod asks for trust that its namespace and service account were not granted.

Trusted pods share GPUs, and each of them can take all memory of a GPU or hang it for the others. So the pod's
annotation only asks. The policy's grants decide, and tenants cannot write those. Without the annotation a pod has the
policy's default trust.

A grant is for a namespace, and for service accounts if it names some. A grant that names users or groups is narrower:
it applies only if one of them creates the workload or the bare pod, or if a controller of Kubernetes makes the pod of a
workload. Any other account that makes pods, a tenant's own or an operator's, has to be named too. Other users may not
give a trusted pod another image or a debug container, which would be another program in its place. Other users may not
write a ControllerRevision either: a StatefulSet's controller makes pods of the revision that `status.currentRevision`
names, whoever wrote it (kubernetes pkg/controller/statefulset/stateful_set_control.go).

A grant with `rbac` counts where the pod's service account may `use` `trustlevels/trusted` of the API group
`slicewarden.dev` in its namespace. The API server is asked for that, and a pod is refused while it does not answer. The
question is about the account and not the user: most pods come from a controller, which may do everything. A user who
may create pods in a namespace may run them as any account there.

A claim for devices of a pool, or a template's claims, ask for trust by the same annotation, and the grants of its
namespace bound it. No account runs a claim, so with `rbac` all accounts of the namespace have to hold the right.

Way out: ask an administrator to grant trust to the namespace, or, where a grant has `rbac`, to bind the ClusterRole
`slicewarden-trusted` to the service account. Or remove the annotation.
"""

from collections.abc import Iterator
from dataclasses import replace

from webhook.api.devices import DeviceClaim
from webhook.api.objects import Revision
from webhook.cel.clauses import Clause
from webhook.cel.write import text
from webhook.facts.rights import ANYONE, RIGHT, Account, command
from webhook.gpu import claims
from webhook.gpu.placement import trust_request
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy
from webhook.review import Review
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("trust",)


def check(review: PodReview | Review[Revision | DeviceClaim]) -> Iterator[Finding]:
    """Flag a trust annotation that is no trust level, or that no grant covers, and revisions that may bring one."""
    if isinstance(review, PodReview):
        yield from _of_pod(review)
    elif isinstance(review.subject, DeviceClaim):
        yield from _of_claim(review, review.subject)
    else:
        yield from _of_revision(review, review.subject)


def _of_claim(review: Review[Revision | DeviceClaim], claim: DeviceClaim) -> Iterator[Finding]:
    """A claim has no service account: which account uses it is judged with the pod."""
    policy = review.policy
    asked = claim.annotations.get(policy.annotation)
    if asked is None or not claim.namespace:
        return
    path, claimed = (*claim.metadata_path, "annotations", policy.annotation), claims.trust(claim, policy, review.facts)
    if asked not in (TRUSTED, UNTRUSTED):
        yield Finding(path, f"{shown(asked)} is not a trust level; write {TRUSTED} or {UNTRUSTED}")
    elif asked == TRUSTED and not claimed.pools:
        who = f"user {shown(claim.requester.username)}" if claimed.withheld and claim.requester else "claims"
        yield Finding(
            path,
            f"policy {policy.name} lets {who} in namespace {shown(claim.namespace)} ask for no trust; remove the "
            f"annotation, or ask an administrator for a grant{_bound(review, claim.namespace)}",
        )


def _of_pod(review: PodReview) -> Iterator[Finding]:
    pod, policy = review.subject, review.policy
    if pod.annotations.get(policy.annotation) is None:
        yield from _by_parameter(review)
        return
    claim = review.trust_request
    path = pod.at("metadata", "annotations", policy.annotation)
    runs_another = pod.exchanged and not pod.template
    if claim.asked not in (TRUSTED, UNTRUSTED):
        yield Finding(path, f"{shown(claim.asked)} is not a trust level; write {TRUSTED} or {UNTRUSTED}")
    elif claim.asked == TRUSTED and claim.withheld and pod.requester is not None:
        what, way = "ask for trust", "remove the annotation"
        if runs_another:
            what, way = "change what trusted pods run", "leave images and containers as they are"
        yield Finding(
            path,
            f"user {shown(pod.requester.username)} may not {what} in namespace {shown(pod.namespace)}: the grant of "
            f"policy {policy.name} is for other users; {way}, or ask one of them",
        )
    elif claim.asked == TRUSTED and not claim.pools:
        unknown = (
            ""
            if pod.namespace in review.facts.namespaces
            else " (the labels of the namespace are not known: add the Namespace to the facts)"
        )
        yield Finding(
            path,
            f"policy {policy.name} grants no trust to service account {shown(pod.service_account)} of namespace "
            f"{shown(pod.namespace)}{unknown}; remove the annotation, or ask an administrator for a grant"
            f"{_bound(review, pod.namespace, pod.service_account)}",
            parts=("runs another image",) if runs_another else (),  # no finding of the old object excuses it
        )


def _by_parameter(review: PodReview) -> Iterator[Finding]:
    """Flag the name of an annotation that a parameter may make the trust annotation's, unless its author may ask."""
    pod, policy = review.subject, review.policy
    name = pod.parameter_name
    if not name or pod.requester is None:
        return
    asking = replace(pod, annotations={**pod.annotations, policy.annotation: TRUSTED})
    if trust_request(asking, policy, review.facts).withheld:
        yield Finding(
            pod.at("metadata", "annotations", name),
            f"user {shown(pod.requester.username)} may not ask for trust in namespace {shown(pod.namespace)}, and this "
            f"name may become {policy.annotation}; write the name without a parameter, or ask a user whom the grant of "
            f"policy {policy.name} names",
        )


def _bound(review: PodReview | Review[Revision | DeviceClaim], namespace: str, account: str = "") -> str:
    """Say how RBAC could give the right of trust, or why that is unknown; empty if no grant there uses RBAC."""
    policy, labels = review.policy, review.facts.namespaces.get(namespace)
    scopes = [grant.scope for grant in policy.grants_reaching(namespace, labels) if grant.rbac]
    if not any(not account or each.covers(namespace, labels, account) for each in scopes):
        return ""
    who = f"the service account {shown(account)}" if account else "the service accounts of the namespace"
    if review.facts.trusts(namespace, account) is None:
        return f" (whether {who} may {RIGHT} is not known: {review.facts.rights.unknown})"
    return f", or to let {who} {RIGHT}: {command(Account(namespace, account))}"


def _of_revision(review: Review[Revision | DeviceClaim], revision: Revision) -> Iterator[Finding]:
    """A revision is merged into its workload, so even one without the annotation may run in a trusted pod."""
    policy, requester, old = review.policy, revision.requester, revision.old
    if requester is None or policy.controllers.include(requester) or (old is not None and old.data == revision.data):
        return
    labels = review.facts.namespaces.get(revision.namespace)
    narrow = [each.requesters for each in policy.grants_reaching(revision.namespace, labels)]
    if any(each is not None and not each.include(requester) for each in narrow):
        yield Finding(
            ("data",),
            f"user {shown(requester.username)} may not write revisions in namespace {shown(revision.namespace)}: they "
            f"may bring trusted pods, and the grant of policy {policy.name} is for other users; leave them to "
            "controllers",
        )


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact for new pods. Updates that change what trusted pods run, revisions and claims pass.

    Workloads pass too, and the pods that controllers make of them: a grant that names users needs the webhook.
    """
    bound = f", or for the right: {command(ANYONE)}" if policy.asks_rbac else ""
    yield Clause(
        f"!({text(policy.annotation)} in variables.annotations) || variables.wanted == '{UNTRUSTED}'"
        f" || (variables.wanted == '{TRUSTED}' && size(variables.granted) > 0)",
        f"policy {policy.name} grants the pod no such trust; remove annotation {policy.annotation}, or ask an "
        f"administrator for a grant{bound}",
        places="'service account ' + variables.account + ' of namespace ' + variables.space",
    )
