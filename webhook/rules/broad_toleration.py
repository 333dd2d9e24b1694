"""A pod tolerates every taint there is.

A toleration with `operator: Exists` and no key defeats each taint that keeps plain pods off nodes with GPUs, and one
pool's pods off another's nodes. It is meant for agents that belong on every node, and those are a part of the system.
A kubelet lets its static pods tolerate all that would evict them (kubernetes pkg/kubelet/config/common.go), and
what it says of those in their mirror pods is no choice of anyone's. A toleration does no harm by an effect that no
taint of the pools has, as NoExecute where all of them are NoSchedule, nor in a pod that names a node without GPUs.

Way out: tolerate the taints that are meant, by their keys. A part of the system is exempted in the policy, by
namespace and service account.
"""

from collections.abc import Iterator

from webhook.gpu.guard import defeats, elsewhere
from webhook.gpu.review import PodReview
from webhook.model import Finding


def check(review: PodReview) -> Iterator[Finding]:
    """Flag tolerations without a key that defeat a pool's taint."""
    pod, policy, facts = review.subject, review.policy, review.facts
    if pod.kubelets_own or elsewhere(pod, policy, facts):
        return
    for index, toleration in enumerate(pod.tolerations):
        if not toleration.get("key") and defeats(toleration, policy, facts):
            yield Finding(
                pod.at("spec", "tolerations", index),
                "has no key and tolerates every taint, those of nodes with GPUs too; name the keys that are meant",
            )
