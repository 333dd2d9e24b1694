"""Lists the pools of a policy with their nodes, the memory of their GPUs, and the pods that share them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.deviceplugin import cards
from webhook.deviceplugin.usage import holders
from webhook.facts.kinds.node import Node
from webhook.facts.kinds.pod import Holder
from webhook.facts.snapshot import Facts
from webhook.memory.budget import Budget, budget, nodes, smallest
from webhook.policy.model import SHARED, Policy, Pool


class Amount(NamedTuple):
    """The number of GPUs or slices of one resource on a node, and how many of them pods have."""

    resource: str
    held: int
    offered: int


class NodeUse(NamedTuple):
    """A node with GPUs. `gpus` is None if no label gives their number. `pods` names those that have GPUs."""

    name: str
    product: str
    gpus: int | None
    amounts: tuple[Amount, ...]
    pods: Mapping[str, tuple[str, ...]]
    """The pods by namespace."""


class Division(NamedTuple):
    """The memory of one kind of GPU in a pool. `nodes` is their number; 0 for the GPU that the policy assumes."""

    nodes: int
    budget: Budget


class PoolUse(NamedTuple):
    """A pool with its nodes. `name` is empty for the nodes with GPUs that are in no pool.

    `nodes` begins with the nodes that pods of the most namespaces use.

    `divisions` is empty if the pool has no memory caps, and `uncapped` says why.
    """

    name: str
    sharing: str
    trust: tuple[str, ...]
    resources: tuple[str, ...]
    nodes: tuple[NodeUse, ...]
    divisions: tuple[Division, ...] = ()
    uncapped: str = ""

    @property
    def shared(self) -> bool:
        """Whether several pods share one GPU."""
        return self.sharing in SHARED

    @property
    def gpus(self) -> int:
        """The number of GPUs, as far as labels give it."""
        return sum(node.gpus or 0 for node in self.nodes)

    @property
    def uncounted(self) -> int:
        """The nodes for which no label gives the number of GPUs."""
        return sum(node.gpus is None for node in self.nodes)

    @property
    def amounts(self) -> tuple[Amount, ...]:
        """The GPUs and slices of all nodes of the pool, by resource."""
        return tuple(_added(amount for node in self.nodes for amount in node.amounts))

    @property
    def idle(self) -> tuple[NodeUse, ...]:
        """The nodes on which no pod has a GPU."""
        return tuple(node for node in self.nodes if not node.pods)

    @property
    def busy(self) -> tuple[NodeUse, ...]:
        """The nodes on which a pod has at least one GPU."""
        return tuple(node for node in self.nodes if node.pods)

    @property
    def mixed(self) -> int:
        """The number of nodes where pods of more than one namespace have GPUs."""
        return sum(len(node.pods) > 1 for node in self.nodes)


def overview(policy: Policy, facts: Facts) -> tuple[PoolUse, ...]:
    """Return every pool of a policy in its order, and last the nodes with GPUs that no pool takes, if there are any."""
    by_pool: dict[str, list[Node]] = {pool.name: [] for pool in policy.pools}
    others: list[Node] = []
    for node in facts.nodes:
        pool = policy.pool_of(node.labels)
        if pool:
            by_pool[pool.name].append(node)
        elif node.has_gpus:
            others.append(node)
    held = holders(facts)
    pools = [_pool(pool, _uses(by_pool[pool.name], held), policy, facts) for pool in policy.pools]
    rest = [PoolUse("", "", (), (), _uses(others, held))] if others else []
    return (*pools, *rest)


def _pool(pool: Pool, uses: tuple[NodeUse, ...], policy: Policy, facts: Facts) -> PoolUse:
    divisions = tuple(_divisions(pool, policy, facts)) if pool.sharing in policy.capped_sharing else ()
    return PoolUse(
        pool.name,
        pool.sharing,
        tuple(sorted(pool.trust)),
        pool.resources.patterns,
        uses,
        divisions,
        "" if divisions else _uncapped(pool, policy),
    )


def _uncapped(pool: Pool, policy: Policy) -> str:
    if not pool.shared:
        return "Each pod has its GPU or MIG device to itself, so no memory is divided."
    if pool.sharing not in policy.capped_sharing:
        return f"The policy sets no memory caps where GPUs are shared by {pool.sharing}."
    return "No node of this pool describes its GPU, and the policy assumes none."


def _divisions(pool: Pool, policy: Policy, facts: Facts) -> Iterator[Division]:
    known = Counter(card for _, card in nodes(pool, facts) if card)
    if known:
        yield from (
            Division(count, budget(card, policy, driver=pool.driver_limits)) for card, count in sorted(known.items())
        )
    elif assumed := smallest(pool, policy, facts):
        yield Division(0, assumed)


def _uses(there: Iterable[Node], held: Mapping[str, Sequence[Holder]]) -> tuple[NodeUse, ...]:
    uses = [_use(node, held.get(node.name, ())) for node in there]
    return tuple(sorted(uses, key=lambda use: (-len(use.pods), use.name)))


def _use(node: Node, held: Iterable[Holder]) -> NodeUse:
    by_namespace: dict[str, list[str]] = {}
    taken = Counter[str]()
    for holder in held:
        by_namespace.setdefault(holder.namespace, []).append(holder.name)
        taken.update(holder.asks)
    amounts = (Amount(name, taken[name], node.resources.get(name, 0)) for name in sorted({*node.resources, *taken}))
    return NodeUse(
        node.name,
        cards.product(node),
        cards.count(node),
        tuple(amount for amount in amounts if amount.held or amount.offered),
        {namespace: tuple(sorted(pods)) for namespace, pods in sorted(by_namespace.items())},
    )


def _added(amounts: Iterable[Amount]) -> Iterator[Amount]:
    held, offered = Counter[str](), Counter[str]()
    for amount in amounts:
        held[amount.resource] += amount.held
        offered[amount.resource] += amount.offered
    yield from (Amount(name, held[name], offered[name]) for name in sorted(offered))
