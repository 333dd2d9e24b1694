"""A ClusterPolicy or a node names a sharing configuration that does not exist.

If a ClusterPolicy names a ConfigMap that does not exist, the device plugin's pods do not start. If it names a key that
the ConfigMap does not have, or a node's label does, the plugin's config-manager exits and starts over without end
(k8s-device-plugin cmd/config-manager/main.go): the node's GPUs are gone or unchanged. The facts say what exists. If
they hold no ConfigMap of the namespace, the rule only warns. So it does if the ConfigMap is in another namespace, which
may be the operator's own.

Way out: create the ConfigMap or the key first, or name one that exists.
"""

from collections.abc import Iterable, Iterator

from webhook.api.objects import ClusterPolicy, Labelled
from webhook.deviceplugin.usage import homes, reaches
from webhook.facts.kinds.node import CONFIG_LABEL, Node
from webhook.facts.snapshot import Facts
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.review import Review
from webhook.text.words import listed, shown

SINCE = "0.1"


def check(review: Review[ClusterPolicy | Labelled]) -> Iterator[Finding]:
    """Flag names of missing ConfigMaps and keys."""
    subject, policy, facts = review.subject, review.policy, review.facts
    if isinstance(subject, ClusterPolicy):
        yield from _of_cluster_policy(subject, policy, facts)
    elif subject.kind == "Node":
        yield from _of_node(subject, policy, facts)


def _of_cluster_policy(subject: ClusterPolicy, policy: Policy, facts: Facts) -> Iterator[Finding]:
    if not subject.config_map:
        return
    namespaces = policy.limits.namespaces
    known = [each for each in namespaces if (each, subject.config_map) in facts.config_maps]
    where = " or ".join(namespaces) or "any of sharing.namespaces, which is empty"
    if not known:
        path, name = (*subject.base, "name"), shown(subject.config_map)
        if elsewhere := sorted(namespace for namespace, each in facts.config_maps if each == subject.config_map):
            yield Finding(
                path,
                f"ConfigMap {name} is in namespace {listed(elsewhere, 3)}, not in {where}; the operator reads its own "
                "namespace: if that is there, list it under sharing.namespaces",
                advice=True,
            )
            return
        sure = any(namespace in namespaces for namespace, _ in facts.config_maps)
        yield Finding(path, f"ConfigMap {name} does not exist in namespace {where}; create it first", advice=not sure)
    elif subject.default:
        keys = facts.config_maps[known[0], subject.config_map]
        if subject.default not in keys:
            yield Finding(
                (*subject.base, "default"),
                f"ConfigMap {known[0]}/{subject.config_map} has no key {shown(subject.default)}; {_known(keys)}",
            )


def _of_node(subject: Labelled, policy: Policy, facts: Facts) -> Iterator[Finding]:
    key = subject.labels.get(CONFIG_LABEL)
    node = Node(subject.name, subject.labels)
    for each in facts.installations if key else ():
        texts = [facts.config_maps.get((namespace, each.config_map)) for namespace in homes(each, policy)]
        known = next((keys for keys in texts if keys is not None), None)
        if each.chosen and reaches(each, node) and known is not None and key not in known:
            yield Finding(
                ("metadata", "labels", CONFIG_LABEL),
                f"ConfigMap {each.config_map} has no key {shown(key)}, so the node's device plugin would not start; "
                f"{_known(known)}",
            )


def _known(keys: Iterable[str]) -> str:
    names = [shown(name, quotes=False) for name in sorted(keys)]
    return f"use one of {listed(names, 5)}, or add the key first" if names else "add the key first"
