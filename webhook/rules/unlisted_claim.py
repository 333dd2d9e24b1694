"""A pod claims devices of which nothing is seen here.

A claim (dynamic resource allocation) may be for a whole GPU, for all of them or for a network card: what it holds is
in another object, which may be exchanged before the pod runs, and a GPU by a claim is in no pool and is counted
nowhere. So the policy lists who may claim devices at all. A device class that is asked for as an extended resource,
`deviceclass.resource.kubernetes.io/...`, is a request as any other, and a pool may offer it.

Way out: ask for GPUs by a resource that a pool offers; for other devices have an administrator list the namespace
under `gpus.claims` in the policy.
"""

from collections.abc import Iterator

from webhook.api.fields import entries, section, text
from webhook.api.pods import Pod
from webhook.gpu.review import PodReview
from webhook.model import Finding, Path


def check(review: PodReview) -> Iterator[Finding]:
    """Flag claims of pods that the policy does not let claim devices."""
    pod, policy = review.subject, review.policy
    places = list(_claims(pod))
    if not places:
        return
    labels = review.facts.namespaces.get(pod.namespace)
    if any(scope.covers(pod.namespace, labels, pod.service_account) for scope in policy.forms.claims):
        return
    for path in places:
        yield Finding(
            path,
            f"what it claims is not seen here, and policy {policy.name} lets no such pod claim devices; ask for GPUs "
            "by a resource that a pool offers; for other devices have an administrator list the namespace under "
            "gpus.claims in the policy",
        )


def _claims(pod: Pod) -> Iterator[Path]:
    """The pod's claims, and those of containers for which it has none: of a source that is not known here."""
    at, known = pod.at("spec"), set()
    for index, claim in entries(pod.spec, "resourceClaims", at):
        known.add(text(claim, "name", (*at, "resourceClaims", index)))
        yield (*at, "resourceClaims", index)
    for container in pod.containers:
        resources = section(container.spec, "resources", container.path)
        if resources.get("claims") is None:
            continue
        place = (*container.path, "resources")
        for index, claim in entries(resources, "claims", place):
            if text(claim, "name", (*place, "claims", index)) not in known:
                yield (*place, "claims", index)
