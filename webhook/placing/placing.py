"""Simulates the pods of manifests on a cluster's nodes: where each would run, and which pods share a GPU with it."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from webhook.api.devices import DeviceRequest
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, strings
from webhook.api.metadata import name_of, namespace_of
from webhook.api.pods import POD
from webhook.documents.files import Item
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Object, Problem
from webhook.placing.claiming import NO_READER, Claims, claims_among
from webhook.placing.players import Player, Priorities, World, denied_claims, identity, players_of
from webhook.placing.scheduling.allocation import AllocationError
from webhook.placing.scheduling.devices import AllocatableDevice
from webhook.placing.scheduling.infos import CPU, MEMORY, NodeInfo, node_info
from webhook.placing.scheduling.play import SchedulingResult, play, queued
from webhook.placing.scheduling.scores import Strategy
from webhook.placing.scheduling.stage import ClusterState
from webhook.policy.model import Policy, Pool
from webhook.text.words import listed, several

SYSTEM: Priorities = {"system-cluster-critical": (2_000_000_000, True), "system-node-critical": (2_000_001_000, True)}
"""The priority classes that every cluster has (kubernetes pkg/apis/scheduling/v1/helpers.go)."""


@dataclass(frozen=True)
class PodPlacement:
    """The result for a pod: its outcome, the pool of its GPU, and the pods that may share a GPU with it.

    `held` are the devices that its claims got. If it has such devices, `shares` are only the pods that have one of them
    too.
    """

    player: Player
    outcome: SchedulingResult | None
    pool: Pool | None = None
    shares: tuple[str, ...] = ()
    clique: str = ""
    held: tuple[AllocatableDevice, ...] = ()

    @property
    def risk(self) -> str:
        """The risk from other pods on its node; empty if it has no GPU there."""
        return RISKS[self.pool.sharing] if self.pool and (self.player.gpus or self.held) else ""


RISKS: Mapping[str, str] = {
    "time-slicing": "no isolation: a neighbour can take the memory, or hang or crash the GPU",
    "mps": "memory is limited; a fault of one client ends all clients of the GPU",
    "mig": "memory and faults are isolated; only the card is shared",
    "none": "the GPU is its own",
}
"""The harm that pods on one card can do to each other, by the kind of sharing (docs.nvidia.com, MPS and MIG)."""


@dataclass(frozen=True)
class Left:
    """The free amount of a resource on the nodes of a pool. `largest` is the largest free amount of one node."""

    pool: str
    resource: str
    offered: int
    free: int
    largest: int


@dataclass(frozen=True)
class Placing:
    """The result of a simulation: each pod in the order of the files, the free devices, and what was ignored."""

    places: tuple[PodPlacement, ...]
    left: tuple[Left, ...]
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    policy: str = ""
    players: tuple[Player, ...] = field(default=(), repr=False)
    nodes: tuple[NodeInfo, ...] = field(default=(), repr=False)
    cluster: Sequence[Object] = field(default=(), repr=False)

    @property
    def waiting(self) -> int:
        """The number of pods that found no node."""
        return sum(place.outcome is not None and not place.outcome.node for place in self.places)

    @property
    def refused(self) -> int:
        """The number of pods that admission denies."""
        return sum(bool(place.player.refused) for place in self.places)


def placing(
    items: Sequence[Item],
    cluster: Sequence[Object],
    engine: Engine,
    *,
    at_once: bool = False,
    strategy: Strategy = Strategy.SPREAD,
) -> Placing:
    """Admit the pods of the items, and simulate them on the nodes of a cluster next to its pods.

    They are scheduled in the order of the items or, with `at_once`, by priority.
    """
    known = {identity(item) for item in cluster if group_kind(item) == POD}
    arriving = [item for item in items if not _runs(item.value, known)]
    here = [item.value for item in items if _runs(item.value, known) and identity(item.value) not in known]
    objects = (*cluster, *(item.value for item in items))
    world = World(Facts.of(objects), _priorities(objects), claims_among(objects), tuple(_services(objects)))
    nodes = [node_info(item) for item in cluster if group_kind(item) == ("", "Node")]
    _settle(nodes, (*cluster, *here), world)
    stage = ClusterState(nodes, world.claims.stock)
    denied, problems = denied_claims(items, engine, world.facts)
    players, more = players_of(arriving, engine, replace(world, denied=denied), nodes)
    problems += more
    entering = [player.info for player in players if not player.refused]
    outcomes = {
        id(outcome.pod): outcome for outcome in play(queued(entering) if at_once else entering, stage, strategy)
    }
    by_name = {node.name: node for node in nodes}
    places = tuple(_place(player, outcomes.get(id(player.info)), by_name, stage, engine.policy) for player in players)
    notes = (
        *_notes(nodes, players, len(items) - len(arriving)),
        *_unknown_classes(players, world.priorities),
        *_uncounted(world.claims, engine.policy),
    )
    left = (*_left(nodes, engine.policy), *_left_of_classes(stage, engine.policy))
    named = engine.policy.name
    return Placing(places, left, notes, tuple(problems), named, tuple(players), tuple(nodes), cluster)


def _services(objects: Iterable[Object]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for item in objects:
        if group_kind(item) == ("", "Service"):
            selector = mapping(item.get("spec")).get("selector")
            if selector:
                yield namespace_of(item), strings(selector)


def _runs(item: Object, known: Collection[tuple[str, str]]) -> bool:
    """Whether the facts, or the status that a cluster gave it, show that an object is a pod that already runs."""
    return group_kind(item) == POD and (identity(item) in known or bool(mapping(item.get("status")).get("phase")))


def _settle(nodes: Iterable[NodeInfo], cluster: Iterable[Object], world: World) -> None:
    """Put the running pods on their nodes, with their claims."""
    by_name = {node.name: node for node in nodes}
    for item in cluster:
        if group_kind(item) == POD and mapping(item.get("status")).get("phase") not in ("Succeeded", "Failed"):
            namespace, name = identity(item)
            claims = world.claims.held_by(item, namespace)
            info = replace(world.info(item, f"{namespace}/{name}"), claims=claims)
            if node := by_name.get(info.node):
                node.add(info)
                for claim in claims:
                    claim.users.append(info.name)


def _priorities(objects: Iterable[Object]) -> Priorities:
    """Read the PriorityClasses among some objects; "" is the default of the cluster."""
    found = dict(SYSTEM)
    for item in objects:
        if group_kind(item) == ("scheduling.k8s.io", "PriorityClass"):
            value = item.get("value")
            entry = (value if type(value) is int else 0, item.get("preemptionPolicy") != "Never")
            found[name_of(item)] = entry
            if item.get("globalDefault") is True:
                found[""] = entry
    return found


def _place(
    player: Player, outcome: SchedulingResult | None, nodes: Mapping[str, NodeInfo], stage: ClusterState, policy: Policy
) -> PodPlacement:
    if outcome is None or not outcome.node:
        return PodPlacement(player, outcome)
    node, claims = nodes[outcome.node], stage.claims(player.info)
    pool = policy.pool_of(node.labels)
    held = tuple(one.device for claim in claims for one in claim.held or ())
    if held:
        classes = (one.device_class for claim in claims for ones in claim.requests for one in ones)
        pool = next((pool for name in classes for pool in policy.pools_of_class(name)), pool)
        beside = (name for one in held for claim in stage.stock.holders.get(one.id, ()) for name in claim.users)
        shares = tuple(sorted(set(beside) - {player.name}))
    else:
        shares = tuple(_sharing(player, node)) if pool and pool.shared and player.gpus else ()
    return PodPlacement(player, outcome, pool, shares, node.labels.get(CLIQUE, ""), held)


CLIQUE = "nvidia.com/gpu.clique"
"""The label of nodes whose GPUs are connected by NVLink (k8s-device-plugin internal/lm, imex)."""


def _sharing(player: Player, node: NodeInfo) -> list[str]:
    beside = (each for each in node.pods if each is not player.info)
    return sorted(each.name for each in beside if any(each.asks.get(name) for name in player.gpus))


def _uncounted(claims: Claims, policy: Policy) -> Iterator[str]:
    """Yield a line for pools whose devices are not counted, because the extra is not installed."""
    pools = [pool.name for pool in policy.pools if pool.device_classes.patterns]
    if pools and claims.unplayed == NO_READER:
        yield f"what is left of the device classes of {listed(pools, _POOLS)} is not counted: {NO_READER}"


_POOLS = 3
"""Maximum number of pools named on one line."""


def _left_of_classes(stage: ClusterState, policy: Policy) -> Iterator[Left]:
    """Yield what is left of the devices that a pool's classes select; a shared one is free until all is taken."""
    for pool in policy.pools:
        for name in sorted(stage.stock.classes):
            if name in pool.device_classes:
                yield from _left_of_class(pool.name, name, stage)


