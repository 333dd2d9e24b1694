"""Lints about pools and their nodes."""

from collections.abc import Iterator

from webhook.catalog import node_labels
from webhook.catalog.gpu_requests import ALL_CARDS, IMPLICIT
from webhook.deviceplugin import cards, usage
from webhook.deviceplugin.usage import GPU, some
from webhook.facts.kinds.node import Node
from webhook.gpu import guard
from webhook.lints.base import Linted, LintFinding, Table
from webhook.model import Action
from webhook.policy.model import SHARED, Policy, Pool
from webhook.policy.resources import ResourceNames


def empty_pool(of: Linted) -> Iterator[LintFinding]:
    """No node is in a pool.

    Pods that are steered there wait forever. A pool that scales from zero is not reported: it has `assume`, or selects
    nodes that a NodePool or a machine set of the facts may make.

    Way out: correct the labels under `nodes`, label the nodes, or remove the pool.
    """
    scaled = [each.labels for each in of.facts.scaled]
    for path, pool, found in of.pools:
        if not found and pool.assume is None and not any(pool.nodes.matches(labels) for labels in scaled):
            wanted = " and ".join(map(str, pool.nodes.requirements))
            yield LintFinding(
                (*path, "nodes"), f"no node has {wanted}, so pods of pool {pool.name} wait for ever; correct it"
            )


def poolless_node(of: Linted) -> Iterator[LintFinding]:
    """A node with GPUs is in no pool.

    No pod is steered there, so its GPUs stay idle.

    Way out: give the node the labels of a pool, or add a pool for it.
    """
    left = [node for node in of.facts.nodes if node.has_gpus and of.policy.pool_of(node.labels) is None]
    if left:
        yield LintFinding(
            ("spec", "pools"), f"no pool has {some(left)}, so their GPUs are idle; add one, or label them"
        )


def other_sharing(of: Linted) -> Iterator[LintFinding]:
    """A node shares its GPUs in another way than its pool states.

    Pods that expect a card of their own would share it, or the reverse. A node that offers more GPUs than it has cards
    shares them, whatever its labels and ConfigMaps say.

    Way out: give the node another sharing configuration, or select the pools' nodes by nvidia.com/gpu.sharing-strategy.
    """
    for path, pool, found in of.pools:
        wrong: dict[str, list[Node]] = {}
        crowded: list[Node] = []
        for node in found:
            said = node.labels.get(f"{GPU}.sharing-strategy")
            if not pool.shared and cards.slices(node) > 1:
                crowded.append(node)
            elif said is not None and (said if said in SHARED else "none") != (pool.sharing if pool.shared else "none"):
                wrong.setdefault(said, []).append(node)
        if crowded:
            yield LintFinding(
                (*path, "sharing"),
                f"is {pool.sharing}, but {some(crowded)} in pool {pool.name} offers more GPUs than cards, so it shares "
                "them; select other nodes, or make it a pool that shares",
            )
        for said, whom in sorted(wrong.items()):
            yield LintFinding(
                (*path, "sharing"),
                f"is {pool.sharing}, but {said} on {some(whom)} in pool {pool.name}; select by {GPU}.sharing-strategy",
            )


def unoffered_resource(of: Linted) -> Iterator[LintFinding]:
    """A pool offers a resource that none of its nodes has.

    Pods that request it are steered there, and wait forever.

    Way out: remove the resource from the pool, or set up the device plugin on the nodes.
    """
    for path, pool, found in of.pools:
        if not any(node.resources for node in found):
            continue
        for place, pattern in enumerate(pool.resources.patterns):
            if pattern.startswith(IMPLICIT):  # of a device class, which nodes do not report
                continue
            names = ResourceNames((pattern,), shares=pool.shared)
            if not any(count and name in names for node in found for name, count in node.resources.items()):
                yield LintFinding(
                    (*path, "resources", place), f"no node of pool {pool.name} has {pattern}; remove it, or offer it"
                )


def unlisted_offer(of: Linted) -> Iterator[LintFinding]:
    """Nodes of a pool offer GPUs under a name that the pool does not list.

    No pod can request them.

    Way out: add the resource to the pool, or change what the nodes offer. MIG devices and renamed slices do not belong
    in a pool of whole cards: give them a pool of their own sharing.
    """
    for path, pool, found in of.pools:
        idle: dict[str, list[Node]] = {}
        for node in found:
            for name, count in node.resources.items():
                if name in ALL_CARDS:  # for programs that monitor a node, not for tenants
                    continue
                if count and name in of.policy.gpu_resources and name not in pool.resources:
                    idle.setdefault(name, []).append(node)
        for name, whom in sorted(idle.items()):
            way = f"add it to pool {pool.name}" if _befits(name, pool) else _elsewhere(name, pool, of.policy)
            yield LintFinding((*path, "resources"), f"lacks {name}, offered by {some(whom)}; {way}")


def _befits(name: str, pool: Pool) -> bool:
    """Return whether a pool may offer a resource.

    Only shared pools offer slices, and a pool of whole cards offers no parts.
    """
    if name.endswith(usage.SHARED):
        return pool.shared
    return pool.sharing != "none" or not name.startswith(usage.MIG)


def _elsewhere(name: str, pool: Pool, policy: Policy) -> str:
    """Say what to do about a resource that does not fit a pool."""
    fit = [each.name for each in policy.pools if name in each.resources and _befits(name, each)]
    other = "a pool that shares" if name.endswith(usage.SHARED) else "a pool of MIG devices"
    home = f"pool {fit[0]}" if fit else other
    return f"that is not for a pool of sharing {pool.sharing}: let {home} select such nodes, or change what they offer"


def unguarded_node(of: Linted) -> Iterator[LintFinding]:
    """Nothing keeps pods without a GPU request off a node with GPUs.

    There, the image of such a pod may be enough to give it GPUs.

    Way out: taint all nodes with GPUs and name the taint in `guard`, or set `guard: {everyPod: true}`.
    """
    if caution := guard.unguarded(of.policy, of.facts):
        yield LintFinding(("spec", "guard"), caution)


def unreachable_request(of: Linted) -> Iterator[LintFinding]:
    """A pool lets pods request more GPUs than any of its nodes has.

    Such a pod is admitted and waits forever. All resources of the pool count together, such as MIG devices and whole
    cards of one node. A pool with a node of Karpenter is left out: Karpenter makes a node of the size that a pod needs.

    Way out: lower `maxRequest` to the number of the largest node.
    """
    for path, pool, found in of.pools:
        most = max((_count(node, pool) for node in found), default=0)
        grows = any(node_labels.KARPENTER in node.labels for node in found)
        if pool.max_request and 0 < most < pool.max_request and not grows:
            yield LintFinding(
                (*path, "maxRequest"),
                f"is {pool.max_request}, and no node of pool {pool.name} has more than {most}; lower it",
            )


def _count(node: Node, pool: Pool) -> int:
    """Return how many GPUs of a pool a node offers, under all names."""
    return sum(count for name, count in node.resources.items() if name in pool.resources)


LINTS: Table = {
    empty_pool: Action.WARN,
    poolless_node: Action.WARN,
    other_sharing: Action.DENY,
    unoffered_resource: Action.WARN,
    unlisted_offer: Action.WARN,
    unguarded_node: Action.DENY,
    unreachable_request: Action.WARN,
}
