"""An agent of GPU nodes does not tolerate the guard's taint, so it will not run on the nodes of any pool.

The agent is a DaemonSet that asks for no GPU, and that tolerates `nvidia.com/gpu` or selects nodes by a label of GPUs:
a metrics exporter, a device plugin, an installer of drivers. It runs on these nodes as long as their only taint is the
one that it knows. When the nodes get the taint of the policy's guard, its pods are no longer scheduled there, without
any error: the DaemonSet just runs on fewer nodes. This rule only warns.

Way out: add the toleration to the DaemonSet, and an exemption to the policy, by namespace and service account. The GPU
Operator's operands take theirs from `daemonsets.tolerations` in its ClusterPolicy.
"""

from collections.abc import Iterator

from webhook.catalog.node_labels import GPU_NODE_LABELS, GPU_TAINT
from webhook.gpu.review import PodReview
from webhook.model import Finding

SINCE = "0.1"

LOOKS_AT = ("daemon",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag templates of DaemonSets that are made for GPU nodes and will be kept off them."""
    pod, guard = review.subject, review.policy.guard
    taint = guard.taint if guard else None
    if not pod.daemon or taint is None or review.requests:
        return
    keys = pod.tolerated_keys
    if keys & {"", taint}:
        return
    terms = (term.expressions or () for term in pod.node_terms or ())
    selected = {*pod.node_selector, *(requirement.key for term in terms for requirement in term)}
    if GPU_TAINT in keys or any(label in GPU_NODE_LABELS for label in selected):
        yield Finding(
            pod.at("spec", "tolerations"),
            f"the agent does not tolerate {taint}, the taint of all pools' nodes, so it will not run there; "
            "add the toleration here, and an exemption for its account to the policy",
            advice=True,
        )