def _left_of_class(pool: str, name: str, stage: ClusterState) -> Iterator[Left]:
    ask = DeviceRequest((), name, everything=False, admin=False, selectors=())
    try:
        devices = [each for of in stage.stock.pools for each in of.devices if stage.stock.selects(ask, each)]
    except AllocationError:
        return
    free = Counter(each.where.node for each in devices if not stage.stock.is_full(each))
    yield Left(pool, f"devices of {name}", len(devices), free.total(), max(free.values(), default=0))


def _left(nodes: Iterable[NodeInfo], policy: Policy) -> Iterator[Left]:
    offered, free, largest = Counter[tuple[str, str]](), Counter[tuple[str, str]](), dict[tuple[str, str], int]()
    for node in nodes:
        pool = policy.pool_of(node.labels)
        for name, amount in node.allocatable.items():
            if amount and name in policy.gpu_resources:
                key, rest = (pool.name if pool else "", name), amount - node.used[name]
                offered[key] += amount
                free[key] += rest
                largest[key] = max(largest.get(key, 0), rest)
    for pool_name, resource in sorted(offered):
        key = pool_name, resource
        yield Left(pool_name, resource, offered[key], free[key], largest[key])


def _notes(nodes: Sequence[NodeInfo], players: Sequence[Player], running: int) -> Iterator[str]:
    if running:
        yield f"{several(running, 'pod')} of the files {'runs' if running == 1 else 'run'} already, by the facts"
    if not any(CPU in node.allocatable or MEMORY in node.allocatable for node in nodes):
        yield "cpu and memory are not counted: these facts do not have them; give the output of kubectl get -o json"
    for reason, count in Counter(reason for player in players for reason in player.unplayed).items():
        yield f"claims of {several(count, 'pod')} are not counted: {reason}"


def _unknown_classes(players: Iterable[Player], priorities: Priorities) -> Iterator[str]:
    """Note the unknown priority classes of pods that have no priority yet."""
    named = {player.info.priority_class for player in players if not player.refused}
    for name in sorted(named - {"", *priorities}):
        yield f"PriorityClass {name} is not among the facts: played with priority 0"
