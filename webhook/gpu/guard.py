"""Decides whether a pod without a GPU request may run on a GPU node, and whether the guard covers those nodes."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from webhook.api.lenient import mapping, mappings, string
from webhook.api.pods import MIRROR, Pod
from webhook.api.requests import of_spec
from webhook.facts.snapshot import Facts
from webhook.gpu.requests import ResourceEntry
from webhook.model import Object
from webhook.policy.actions import EVERY_RULE
from webhook.policy.model import Policy
from webhook.text.words import listed, shown


def node_without_gpus(pod: Pod, policy: Policy, facts: Facts) -> bool:
    """Return whether a pod names its node, and that node is known to have no GPUs."""
    name = pod.spec.get("nodeName")
    return isinstance(name, str) and name != "" and not gpus_of(name, policy, facts)


def gpus_of(name: str, policy: Policy, facts: Facts) -> str:
    """Return the reason, in words, why a node counts as one with GPUs; empty if it is known to have none."""
    node = facts.named.get(name)
    if node is None:
        return "is not known here"
    if pool := policy.pool_of(node.labels):
        return f"is in pool {pool.name}"
    if policy.guard is not None and policy.guard.taint in node.taints:
        return f"has the taint {policy.guard.taint}"
    return "has GPUs" if node.has_gpus else ""


def defeats(toleration: Object, policy: Policy, facts: Facts, key: str | None = None) -> bool:
    """Return whether a toleration's effect may match the pools' taint with this key, or any taint if no key is given.

    The possible effects of a taint are those that pools tolerate, and those on known nodes. If a pool names no effect,
    every effect is possible.
    """
    effect, taints = toleration.get("effect"), _taints(policy, facts.of_nodes)
    effects = taints.get(key, frozenset()) if key is not None else frozenset().union(*taints.values())
    named = isinstance(effect, str) and effect  # the API server refuses an effect that is no string
    return not named or not effects or not effects.isdisjoint(("", effect))


@lru_cache(maxsize=2)  # once per change of the nodes, of which there may be ten thousand
def _taints(policy: Policy, facts: Facts) -> Mapping[str, frozenset[str]]:
    """Return the effects of the taints that pools tolerate, by key. An empty effect stands for any."""
    found: dict[str, frozenset[str]] = {}
    for each in (each for pool in policy.pools for each in pool.tolerations):
        found[each["key"]] = found.get(each["key"], frozenset()) | {each.get("effect") or ""}
    for key, effects in (taint for node in facts.nodes for taint in node.taints.items()):
        if key in found:
            found[key] |= effects
    return found


def names_runtime(pod: Pod, policy: Policy) -> bool:
    """Return whether a pod names a runtime class that gives its containers GPUs."""
    runtime = pod.spec.get("runtimeClassName")
    return isinstance(runtime, str) and runtime in policy.forms.runtime_classes


def kept_off(pod: Pod, named: Iterable[ResourceEntry], policy: Policy, facts: Facts) -> bool:
    """Return whether a pod cannot run on a node with GPUs.

    That is so if it names a node without GPUs, or if it names no node and does not tolerate the guard's taint. If the
    pod requests a resource with the name of the taint (one of `named`), even at quantity 0, the API server may add a
    toleration. Its plugin ExtendedResourceToleration (kubernetes plugin/pkg/admission/extendedresourcetoleration) runs
    before webhooks.
    """
    if pod.spec.get("nodeName"):
        return node_without_gpus(pod, policy, facts)
    taint = policy.guard.taint if policy.guard else None
    if taint is None:
        return False
    tolerations = [each for each in pod.tolerations if each.get("key") in (None, "", taint)]
    tolerations += [given(taint) for each in named if each.name == taint]
    return not [each for each in tolerations if defeats(each, policy, facts, taint)]


def given(taint: str) -> Object:
    """Return the toleration that the API server adds to a pod which requests a resource with the name of this taint."""
    return {"key": taint, "operator": "Exists", "effect": "NoSchedule"}


def older(pod: Object, policy: Policy, facts: Facts) -> bool:
    """Return whether a running pod is older than the guard's taint: its node has the taint, which it does not tolerate.

    Debug containers of such a pod are not sent to the webhook if nothing in the pod refers to GPUs. The result is false
    for pods that need no report: those that request GPUs are sent, mirror pods take no debug containers, and those that
    are exempt from all rules are not judged.
    """
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    taint, node = policy.guard.taint if policy.guard else None, facts.named.get(string(spec.get("nodeName")))
    if taint is None or node is None or taint not in node.taints:
        return False
    if any(string(each.get("key")) in ("", taint) for each in mappings(spec.get("tolerations"))):
        return False
    if MIRROR in mapping(metadata.get("annotations")) or any(map(policy.gpu_resources.__contains__, of_spec(spec))):
        return False
    namespace, account = string(metadata.get("namespace")), string(spec.get("serviceAccountName"))
    labels = facts.namespaces.get(namespace)
    near = policy.exemptions_by_namespace.near(namespace)
    return not any(
        not each.rules and each.holds(EVERY_RULE, facts.today) and each.scope.covers(namespace, labels, account)
        for each in near
    )


def unguarded(policy: Policy, facts: Facts) -> str | None:
    """Describe in one line the nodes with GPUs where the guard does not keep off pods without a GPU; None if none."""
    if policy.guard is not None and policy.guard.taint is None:
        return None
    taint = policy.guard.taint if policy.guard else None
    nodes = sorted(
        node.name for node in facts.nodes if taint not in node.taints and (node.has_gpus or policy.pool_of(node.labels))
    )
    if not nodes:
        return None
    where = listed([shown(name, quotes=False) for name in nodes], _NAMED)
    if taint is None:
        return (
            f"policy {policy.name} has no guard, so an image alone may see the GPUs of {where}; taint all nodes with "
            "GPUs and name the taint in `guard`, or say `guard: {everyPod: true}`"
        )
    lack, their, them = ("lacks", "its", "it") if len(nodes) == 1 else ("lack", "their", "them")
    return (
        f"the guard of policy {policy.name} is the taint {taint}, which {where} {lack}, so an image alone may see "
        f"{their} GPUs; taint {them} NoSchedule or NoExecute"
    )


_NAMED = 5
"""Maximum number of nodes named on one line."""
