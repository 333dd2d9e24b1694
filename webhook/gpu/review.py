"""The review of a pod, with what rules share about it."""

from dataclasses import replace

from webhook.api.pods import Pod
from webhook.gpu import exposure, guard, placement, requests
from webhook.gpu.exposure import Exposure
from webhook.gpu.placement import Claim, Placement
from webhook.gpu.requests import GPURequest
from webhook.model import Path
from webhook.policy.model import TRUSTED
from webhook.review import Review, shared


class PodReview(Review[Pod]):
    """The review of a pod, or of a workload's template of one. A property raises Malformed for a wrong shape."""

    @shared
    def requests(self) -> tuple[GPURequest, ...]:
        """Every request for a GPU in any of the pod's containers."""
        return tuple(requests.of(self.subject, self.policy))

    @shared
    def gpu_containers(self) -> frozenset[Path]:
        """The paths of the containers that request a GPU."""
        return frozenset(request.container.path for request in self.requests)

    @shared
    def claim(self) -> Claim:
        """The trust that the pod asks for, and where it was granted."""
        return placement.claim(self.subject, self.policy, self.facts)

    @shared
    def placement(self) -> Placement | None:
        """The pool that the pod belongs to; None for a pod that requests no GPU."""
        if not self.requests:
            return None
        return placement.place(self.subject, self.policy, self.facts, requests.totals(self.requests), self.claim)

    @shared
    def exposure(self) -> Exposure:
        """Every door to a GPU that the pod opens."""
        return exposure.of(self.subject)

    @shared
    def exposed(self) -> bool:
        """Whether the pod may see a GPU: it requests one, names what opens one, or nothing keeps it off their nodes."""
        return (
            bool(self.requests)
            or guard.names_gpu(self.subject, self.policy)
            or bool(self.exposure.variables)
            or not guard.kept_off(self.subject, self.policy, self.facts)
        )

    @property
    def trust_would_do(self) -> bool:
        """Whether a pod that no pool takes need only ask for the trust that it was granted."""
        pod = self.subject
        trusting = replace(pod, annotations={**pod.annotations, self.policy.annotation: TRUSTED})
        place = PodReview(trusting, self.policy, self.facts, self.allowance).placement
        if place is None or place.pool is None or place.clash is not None or place.level != TRUSTED:
            return False
        most = 1 if place.pool.shared else place.pool.max_request
        return most is None or place.count <= most
