"""Simulates the pods of manifests on a cluster's nodes: where each lands, with whom it shares, what can harm it."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from webhook.api import admission, jsonpatch
from webhook.api.devices import CLAIM, GROUP, TEMPLATE, DeviceRequest
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string, strings
from webhook.api.metadata import labels_of, metadata_of, name_of, namespace_of
from webhook.api.objects import judges, unpaid
from webhook.api.pods import POD, Pod
from webhook.api.selectors import NOTHING, Selector
from webhook.documents.files import Item
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.memory.budget import ALL, InvalidAnnotation, wish
from webhook.model import Action, Malformed, Object, Path, Problem, Request, Verdict, dotted, immutable
from webhook.placing.claiming import NO_READER, Claims, claims_among
from webhook.placing.scheduling.allocation import AllocationError
from webhook.placing.scheduling.devices import AllocatableDevice
from webhook.placing.scheduling.filters import obstacle
from webhook.placing.scheduling.infos import CPU, MEMORY, NodeInfo, PodInfo, asked, node_info, pod_info
from webhook.placing.scheduling.play import SchedulingResult, play, queued
from webhook.placing.scheduling.scores import Strategy
from webhook.placing.scheduling.stage import ClusterState
from webhook.placing.scheduling.terms import label_selector
from webhook.policy.model import Policy, Pool
from webhook.scan import live
from webhook.scan.judge import judge
from webhook.scan.results import Judged
from webhook.text.words import listed, several

MAX_PODS = 10_000
"""Maximum pods of a run: each is tried on every node."""

Priorities = Mapping[str, tuple[int, bool]]

Denied = Mapping[tuple[str, str, str], tuple[str, ...]]
"""Why claims and templates are denied, by kind, namespace and name."""

SYSTEM: Priorities = {"system-cluster-critical": (2_000_000_000, True), "system-node-critical": (2_000_001_000, True)}
"""The priority classes that every cluster has (kubernetes pkg/apis/scheduling/v1/helpers.go)."""


@immutable
class Player:
    """A pod in the simulation: as admitted (`info`) and as written (`bare`).

    `memory` is the MiB of a GPU that it asks for by annotation, or None. `refused` says why admission denies it; it is
    then not simulated. `unplayed` lists parts of it that the scheduler considers and this simulation does not.
    """

    name: str
    item: Item
    info: PodInfo
    bare: PodInfo
    gpus: Mapping[str, int]
    memory: int | None = None
    refused: tuple[str, ...] = ()
    unplayed: tuple[str, ...] = ()

    @property
    def has_gpus(self) -> bool:
        """Whether it asks for GPUs, or has claims for devices."""
        return bool(self.gpus or self.info.claims or self.unplayed)


@dataclass(frozen=True)
class PodPlacement:
    """The result for a player: the outcome, the pool of what it has, and the pods it may share a GPU with there.

    `held` are the devices that its claims got. With these, `shares` are the pods that have one of them too.
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
    """The free amount of a resource on the nodes of a pool: `largest` is the most on one node."""

    pool: str
    resource: str
    offered: int
    free: int
    largest: int


@dataclass(frozen=True)
class Placing:
    """The result of a simulation: each pod in the order of the files, the free devices, and the parts not counted."""

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

    In the order of the items, or `at_once` by priority.
    """
    known = {_identity(item) for item in cluster if group_kind(item) == POD}
    arriving = [item for item in items if not _runs(item.value, known)]
    here = [item.value for item in items if _runs(item.value, known) and _identity(item.value) not in known]
    objects = (*cluster, *(item.value for item in items))
    world = _World(Facts.of(objects), _priorities(objects), claims_among(objects), tuple(_services(objects)))
    nodes = [node_info(item) for item in cluster if group_kind(item) == ("", "Node")]
    _settle(nodes, (*cluster, *here), world)
    stage = ClusterState(nodes, world.claims.stock)
    denied, problems = _denied_claims(items, engine, world.facts)
    players, more = _players(arriving, engine, replace(world, denied=denied), nodes)
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


@dataclass(frozen=True, eq=False)
class _World:
    """The objects that all pods of a simulation have in common.

    `services` are the namespaces and selectors of Services.

    `denied` are the claims and templates of the files that admission denies, each with the reasons.
    """

    facts: Facts
    priorities: Priorities
    claims: Claims
    services: tuple[tuple[str, Mapping[str, str]], ...]
    denied: Denied = field(default_factory=dict)

    def info(self, item: Object, name: str, peers: Selector = NOTHING) -> PodInfo:
        """Read a pod."""
        return pod_info(item, name, self.priorities, self.facts.namespaces, peers)

    def peers(self, pod: Object, owner: Object) -> Selector:
        """Return what selects the pods of a pod's services and of its workload (plugins/helper/spread.go)."""
        labels, namespace = labels_of(pod), string(metadata_of(pod).get("namespace"))
        wanted: dict[str, str] = {}
        for place, selector in self.services:
            if place == namespace and all(labels.get(key) == value for key, value in selector.items()):
                wanted |= selector
        selected = mapping(mapping(owner.get("spec")).get("selector"))
        if group_kind(owner) == ("", "ReplicationController"):
            return Selector({**wanted, **strings(selected)})
        own = label_selector(selected) if group_kind(owner) in _SPREAD else NOTHING
        return Selector({**wanted, **own.labels}, own.expressions)


