"""A namespace's labels are written in a way that decides what the namespace may have, by no administrator.

Grants, exemptions, overrides, the circles of pools and the lists of who may claim devices select namespaces by their
labels, so whoever writes one of these labels could give a namespace trust, or take it. They are the administrators'
alone: to create a namespace with one, to change it, and to remove it, since a selector may also want a label to be
absent. Whoever makes namespaces with such labels for others, as a controller may, has to be named as an administrator.

Way out: have an administrator of the policy write the label.
"""

from collections.abc import Iterator

from webhook.facts import Facts
from webhook.model import Finding, shown
from webhook.policy import Policy
from webhook.targets import Labelled


def check(item: Labelled, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag every label that the policy selects namespaces by and somebody else writes."""
    requester = item.requester
    if item.kind != "Namespace" or requester is None or policy.administrators.include(requester):
        return
    before = item.old.labels if item.old else {}
    for key in sorted(policy.namespace_keys):
        if item.labels.get(key) != before.get(key):
            yield Finding(
                ("metadata", "labels", key),
                f"policy {policy.name} selects namespaces by this label, and {shown(requester.username)} is none of "
                "its administrators; leave it as it is, or have one of them write it",
            )
