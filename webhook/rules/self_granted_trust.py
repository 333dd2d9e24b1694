"""A namespace's labels are written in a way that decides what the namespace may have, by no administrator.

Grants, exemptions, overrides, the circles of pools and the lists of who may claim devices select namespaces by their
labels, so whoever writes one of these labels could give a namespace trust, or take it. They are the administrators'
alone: to create a namespace with one, to change it, and to remove it, since a selector may also want a label to be
absent. So is `resource.kubernetes.io/admin-access`, whatever the policy selects by: under it claims may take devices
that others hold, and the API server asks for the label, not for who wrote it (kubernetes
pkg/registry/resource/utils.go). Whoever makes namespaces with such labels for others, as a controller may, has to be
named as an administrator.

Way out: have an administrator of the policy write the label.
"""

from collections.abc import Iterator

from webhook.api.objects import Labelled
from webhook.catalog.doors import ADMIN_ACCESS
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.review import Review
from webhook.text.words import shown


def check(review: Review[Labelled]) -> Iterator[Finding]:
    """Flag every label that decides what a namespace may have and somebody else writes."""
    item, policy = review.subject, review.policy
    requester = item.requester
    if item.kind != "Namespace" or requester is None or policy.administrators.include(requester):
        return
    before = item.old.labels if item.old else {}
    for key in sorted(policy.namespace_keys):
        if item.labels.get(key) != before.get(key):
            yield Finding(
                ("metadata", "labels", key),
                f"{_reason(key, policy)}, and {shown(requester.username)} is none of its administrators; leave it as "
                "it is, or have one of them write it",
            )


def _reason(key: str, policy: Policy) -> str:
    if key == ADMIN_ACCESS:
        return f"under this label policy {policy.name} lets claims take devices that others hold"
    return f"policy {policy.name} selects namespaces by this label"