_SPREAD = (("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"))
"""The workloads over whose pods the scheduler spreads; a Deployment's are those of its ReplicaSet."""


def _services(objects: Iterable[Object]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for item in objects:
        if group_kind(item) == ("", "Service"):
            selector = mapping(item.get("spec")).get("selector")
            if selector:
                yield namespace_of(item), strings(selector)


def _identity(item: Object) -> tuple[str, str]:
    return namespace_of(item), name_of(item)


def _runs(item: Object, known: Collection[tuple[str, str]]) -> bool:
    """Whether the facts, or the status that a cluster gave it, show that an object is a pod that already runs."""
    return group_kind(item) == POD and (_identity(item) in known or bool(mapping(item.get("status")).get("phase")))


def _settle(nodes: Iterable[NodeInfo], cluster: Iterable[Object], world: _World) -> None:
    """Put the running pods on their nodes, with their claims."""
    by_name = {node.name: node for node in nodes}
    for item in cluster:
        if group_kind(item) == POD and mapping(item.get("status")).get("phase") not in ("Succeeded", "Failed"):
            namespace, name = _identity(item)
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


# Pods


def _players(
    items: Iterable[Item], engine: Engine, world: _World, nodes: Sequence[NodeInfo]
) -> tuple[list[Player], list[Problem]]:
    players, problems = list[Player](), list[Problem]()
    for item in items:
        if not judges(*group_kind(item.value), engine.policy.workloads):
            continue
        refused = () if group_kind(item.value) == POD else _refused(item, engine, world.facts)
        if isinstance(refused, Problem):
            problems.append(refused)
            continue
        try:
            request = admission.decode(admission.wrap(item.value))
            views = unpaid(request, item.value, workloads=engine.policy.workloads)
            pods = [view for view in views if isinstance(view, Pod)]
            for pod in pods:
                players += _of_pod(pod, item, request, engine, world, nodes, refused, alone=len(pods) == 1)
        except Malformed as error:
            problems.append(Problem(item.source, item.line(error.path), str(error)))
        except admission.NotAReview as error:
            problems.append(Problem(item.source, item.line(("metadata",)), f"metadata: {error}"))
        if len(players) > MAX_PODS:
            text = f"makes more than {MAX_PODS} pods with those before it; play fewer at a time"
            return [], [Problem(item.source, item.line(), text)]
    return players, problems


def _of_pod(
    pod: Pod,
    item: Item,
    request: Request,
    engine: Engine,
    world: _World,
    nodes: Sequence[NodeInfo],
    refused: tuple[str, ...],
    *,
    alone: bool,
) -> Iterator[Player]:
    """Yield a Pod, or the pods that a template makes: as many as its replicas and parallelism say.

    A DaemonSet has one for each node that its template selects and whose taints it tolerates. On other nodes its
    controller makes none (kubernetes pkg/controller/daemon/daemon_controller.go, NodeShouldRunDaemonPod). `refused`
    says why admission denies the workload that has the template.
    """
    path = pod.located(pod.spec_path)[0]
    part = "" if alone else f" {dotted(path[:-1])}"
    namespace = pod.namespace or "default"
    title = f"{namespace}/{request.name or string(metadata_of(item.value).get('generateName'))}{part}"
    written = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": request.name or "pod",
            "namespace": namespace,
            "annotations": dict(pod.annotations),
            "labels": dict(pod.labels),
            "ownerReferences": _owners(item.value),
        },
        "spec": {**pod.spec, "tolerations": [*sequence(pod.spec.get("tolerations")), *OF_DAEMONS]}
        if pod.daemon
        else pod.spec,
    }
    admitted, own = (
        (written, ()) if live.passed_over(item.value, engine.policy) else _admitted(written, engine, world.facts)
    )
    refused = refused or (*own, *_denied_to(pod, namespace, world.denied))
    asks = asked(pod.spec, {})
    gpus = {name: amount for name, amount in asks.items() if amount and name in engine.policy.gpu_resources}
    try:
        memory = wish(pod.annotations).memory
    except InvalidAnnotation:
        memory = ALL.memory
    peers = world.peers(written, item.value)
    homes = _homes(world.info(written, title, peers), nodes) if pod.daemon else []
    count = len(homes) if pod.daemon else _count(item.value, path)
    for number in range(min(count, MAX_PODS + 1)):
        name = f"{title} #{number + 1}" if count > 1 else title
        info, bare = world.info(admitted, name, peers), world.info(written, name, peers)
        unplayed: tuple[str, ...] = ()
        if world.claims.unplayed:
            unplayed = (world.claims.unplayed,) if pod.spec.get("resourceClaims") else ()
        else:
            claims, missing = world.claims.of(mapping(admitted.get("spec")), namespace, name)
            info = replace(info, claims=claims, missing=missing, by_class=world.claims.classes_for(info.asks))
        if pod.daemon:
            info, bare = replace(info, node=homes[number]), replace(bare, node=homes[number])
        yield Player(name, item, info, bare, gpus, memory, refused, unplayed)


