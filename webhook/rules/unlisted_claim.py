"""A pod claims devices that its own object does not show.

A claim (dynamic resource allocation) may be for a whole GPU, for all of them or for a network card: its contents are in
another object, which may be replaced before the pod runs. So the policy lists who may claim devices at all.

Where pools list device classes, claims for them are judged where they are written (`claimed-gpu`), and pods may use the
claims of their namespace. Three conditions remain for the pod. It must name the claim or a template of its namespace:
other sources, which a later Kubernetes may add, are not read. Its account must have every trust that claims of the
namespace may have. And `gpus.claims` must not cover the namespace for other accounts, since their claims may be for any
device. A device class that is asked for as an extended resource, `deviceclass.resource.kubernetes.io/...`, is a request
like any other, and a pool may offer it. A claim or a template that is among the facts, as in one run of `slicewarden
check`, is read: if it is for other devices than GPUs, the rule warns, and its pod is judged as one without a GPU.

Way out: ask for GPUs by a resource that a pool offers; for other devices have an administrator list the namespace
under `gpus.claims` in the policy.
"""

from collections.abc import Iterator

from webhook.api.devices import source
from webhook.api.fields import entries, section, text
from webhook.api.pods import Pod
from webhook.cel.clauses import Clause
from webhook.cel.policies import CLAIMS, covers
from webhook.cel.write import any_of
from webhook.facts.snapshot import Facts
from webhook.gpu import claims
from webhook.gpu.claims import ClaimContents, ClaimEntry
from webhook.gpu.device_classes import sort_of
from webhook.gpu.exposure import WHERE_EXPOSED
from webhook.gpu.placement import foreign_vendor
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.text.words import listed, shown

SINCE = "0.1"

LOOKS_AT = ("claim",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag claims of pods that the policy does not let claim devices.

    Only warn if the claim is known to contain no GPU.
    """
    pod, policy = review.subject, review.policy
    places = list(_claims(review))
    if not places or not pod.namespace:  # of a cluster-scoped object: its pods are judged where they are created
        return
    covered = claims.free(pod, policy, review.facts)
    if covered and (review.exposed or not _reaches_out(review)):
        return
    judged = _judged_elsewhere(pod, policy, review.facts)
    messages: dict[tuple[ClaimContents | None, bool], str] = {}  # thousands of entries may name one claim
    for path, claim, contents in places:
        # A template of the cluster (KEP-5978), for example, is not sent here, and so not judged when it is written.
        case = contents, judged and source(claim) is not None
        if case not in messages:
            review.allowance.look()
            messages[case] = _message(review, contents, covered=covered, judged=judged, passes=case[1])
        if message := messages[case]:
            yield Finding(path, message, advice=contents is not None and contents.others)


def _message(review: PodReview, contents: ClaimContents | None, *, covered: bool, judged: bool, passes: bool) -> str:
    """Say what is wrong with a claim; empty if nothing is. If it `passes`, claims for devices of pools are allowed."""
    policy, namespace = review.policy, shown(review.subject.namespace)
    classes = contents.classes if contents else ()
    named = listed([shown(name, quotes=False) for name in classes], 3)
    if contents is not None and contents.others:
        unknown, way = (
            ("judges the pod as one with a GPU", "exempt its account")
            if covered or passes
            else ("denies the pod", "ask an administrator to list the namespace under gpus.claims")
        )
        return (
            f"the claim is for {named}, which is no GPU; a webhook that does not know the claim {unknown}; create the "
            f"claim or its template before the pod, or {way}"
        )
    if covered or (passes and _of_pools(classes, policy, review.facts)):
        return ""
    what = f"the claim is for {named}, and pods" if classes else "pods"
    return (
        f"{what} in namespace {namespace} may not use ResourceClaims ({_why(policy, judged)}); {_way(classes, policy)}"
    )


def _way(classes: tuple[str, ...], policy: Policy) -> str:
    """Say what to do instead of a claim. NVIDIA's GPU is no substitute for another maker's."""
    if any(foreign_vendor(name, policy) for name in classes):
        return "ask an administrator to list the namespace under gpus.claims"
    return "for a GPU, request nvidia.com/gpu; for another device, ask an administrator to list the namespace"


def _judged_elsewhere(pod: Pod, policy: Policy, facts: Facts) -> bool:
    """Whether, for this pod, all claims of its namespace are judged when they are written."""
    labels = facts.namespaces.get(pod.namespace)
    if not policy.has_device_pools:
        return False
    if any(scope.reaches(pod.namespace, labels) for scope in policy.forms.claims):
        return False
    return claims.account_may(pod, policy, facts)


def _of_pools(classes: tuple[str, ...], policy: Policy, facts: Facts) -> bool:
    """Whether every known class of a claim belongs to a pool or to no GPU. True if no class is known."""
    return all(policy.pools_of_class(name) or sort_of(name, policy, facts).without_gpu for name in classes)


def _why(policy: Policy, judged: bool) -> str:
    if judged or not policy.has_device_pools:
        return "gpus.claims does not list them"
    return "claims there may have trust, or devices, that their service account may not"


def _reaches_out(review: PodReview) -> bool:
    """Whether a pod has something that is refused in pods that may see a GPU."""
    spec = review.subject.spec
    chosen = any(spec.get(key) for key in ("hostPID", "hostIPC", "nodeName"))
    return chosen or not WHERE_EXPOSED.isdisjoint(review.exposure.ways)


def _claims(review: PodReview) -> Iterator[ClaimEntry]:
    """The pod's claims, and claims that only its containers name: their source is unknown."""
    known = set()
    for each in review.claim_entries:
        known.add(text(each.entry, "name", each.path))
        yield each
    for container in review.subject.containers:
        resources = section(container.spec, "resources", container.path)
        if resources.get("claims") is None:
            continue
        place = (*container.path, "resources")
        for index, claim in entries(resources, "claims", place):
            if text(claim, "name", (*place, "claims", index)) not in known:
                yield ClaimEntry((*place, "claims", index), {}, None)


def fallback(policy: Policy) -> Iterator[Clause]:
    """Weaker: the fallback applies only if no pool has device classes.

    It reads no claims, so it also denies a pod for a claim that the webhook knows to be for other devices.
    """
    if policy.has_device_pools:
        return  # what a claim may hold is judged where it is written, and for which account with facts
    some = f"{CLAIMS} || variables.containers.exists(c, size(c.?resources.?claims.orValue([])) > 0)"
    yield Clause(
        f"!({some}) || {any_of(map(covers, policy.forms.claims))}",
        "gpus.claims does not list the pod's namespace, so it may not use ResourceClaims; for a GPU, request a "
        "resource that a pool offers; for another device, ask an administrator to list the namespace",
        "'spec.resourceClaims'",
    )
