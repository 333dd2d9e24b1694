"""A pod asks for trust that its namespace and service account were not granted.

A trusted pod shares cards with others, and can take all of a card's memory or hang it for everyone on it.
So the pod's annotation only asks; the policy's grants, which tenants cannot write, decide. Without the
annotation a pod has the policy's default.

A grant is read off the namespace and the pod's service account. One that names users or groups is narrower: it
hears only them, be it for a workload or for a bare pod, and the controllers that make pods of the workload. Any
other account that makes pods, a tenant's own or an operator's, has to be named too.

Way out: have an administrator grant trust to the namespace, or remove the annotation.
"""

from collections.abc import Iterator

from webhook.facts import Facts
from webhook.model import Finding, shown
from webhook.placement import claim
from webhook.pods import Pod
from webhook.policy import TRUSTED, UNTRUSTED, Policy


def check(pod: Pod, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag a trust annotation that is no trust level, or that no grant covers."""
    if pod.annotations.get(policy.annotation) is None:
        return
    found = claim(pod, policy, facts)
    path = pod.at("metadata", "annotations", policy.annotation)
    if found.asked not in (TRUSTED, UNTRUSTED):
        yield Finding(path, f"{shown(found.asked)} is no trust level; use {TRUSTED} or {UNTRUSTED}, or remove it")
    elif found.asked == TRUSTED and found.withheld and pod.requester is not None:
        yield Finding(
            path,
            f"policy {policy.name} lets service account {shown(pod.service_account)} of namespace "
            f"{shown(pod.namespace)} be trusted only where others ask for it than {shown(pod.requester.username)}; "
            "have one of them ask, have an administrator grant it to you, or remove the annotation",
        )
    elif found.asked == TRUSTED and not found.pools:
        unknown = (
            ""
            if pod.namespace in facts.namespaces
            else ", of which the labels are not known here (a check needs the Namespace among its facts),"
        )
        yield Finding(
            path,
            f"no grant of policy {policy.name} lets service account {shown(pod.service_account)} of namespace "
            f"{shown(pod.namespace)}{unknown} be trusted; ask an administrator for one, or remove the annotation",
        )
