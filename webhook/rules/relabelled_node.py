"""A node's labels are written by somebody who may not do that, so that its pool or its cards would be others.

Which pool a node is in follows from its labels, and its cards are handed out accordingly: a label can bring trusted
pods that share onto a card that others have to themselves, or untrusted ones onto a shared card. In a shared pool
the memory caps follow from labels too: a card that is said to be larger gives every pod more than there is. Such
labels are written by the administrators and by those whom the policy names under `nodeLabellers`, such as the
accounts of Node Feature Discovery and of the GPU Operator.

A kubelet may write any label of its own node that is not Kubernetes' own (kubernetes
plugin/pkg/admission/noderestriction/admission.go), and clouds give nodes their labels by `--node-labels`. So it may
register its node with a pool's labels, unless `nodeLabellers.selfRegistration` is false, and never change them.

Way out: have an administrator change the label, or name whoever has to under `nodeLabellers`.
"""

from collections.abc import Iterator

from webhook.api.objects import Labelled
from webhook.api.pods import KUBELETS
from webhook.memory.budget import CARD_LABELS
from webhook.model import Finding, Path, Requester
from webhook.policy.model import Policy, Pool
from webhook.review import Review
from webhook.text.words import shown


def check(review: Review[Labelled]) -> Iterator[Finding]:
    """Flag a change of a node's labels that changes its pool, or the cards of a shared one."""
    item, policy = review.subject, review.policy
    requester = item.requester
    if item.kind != "Node" or requester is None or _may(requester, item, policy):
        return
    labels = item.old.labels if item.old else {}
    before, now = policy.pool_of(labels), policy.pool_of(item.labels)
    path: Path = ("metadata", "labels")
    if before is not now:
        changes = [(path, _move(before, now))]
    elif now and now.shared:
        changed = (key for key in CARD_LABELS if item.labels.get(key) != labels.get(key))
        changes = [((*path, key), f"decides how much memory the pods of pool {now.name} may have") for key in changed]
    else:
        return
    for place, what in changes:
        yield Finding(
            place,
            f"{what}, and {shown(requester.username)} is neither an administrator nor a node labeller of policy "
            f"{policy.name}; have one of them write the labels",
        )


def _may(requester: Requester, item: Labelled, policy: Policy) -> bool:
    if policy.administrators.include(requester) or policy.node_labellers.include(requester):
        return True
    registers = item.old is None and requester.username == f"system:node:{item.name}"
    return registers and policy.self_registration and KUBELETS in requester.groups


def _move(before: Pool | None, now: Pool | None) -> str:
    if before is None or now is None:
        return f"takes the node into pool {now.name}" if now else f"takes the node out of pool {before and before.name}"
    return f"moves the node from pool {before.name} to pool {now.name}"