OF_DAEMONS = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
"""The tolerations that the controller of DaemonSets adds to each pod, even without `hostNetwork`.

(kubernetes pkg/controller/daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations)
"""


def _homes(template: PodInfo, nodes: Iterable[NodeInfo]) -> list[str]:
    """Return the names of the nodes on which a DaemonSet runs."""
    return [node.name for node in nodes if not obstacle(template, node)]


def _admitted(pod: Object, engine: Engine, facts: Facts) -> tuple[Object, tuple[str, ...]]:
    """Return a pod as the webhook patches it, and why it denies it."""
    verdict = engine.judge(admission.decode(admission.wrap(pod)), facts)
    if verdict.malformed is not None:
        return pod, (str(verdict.malformed),)
    return (jsonpatch.apply(pod, verdict.patch) if verdict.patch else pod), _denials(verdict)


def _refused(item: Item, engine: Engine, facts: Facts) -> tuple[str, ...] | Problem:
    """Return why admission denies an object as it is written, as `check` says."""
    judged = judge(item, engine, facts)
    if isinstance(judged, Problem):
        return judged
    return _denials(judged.verdict) if isinstance(judged, Judged) else ()


def _denied_claims(items: Iterable[Item], engine: Engine, facts: Facts) -> tuple[Denied, list[Problem]]:
    """Judge the claims and templates among the files."""
    denied, problems = dict[tuple[str, str, str], tuple[str, ...]](), list[Problem]()
    for item in items:
        group, kind = group_kind(item.value)
        if group == GROUP and kind in (CLAIM, TEMPLATE):
            refused = _refused(item, engine, facts)
            if isinstance(refused, Problem):
                problems.append(refused)
            elif refused:
                denied[kind, *_identity(item.value)] = refused
    return denied, problems


def _denied_to(pod: Pod, namespace: str, denied: Denied) -> Iterator[str]:
    """Yield why a pod does not start: a claim or a template that it names is denied."""
    for entry in mappings(pod.spec.get("resourceClaims")):
        for kind, key in ((CLAIM, "resourceClaimName"), (TEMPLATE, "resourceClaimTemplateName")):
            name = string(entry.get(key))
            for reason in denied.get((kind, namespace, name), ()):
                yield f"{kind} {name} is refused: {reason}"


def _denials(verdict: Verdict) -> tuple[str, ...]:
    return tuple(f"{result.rule}: {result.finding.message}" for result in verdict.having(Action.DENY))


def _owners(value: Object) -> list[Mapping[str, Any]]:
    """Return the owners of a Pod, or of a pod that the controller of a workload makes."""
    if group_kind(value) == POD:
        return list(mappings(metadata_of(value).get("ownerReferences")))
    own = {key: string(value.get(key)) for key in ("apiVersion", "kind")}
    return [{**own, "name": name_of(value), "controller": True}]


def _count(value: Object, path: Path) -> int:
    """Multiply the numbers around a template: a JobSet has replicas of Jobs, which have a parallelism.

    A Job has at first no more pods than completions (kubernetes pkg/controller/job/job_controller.go).
    """
    number = 1
    holder: Any = value
    for key in path:
        if isinstance(holder, dict):
            number *= _number(holder, "replicas")
            number *= min(_number(holder, "parallelism"), _number(holder, "completions", MAX_PODS + 1))
        holder = holder[key]
    return number


def _number(holder: Mapping[str, Any], key: str, default: int = 1) -> int:
    number = holder.get(key)
    return number if type(number) is int and number >= 0 else default


# Results


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
