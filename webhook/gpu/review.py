"""The review of a pod, with values that several rules need."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from webhook.allowance import watched
from webhook.api.objects import unpaid
from webhook.api.pods import Pod
from webhook.facts.snapshot import Facts
from webhook.gpu import claims, exposure, guard, placement, requests
from webhook.gpu.claims import ClaimEntry, ClaimUse
from webhook.gpu.exposure import Exposure, Way
from webhook.gpu.placement import Placement, TrustRequest
from webhook.gpu.requests import GPURequest, ResourceEntry
from webhook.gpu.selection import taken
from webhook.model import Object, Path, Request
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy
from webhook.review import Review, shared
from webhook.text.words import shown

Trait = (
    Way
    | Literal["gpu", "exposed", "mark", "extended resource", "claim", "trust", "node name", "host namespace", "spread"]
    | Literal["old", "daemon", "unread", "job set", "runtime class"]
)
"""A property that few pods have, such as a way to a GPU, a field that they set, or their type."""

JOB_SET = "JobSet"
"""The kind for whose pods its controller may write anti-affinity."""

MIRRORED = "; add it to the file that the kubelet runs the pod from, because a mirror pod is never patched"
"""The way out for a mirror pod that lacks what `/mutate` writes into others."""


class PodReview(Review[Pod]):
    """The review of a pod, or of a workload's template of one. A property raises Malformed for a wrong shape."""

    @shared
    def traits(self) -> frozenset[str]:
        """The traits of the pod. A rule with `LOOKS_AT` runs only if the pod has one of the traits listed there."""
        pod, spec = self.subject, self.subject.spec
        found: list[Trait] = [*self.exposure.ways]
        if self.extended_resources:
            found.append("extended resource")
        if self.asks:
            found.append("gpu")
        if self.names_claims:
            found.append("claim")
        if self.policy.annotation in pod.annotations or pod.parameter_name:
            found.append("trust")
        if pod.old is not None:
            found.append("old")
        if "nodeName" in spec:
            found.append("node name")
        if "hostPID" in spec or "hostIPC" in spec:
            found.append("host namespace")
        if "topologySpreadConstraints" in spec or "affinity" in spec:
            found.append("spread")
        if "runtimeClassName" in spec:
            found.append("runtime class")
        if pod.kind == JOB_SET:
            found.append("job set")
        if pod.daemon:
            found.append("daemon")
        if pod.unread:
            found.append("unread")
        if self.marks:
            found.append("mark")
        if self.exposed:
            found.append("exposed")
        return frozenset(found)

    @shared
    def extended_resources(self) -> tuple[ResourceEntry, ...]:
        """Every extended resource that the pod's containers name, whether it is a GPU or not."""
        return requests.extended(self.subject)

    @shared
    def requests(self) -> tuple[GPURequest, ...]:
        """Every request for a GPU in any of the pod's containers."""
        return tuple(requests.of(self.extended_resources, self.policy))

    @shared
    def marks(self) -> tuple[Path, ...]:
        """The places of the annotations and labels that request a GPU from another scheduler."""
        return tuple(requests.marked(self.subject, self.policy))

    @shared
    def names_claims(self) -> bool:
        """Whether the pod, or one of its containers, names a claim."""
        pod = self.subject
        return "resourceClaims" in pod.spec or any("claims" in (c.spec.get("resources") or ()) for c in pod.containers)

    @shared
    def claim_entries(self) -> tuple[ClaimEntry, ...]:
        """The pod's entries for claims. Raises TooLarge and TooLate."""
        found = claims.claim_entries(self.subject, self.policy, self.facts, self.allowance)
        return watched(found, self.allowance)

    @shared
    def claims(self) -> tuple[ClaimUse, ...]:
        """The pod's known claims for devices of pools; none if the policy lets the pod claim any device."""
        pod = self.subject
        if not pod.spec.get("resourceClaims") or not pod.namespace or claims.free(pod, self.policy, self.facts):
            return ()
        return tuple(claims.uses(pod, self.claim_entries))

    @shared
    def asks(self) -> tuple[Path, ...]:
        """The paths of all that asks for a GPU in the pod: first its resource requests, then its claims."""
        return (*[request.path for request in self.requests], *[use.path for use in self.claims])

    @shared
    def gpu_containers(self) -> frozenset[Path]:
        """The paths of the containers that request a GPU as a resource."""
        return frozenset(request.container.path for request in self.requests)

    @shared
    def sharing_containers(self) -> frozenset[Path]:
        """The paths of the containers that get a GPU, by a request or by a claim."""
        return self.gpu_containers.union(claims.containers_of(self.claims))

    @shared
    def trust_request(self) -> TrustRequest:
        """The trust that the pod requests, and the pools in which it is granted."""
        return placement.trust_request(self.subject, self.policy, self.facts)

    @shared
    def placement(self) -> Placement | None:
        """The pool that the pod belongs to; None for a pod that requests no GPU."""
        if not self.asks:
            return None
        asked = dict(requests.totals(self.requests))
        for name, number in claims.totals(self.claims).items():
            asked[name] = asked.get(name, 0) + number
        return placement.place(self.subject, self.policy, self.facts, asked, self.trust_request) if asked else None

    @property
    def pool_name(self) -> str:
        """The name of the pool that the pod belongs to; empty if it belongs to none."""
        return self.placement.pool.name if self.placement and self.placement.pool else ""

    @shared
    def exposure(self) -> Exposure:
        """Every way to a GPU that the pod opens."""
        return exposure.of(self.subject)

    @shared
    def exposed(self) -> bool:
        """Whether the pod may see a GPU: it requests or names one, or nothing keeps it off the nodes with GPUs."""
        return self.exposed_itself or (
            "resourceClaims" in self.subject.spec and not all(each.others for each in self.claim_entries)
        )

    @shared
    def exposed_itself(self) -> bool:
        """Whether the pod may see a GPU by its own object, whatever its claims hold: their author can replace them."""
        return (
            bool(self.requests)
            or guard.names_runtime(self.subject, self.policy)
            or bool(self.exposure.variables)
            or not self.kept_off
        )

    @shared
    def kept_off(self) -> bool:
        """Whether the pod's own node, or the guard's taint, keeps the pod off the nodes with GPUs."""
        return guard.kept_off(self.subject, self.extended_resources, self.policy, self.facts)

    @property
    def roams(self) -> bool:
        """Whether the pod gets past the taint of the guard to nodes with GPUs, and is no part of the system.

        Without a taint as guard any pod may run on these nodes, so nothing follows from it.
        """
        guard = self.policy.guard
        if guard is None or guard.taint is None or self.kept_off or self.subject.kubelets_own:
            return False
        return not any(exemption.until is None for exemption in self.exemptions)

    @shared
    def agents_way(self) -> str:
        """The sentence that tells the author of a DaemonSet how to get an exemption; empty for other objects.

        Most pods of DaemonSets are agents of their nodes, which an administrator may exempt.
        """
        pod = self.subject
        if not pod.daemon or not pod.namespace:
            return ""
        account = shown(f"{pod.namespace}/{pod.service_account}", quotes=False)
        return f"; an agent of the nodes needs an exemption for its account {account}"

    @property
    def trust_would_do(self) -> bool:
        """Whether a pool would take the pod if it asked for the trust that it was granted."""
        pod = self.subject
        trusting = replace(pod, annotations={**pod.annotations, self.policy.annotation: TRUSTED})
        place = PodReview(trusting, self.policy, self.facts, self.allowance).placement
        if place is None or place.pool is None or place.clash is not None or place.level != TRUSTED:
            return False
        most = 1 if place.pool.shared else place.pool.max_request
        return most is None or place.count <= most

    @shared
    def request_way(self) -> str:
        """The advice to request GPUs in `resources.limits`, for messages.

        It also says if the pod's pool has no free GPU.
        """
        pod, policy, facts, trust = self.subject, self.policy, self.facts, self.trust_request
        name = next((name for name in placement.offers(pod, policy, facts, trust) if not name.endswith("*")), "")
        pool = placement.place(pod, policy, facts, {name: 1}, trust).pool if name else None
        full = taken(pool, facts) if pool else ""
        return f"request GPUs in resources.limits{f' ({full})' if full else ''}"

    @property
    def whole_gpu_way(self) -> str:
        """The advice on how a pod of a shared pool gets a whole GPU; empty if no pool would give it one."""
        pod, key = self.subject, self.policy.annotation
        plain = {name: value for name, value in pod.annotations.items() if name != key}
        for way, annotations in (
            (f"remove the annotation {key}", plain),
            (f"set the annotation {key}: {UNTRUSTED}", {**plain, key: UNTRUSTED}),
        ):
            untrusted = replace(pod, annotations=annotations)
            place = PodReview(untrusted, self.policy, self.facts, self.allowance).placement
            if place is None or place.pool is None or place.clash is not None or place.pool.sharing != "none":
                continue
            if place.pool.max_request is None or place.count <= place.pool.max_request:
                return way
        return ""


def pods_of(
    request: Request, item: Object, policy: Policy, facts: Facts, old: Object | None = None
) -> Iterator[PodReview]:
    """Yield a review for each pod of an object, for uses other than judging: no units are paid. Raises Malformed."""
    views = unpaid(request, item, old, policy.workloads)
    return (PodReview(view, policy, facts) for view in views if isinstance(view, Pod))


def placements_for(request: Request, policy: Policy, facts: Facts) -> Iterator[Placement]:
    """Yield the placement of each pod in a request's object that asks for a GPU. Raises Malformed."""
    for review in pods_of(request, request.object or {}, policy, facts, request.old_object):
        if review.placement is not None:
            yield review.placement
