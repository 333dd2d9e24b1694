"""Whether a pod that asks for no GPU may run beside one, and whether the cluster keeps it away as the policy says."""

from collections.abc import Mapping

from webhook.facts import Facts
from webhook.gpus import asks
from webhook.model import listed, shown
from webhook.openings import openings
from webhook.pods import Pod
from webhook.policy import Policy


def exposed(pod: Pod, policy: Policy) -> bool:
    """Tell whether a pod may see a GPU: it asks for one, names what opens one, or nothing keeps it off their nodes."""
    return bool(asks(pod, policy)) or _names_one(pod, policy) or not _kept_off(pod, policy)


def _names_one(pod: Pod, policy: Policy) -> bool:
    runtime = pod.spec.get("runtimeClassName")
    if isinstance(runtime, str) and runtime in policy.forms.runtime_classes:
        return True
    return bool(pod.spec.get("resourceClaims") or openings(pod).variables)


def _kept_off(pod: Pod, policy: Policy) -> bool:
    """Tell whether the taint of the guard keeps a pod off; any toleration of its key, or of all keys, opens it."""
    taint = policy.guard.taint if policy.guard else None
    if taint is None or pod.spec.get("nodeName"):
        return False
    return not any(toleration.get("key") in (None, "", taint) for toleration in pod.tolerations)


def unguarded(policy: Policy, facts: Facts) -> str | None:
    """Say in one line on which nodes a pod that names no GPU could see one all the same; None for on none."""
    if policy.guard is not None and policy.guard.taint is None:
        return None
    taint = policy.guard.taint if policy.guard else None
    nodes = sorted(node.name for node in facts.nodes if taint not in node.taints and _has_gpus(node.labels, policy))
    if not nodes:
        return None
    where = listed([shown(name, quotes=False) for name in nodes], _NAMED)
    if taint is None:
        return (
            f"policy {policy.name} has no guard, so an image alone may see the GPUs of {where}; taint all nodes with "
            "GPUs and name the taint in `guard`, or say `guard: every-pod`"
        )
    lack, their, them = ("lacks", "its", "it") if len(nodes) == 1 else ("lack", "their", "them")
    return (
        f"the guard of policy {policy.name} is the taint {taint}, which {where} {lack}, so an image alone may see "
        f"{their} GPUs; taint {them} NoSchedule or NoExecute"
    )


_NAMED = 5
"""How many nodes a line names."""


def _has_gpus(labels: Mapping[str, str], policy: Policy) -> bool:
    present = labels.get("nvidia.com/gpu.present") == "true"
    return present or any(pool.nodes.matches(labels) for pool in policy.pools)
