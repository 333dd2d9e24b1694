"""A user who is no administrator gives a node another sharing configuration.

The label `nvidia.com/device-plugin.config` chooses which key of the ConfigMap a node's device plugin reads. A change
takes effect at once, without a restart (k8s-device-plugin cmd/config-manager/main.go). A user who may write
the label can share a GPU that was handed out whole, under a running pod. So only administrators of the policy may write
it. A kubelet that registers its node with the label is only warned: its labels come from the machine's owner, and a
refusal would lose the node.

Way out: ask an administrator of the policy to set the label. A controller that labels nodes has to be an
administrator.
"""

from collections.abc import Iterator

from webhook.api.objects import Labelled
from webhook.cel.clauses import Clause, RequestKind
from webhook.cel.policies import include, registers
from webhook.cel.write import any_of, text
from webhook.facts.kinds.node import CONFIG_LABEL
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.review import Review
from webhook.text.words import shown

SINCE = "0.1"


def check(review: Review[Labelled]) -> Iterator[Finding]:
    """Flag a label that a requester other than an administrator of the policy sets, changes or removes."""
    subject, policy = review.subject, review.policy
    requester = subject.requester
    if subject.kind != "Node" or requester is None or policy.administrators.include(requester):
        return
    before = subject.old.labels.get(CONFIG_LABEL) if subject.old else None
    now = subject.labels.get(CONFIG_LABEL)
    if now == before:
        return
    registers = subject.old is None and requester.username == f"system:node:{subject.name}"
    done = f"set this label to {shown(now)}" if now is not None else "remove this label"
    yield Finding(
        ("metadata", "labels", CONFIG_LABEL),
        f"user {shown(requester.username)} may not {done}: only administrators of policy {policy.name} may; ask one "
        "of them",
        advice=registers,
    )


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact: the fallback gives the same verdict as the webhook."""
    key = text(CONFIG_LABEL)
    yield Clause(
        any_of((f"variables.now[?{key}] == variables.before[?{key}]", include(policy.administrators), registers())),
        f"label {CONFIG_LABEL} chooses the node's sharing configuration, which only administrators of policy "
        f"{policy.name} may do; ask one of them",
        asked=(RequestKind.NODES,),
    )
