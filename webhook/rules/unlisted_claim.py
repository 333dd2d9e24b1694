"""A pod claims devices of which nothing is seen here.

A claim (dynamic resource allocation) may be for a whole GPU, for all of them or for a network card: what it holds is
in another object, which may be exchanged before the pod runs, and a GPU by a claim is in no pool and is counted
nowhere. So the policy lists who may claim devices at all. A device class that is asked for as an extended resource,
`deviceclass.resource.kubernetes.io/...`, is a request as any other, and a pool may offer it. A claim or a template that
is among the facts, as in one run of `slicewarden check`, is read: one for other devices than GPUs warns.

Way out: ask for GPUs by a resource that a pool offers; for other devices have an administrator list the namespace
under `gpus.claims` in the policy.
"""

from collections.abc import Iterator

from webhook.api.fields import entries, section, text
from webhook.api.pods import Pod
from webhook.facts.snapshot import Facts
from webhook.gpu.device_classes import Class, sort_of
from webhook.gpu.review import PodReview
from webhook.model import Finding, Object, Path
from webhook.text.words import listed, shown

SINCE = "0.1"


def check(review: PodReview) -> Iterator[Finding]:
    """Flag claims of pods that the policy does not let claim devices. One that is known to hold no GPU only warns."""
    pod, policy = review.subject, review.policy
    places = list(_claims(pod))
    if not places or not pod.namespace:  # of a cluster-scoped object: its pods are judged where they are created
        return
    labels = review.facts.namespaces.get(pod.namespace)
    if any(scope.covers(pod.namespace, labels, pod.service_account) for scope in policy.forms.claims):
        return
    for path, claim in places:
        classes = _classes(claim, pod.namespace, review.facts)
        named = listed([shown(name, quotes=False) for name in classes or ()], 3)
        if classes and all(sort_of(name, policy, review.facts) is Class.OTHER for name in classes):
            yield Finding(
                path,
                f"the claim is for {named}, which is no GPU; the webhook does not see claims, and denies the pod until "
                "an administrator lists the namespace under gpus.claims",
                advice=True,
            )
        else:
            what = f"the claim is for {named}, and pods" if classes else "pods"
            yield Finding(
                path,
                f"{what} in namespace {shown(pod.namespace)} may not use ResourceClaims (gpus.claims does not list "
                "them); for a GPU, request nvidia.com/gpu; for another device, ask an administrator to list the "
                "namespace",
            )


def _classes(claim: Object | None, namespace: str, facts: Facts) -> tuple[str, ...] | None:
    """Return the classes that a pod's claim requests; None if the claim is not among the facts."""
    for kind, key in (("ResourceClaim", "resourceClaimName"), ("ResourceClaimTemplate", "resourceClaimTemplateName")):
        name = claim.get(key) if claim is not None else None
        if isinstance(name, str):
            return facts.claimed.get((kind, namespace, name))
    return None


def _claims(pod: Pod) -> Iterator[tuple[Path, Object | None]]:
    """The pod's claims, and those of containers for which it has none: of a source that is not known here."""
    at, known = pod.at("spec"), set()
    for index, claim in entries(pod.spec, "resourceClaims", at):
        known.add(text(claim, "name", (*at, "resourceClaims", index)))
        yield (*at, "resourceClaims", index), claim
    for container in pod.containers:
        resources = section(container.spec, "resources", container.path)
        if resources.get("claims") is None:
            continue
        place = (*container.path, "resources")
        for index, claim in entries(resources, "claims", place):
            if text(claim, "name", (*place, "claims", index)) not in known:
                yield (*place, "claims", index), None
