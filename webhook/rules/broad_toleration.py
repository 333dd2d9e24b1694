"""A pod tolerates every taint.

A toleration with `operator: Exists` and no key matches every taint: those that keep other pods off GPU nodes, and
those that keep the pods of one pool off the nodes of another. Only agents that run on every node need it, and those
belong to the system.

Two kinds of pods pass. The kubelet adds such tolerations to its own static pods (kubernetes
pkg/kubelet/config/common.go), so their mirror pods are not judged. A toleration also does no harm if no taint of the
pools has its effect (NoExecute where all of them are NoSchedule), or if the pod names a node without GPUs.

Way out: tolerate only the taints that you need, by their keys. An administrator can exempt an agent of the system in
the policy, by its namespace and service account.
"""

from collections.abc import Iterator

from webhook.cel.clauses import ANY_POD, Clause
from webhook.cel.policies import KUBELETS_OWN, tolerated
from webhook.gpu.guard import defeats, node_without_gpus
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy

SINCE = "0.1"


def check(review: PodReview) -> Iterator[Finding]:
    """Flag tolerations without a key that defeat a pool's taint."""
    pod, policy, facts = review.subject, review.policy, review.facts
    broad = [(index, toleration) for index, toleration in enumerate(pod.tolerations) if not toleration.get("key")]
    if not broad or pod.kubelets_own or node_without_gpus(pod, policy, facts):
        return
    for index, toleration in broad:
        if defeats(toleration, policy, facts):
            yield Finding(
                pod.at("spec", "tolerations", index),
                "a toleration without a key tolerates every taint, also those that protect GPU nodes; name the keys of "
                f"the taints that you need{review.agents_way}",
            )


def fallback(policy: Policy) -> Iterator[Clause]:
    """Weaker: the fallback does not know which nodes have GPUs, so a pod that names its node passes."""
    broad = f"variables.tolerations.exists(t, t.?key.orValue('') == '' && {tolerated('t', policy, None)})"
    yield Clause(
        f"object.spec.?nodeName.orValue('') != '' || !{broad} || {KUBELETS_OWN}",
        "a toleration without a key tolerates every taint, also those that protect GPU nodes; name the keys of the "
        "taints that you need",
        "'spec.tolerations'",
        asked=ANY_POD,
    )
