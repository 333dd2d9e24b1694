"""A pod names its node itself, past the scheduler.

`nodeName` at creation skips every NoSchedule taint, by which nodes with GPUs are kept for those who ask for them; the
kubelet looks at nothing but NoExecute (kubernetes pkg/kubelet/lifecycle/predicate.go). It forgets the resources
that a node does not know, too. Daemon sets choose their nodes by affinity, and need it no more. A pod that asks for no
GPU may name a node that is known to have none, as `kubectl debug node/NAME` does; one that is not known is refused.
What a kubelet says of its own static pods is no choice of anyone's.

Way out: remove `nodeName`; a node selector for kubernetes.io/hostname names a node and respects its taints.
"""

from collections.abc import Iterator

from webhook.api.fields import text
from webhook.gpu.guard import gpus_of
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.text.words import shown


def check(review: PodReview) -> Iterator[Finding]:
    """Flag pods that come with a node; one that the scheduler has put on a node had none before."""
    pod = review.subject
    name = text(pod.spec, "nodeName", pod.at("spec"))
    if not name or (pod.old is not None and pod.old.spec.get("nodeName") == name):
        return
    if pod.kubelets_own or not review.exposed:
        return
    where = gpus_of(name, review.policy, review.facts)
    yield Finding(
        pod.at("spec", "nodeName"),
        f"{shown(name)} {where}{', and ' if where else ''}is chosen past the scheduler and the taints of nodes; remove "
        "it, or select the node with a node selector for kubernetes.io/hostname",
    )
