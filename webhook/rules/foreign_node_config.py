"""A node is given another sharing configuration by someone who is no administrator.

The label `nvidia.com/device-plugin.config` decides which key of the ConfigMap a node's device plugin reads, at once and
without a restart (k8s-device-plugin cmd/config-manager/main.go): who may write it can share a GPU that was handed out
whole, under a pod that runs. The policy names who may. A kubelet that registers its node is warned only: its labels
come from whoever made the machine, and without its node the machine would be lost.

Way out: ask an administrator of the policy to set the label, or be made one, as a controller that labels nodes has to.
"""

from collections.abc import Iterator

from webhook.api.objects import Labelled
from webhook.facts.snapshot import CONFIG_LABEL
from webhook.model import Finding
from webhook.review import Review
from webhook.text.words import shown


def check(review: Review[Labelled]) -> Iterator[Finding]:
    """Flag a label that is set, changed or removed by a requester whom the policy does not call an administrator."""
    subject, policy = review.subject, review.policy
    requester = subject.requester
    if subject.kind != "Node" or requester is None or policy.administrators.include(requester):
        return
    before = subject.old.labels.get(CONFIG_LABEL) if subject.old else None
    now = subject.labels.get(CONFIG_LABEL)
    if now == before:
        return
    registers = subject.old is None and requester.username == f"system:node:{subject.name}"
    done = f"is set to {shown(now)}" if now is not None else "is removed"
    yield Finding(
        ("metadata", "labels", CONFIG_LABEL),
        f"{done} by {shown(requester.username)}, whom policy {policy.name} does not call an administrator; ask one",
        advice=registers,
    )
