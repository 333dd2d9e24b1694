"""A pod names its node itself and bypasses the scheduler.

A pod that is created with `nodeName` bypasses every NoSchedule taint, and these taints keep GPU nodes for the pods
that request GPUs. The kubelet checks NoExecute taints only (kubernetes pkg/kubelet/lifecycle/predicate.go), and
forgets requests for resources that its node does not have. Daemon sets no longer need `nodeName`: they choose nodes by
affinity. A pod without a GPU request may name a node that is known to have no GPUs, as `kubectl debug node/NAME` does;
an unknown node is refused. Mirror pods of a kubelet's static pods are not judged.

Way out: remove `nodeName`. A node selector for kubernetes.io/hostname names a node too, and respects its taints.
"""

from collections.abc import Iterator

from webhook.api.fields import text
from webhook.cel.clauses import Clause
from webhook.cel.policies import KUBELETS_OWN
from webhook.gpu.guard import gpus_of
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("node name",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag pods that are created with a node name. Pods that the scheduler assigns were created without one."""
    pod = review.subject
    name = text(pod.spec, "nodeName", pod.at("spec"))
    if not name or (pod.old is not None and pod.old.spec.get("nodeName") == name):
        return
    if pod.kubelets_own or not review.exposed:
        return
    where = gpus_of(name, review.policy, review.facts)
    node = f", and node {shown(name)} {where}" if where else ""
    yield Finding(
        pod.at("spec", "nodeName"),
        f"nodeName bypasses the scheduler and node taints{node}; remove it, or use the nodeSelector "
        f"kubernetes.io/hostname: {shown(name, quotes=False)}",
    )


def fallback(_: Policy) -> Iterator[Clause]:
    """Weaker: the fallback knows no nodes.

    A pod that names its node passes if it requests no GPU, and no variable or runtime class in it gives it one.
    """
    yield Clause(
        f"object.spec.?nodeName.orValue('') == '' || !variables.exposed || {KUBELETS_OWN}",
        "spec.nodeName bypasses the scheduler and node taints; remove it, or use the nodeSelector "
        "kubernetes.io/hostname",
    )
