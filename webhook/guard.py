"""Whether a pod that asks for no GPU may run beside one, and whether the cluster keeps it away as the policy says."""

from collections.abc import Iterator, Mapping

from webhook.facts import Facts
from webhook.gpus import asks
from webhook.openings import Door, openings
from webhook.policy import Policy
from webhook.targets import Pod


def exposed(pod: Pod, policy: Policy) -> bool:
    """Tell whether a pod may see a GPU: it asks for one, names what opens one, or nothing keeps it off their nodes."""
    return bool(asks(pod, policy)) or _names_one(pod, policy) or not _kept_off(pod, policy)


def _names_one(pod: Pod, policy: Policy) -> bool:
    runtime = pod.spec.get("runtimeClassName")
    if isinstance(runtime, str) and runtime in policy.forms.runtime_classes:
        return True
    return bool(pod.spec.get("resourceClaims")) or Door.VARIABLE in openings(pod)


def _kept_off(pod: Pod, policy: Policy) -> bool:
    """Tell whether the taint of the guard keeps a pod off; any toleration of its key, or of all keys, opens it."""
    taint = policy.guard.taint if policy.guard else None
    if taint is None or pod.spec.get("nodeName"):
        return False
    return not any(toleration.get("key") in (None, "", taint) for toleration in pod.tolerations)


def unguarded(policy: Policy, facts: Facts) -> Iterator[str]:
    """Say, one line each, where a pod that names no GPU could see one all the same."""
    if policy.guard is None:
        yield (
            f"policy {policy.name} has no guard: on a node whose default runtime is NVIDIA's, an image alone may see "
            "its GPUs; taint the nodes of all pools and say `guard: {taint: {key: ...}}`, or `guard: every-pod`"
        )
        return
    if policy.guard.taint is None:
        return
    for node in facts.nodes:
        if not _has_gpus(node.labels, policy) or policy.guard.taint in node.taints:
            continue
        yield (
            f"node {node.name} has GPUs and not the taint {policy.guard.taint}, which is to keep plain pods off: an "
            "image alone may see its GPUs there; taint it NoSchedule or NoExecute"
        )


def _has_gpus(labels: Mapping[str, str], policy: Policy) -> bool:
    present = labels.get("nvidia.com/gpu.present") == "true"
    return present or any(pool.nodes.matches(labels) for pool in policy.pools)
