"""Makes the reviews of the pods in a request, as the command line makes them for an object that it has judged."""

from collections.abc import Iterator

from webhook.facts.snapshot import Facts
from webhook.gpu.review import PodReview, pods_of
from webhook.model import Request
from webhook.policy.model import Policy


def reviews(request: Request, policy: Policy, facts: Facts) -> Iterator[PodReview]:
    """Yield the review of each pod that a request creates or changes."""
    return pods_of(request, request.object or {}, policy, facts, request.old_object)
