"""Compares kinds of sharing: how many of the same workloads would run on the same GPUs under each."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, string
from webhook.api.metadata import name_of, namespace_of
from webhook.api.pods import POD
from webhook.api.selectors import NodeSelectorTerm, Requirement
from webhook.api.taints import Toleration
from webhook.catalog import mig_profiles
from webhook.catalog.mig_profiles import MIGProfile
from webhook.deviceplugin.cards import count as cards_of
from webhook.documents.files import Item
from webhook.model import Object
from webhook.placing.placing import RISKS, Placing
from webhook.placing.players import Player
from webhook.placing.scheduling.infos import CPU, MEMORY, PODS, NodeInfo, PodInfo
from webhook.placing.scheduling.play import play
from webhook.placing.scheduling.scores import Strategy
from webhook.placing.scheduling.stage import ClusterState
from webhook.policy.model import API_VERSION, Policy
from webhook.scan import live
from webhook.starter.inventory import GPUNode, gpu_nodes
from webhook.text import tables
from webhook.text.words import several
from webhook.usage.advice import CONTEXT, SizeAdvice
from webhook.usage.held import workload

SLICES = (2, 4, 8)
"""The numbers of slices that are compared for time-slicing and MPS, as far as the policy allows them."""

ASSUMED = (
    "every GPU of the cluster is free, and divided in the same way; GPUs without the MIG profile stay whole",
    "pods keep their own node selection and tolerate the taints of GPU nodes; pools and trust are not counted",
    "time-slicing and MPS divide the memory of a GPU evenly, and only MPS enforces that; a MIG device has 900 MiB for "
    "each GB in its profile's name",
    "a pod needs the memory that its annotation slicewarden.dev/gpu-memory asks for; without one, {without}",
    "a pod of several GPUs fits whole GPUs alone: two slices may be of one GPU",
    "speed is not compared: how much pods hinder each other depends on what they run",
)
"""The assumptions of a comparison. `without` stands for what a pod without the annotation needs."""

ANY = "any slice will do"


@dataclass(frozen=True)
class NodeCards:
    """The cards of a node: their number, product and memory in MiB (None if unknown)."""

    node: NodeInfo
    count: int
    product: str
    memory: int | None


@dataclass(frozen=True)
class SharingOption:
    """A way to divide all cards: the kind of sharing, and the name of the resulting devices."""

    sharing: str
    name: str
    slices: int = 1
    profiles: tuple[str, ...] = ()


@dataclass(frozen=True)
class OptionResult:
    """The result of one way to divide the cards: all devices, how many are `whole` GPUs, and what became of the pods.

    `memory` is the MiB of the smallest device; if there are MIG devices, only these count. `many` counts the pods that
    request more whole GPUs than any node has, and `large` those that request more memory than any device has; both are
    refused. The others find a node or wait.
    """

    division: SharingOption
    devices: int
    whole: int
    memory: int | None
    land: int
    wait: int
    many: int
    large: int


MemoryNeeds = Mapping[tuple[str, str], int]
"""The MiB that the usage record shows a workload to need, by its namespace, and its kind and name."""


def needs(sizes: SizeAdvice) -> dict[tuple[str, str], int]:
    """Return the needs that are known, as `slicewarden advise` finds them."""
    return {(each.namespace, each.workload): each.need for each in sizes.workloads if each.need}


def measured(placing: Placing, known: MemoryNeeds) -> dict[tuple[str, str], int]:
    """Return the needs that a comparison uses: those of pods that ask for one GPU, and for no memory of it."""
    names = {_workload(player) for player in placing.players if _measured(player, known) is not None}
    return {name: known[name] for name in sorted(names)}


def _measured(player: Player, known: MemoryNeeds) -> int | None:
    one = player.memory is None and sum(player.gpus.values()) == 1
    return known.get(_workload(player)) if one else None


def _workload(player: Player) -> tuple[str, str]:
    """Return the namespace of a player, and the name that the usage record has for its workload."""
    value = player.item.value
    kind, name = string(value.get("kind")), name_of(value)
    if group_kind(value) == POD:
        return namespace_of(value) or "default", workload(mapping(value.get("metadata"))) or f"Pod/{name}"
    return namespace_of(value) or "default", f"{kind}/{name}"


def to_place(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items to simulate. Running pods are yielded without their node and status.

    Pods that have ended are left out, and so are pods of a workload that is among the items.
    """
    items = list(items)
    there = {(namespace_of(item.value), string(item.value.get("kind")), name_of(item.value)) for item in items}
    for item in items:
        if group_kind(item.value) != POD:
            yield item
        elif not live.ended(item.value) and not any(owner in there for owner in _owners(item.value)):
            spec = {key: value for key, value in mapping(item.value.get("spec")).items() if key != "nodeName"}
            yield replace(item, value={**item.value, "spec": spec, "status": {}})


def _owners(pod: Object) -> Iterator[tuple[str, str, str]]:
    """Yield the namespace, kind and name of a pod's owners, and of the Deployment of its ReplicaSet."""
    yield (namespace_of(pod), *live.owner(pod))
    for owner in mappings(mapping(pod.get("metadata")).get("ownerReferences")):
        yield namespace_of(pod), string(owner.get("kind")), string(owner.get("name"))


def compare(placing: Placing, policy: Policy, known: MemoryNeeds = MappingProxyType({})) -> tuple[OptionResult, ...]:
    """Simulate the pods that request GPUs on the cluster's cards, divided in each way. `known` are measured needs."""
    cards = _cards(placing, policy)
    players = [player for player in placing.players if player.gpus]
    limit = policy.limits.max_replicas
    divisions = [SharingOption("none", "whole GPUs")]
    for sharing, words in (("time-slicing", "time-slicing"), ("mps", "MPS")):
        divisions += [
            SharingOption(sharing, f"{words}, {slices} slices", slices) for slices in SLICES if slices <= limit
        ]
    divisions += _mig(cards)
    return tuple(_row(division, cards, players, known) for division in divisions) if cards else ()


def _cards(placing: Placing, policy: Policy) -> list[NodeCards]:
    by_name = {node.name: node for node in placing.nodes}
    return [
        NodeCards(by_name[each.node.name], count, each.product, each.card.memory if each.card else None)
        for each in gpu_nodes(placing.cluster)
        if (count := _count(each, policy))
    ]


def _count(node: GPUNode, policy: Policy) -> int:
    """Return how many cards a node has, by its labels or by the GPUs that it offers."""
    if known := cards_of(node.node):
        return known
    offered = sum(amount for name, amount in node.resources.items() if name in policy.gpu_resources)
    return offered // node.replicas if node.sharing != "mig" else 0


def _mig(cards: Iterable[NodeCards]) -> Iterator[SharingOption]:
    """Yield the divisions by MIG: every card that supports it is divided into this many devices."""
    known = [_profiles(card) for card in cards]
    for devices in sorted({profile.devices for profiles in known for profile in profiles}):
        names = sorted({profile.name for profiles in known if (profile := _profile(profiles, devices))})
        yield SharingOption("mig", f"MIG, {' and '.join(names)}", devices, tuple(names))


def _profiles(card: NodeCards) -> tuple[MIGProfile, ...]:
    return mig_profiles.of(card.product, card.memory) if card.memory else ()


def _profile(profiles: Sequence[MIGProfile], devices: int) -> MIGProfile | None:
    return next((profile for profile in profiles if profile.devices == devices), None)


@dataclass(frozen=True)
class _Cut:
    """A node under a division: its devices, and the memory of each in MiB."""

    card: NodeCards
    devices: int
    memory: int | None

    @property
    def whole(self) -> bool:
        """Whether the devices of this division are whole cards."""
        return self.devices == self.card.count


def _cut(card: NodeCards, division: SharingOption) -> _Cut:
    """Divide the cards of a node. A card without the division's MIG profiles stays whole."""
    if division.sharing == "mig":
        profile = _profile(_profiles(card), division.slices)
        if profile is None:
            return _Cut(card, card.count, card.memory)
        return _Cut(card, card.count * profile.devices, profile.memory)
    return _Cut(card, card.count * division.slices, card.memory // division.slices if card.memory else None)


def _wanted(player: Player, division: SharingOption, known: MemoryNeeds) -> int | None:
    """Return the MiB of a device that a pod needs; None if any will do.

    A measured need is the cap that a program must have, which is up to CONTEXT MiB below its slice (webhook.usage).
    """
    need = _measured(player, known)
    if need is None:
        return player.memory
    return need + CONTEXT if division.slices > 1 and division.sharing != "mig" else need


def _row(
    division: SharingOption, cards: Sequence[NodeCards], players: Sequence[Player], known: MemoryNeeds
) -> OptionResult:
    cuts = [_cut(card, division) for card in cards]
    nodes = [_node(cut) for cut in cuts]
    largest = max((cut.memory for cut in cuts if cut.memory), default=None)
    pods, many, large = list[PodInfo](), 0, 0
    for player in players:
        count, memory = sum(player.gpus.values()), _wanted(player, division, known)
        if count > 1 and not any(cut.whole and cut.devices >= count for cut in cuts):
            many += 1
        elif memory and largest and memory > largest:
            large += 1
        else:
            pods.append(_pod(player, memory))
    land = sum(bool(outcome.node) for outcome in play(pods, ClusterState(nodes), Strategy.PACK))
    divided = [cut for cut in cuts if not cut.whole] or cuts
    least = min((cut.memory for cut in divided if cut.memory), default=None)
    whole = sum(cut.devices for cut in cuts if cut.whole)
    return OptionResult(division, sum(cut.devices for cut in cuts), whole, least, land, len(pods) - land, many, large)


_WHOLE, _MIB, _DEVICE = "slice/whole", "slice/memory", "slice/device"
"""Names for the simulation: the resources of a divided node, and the label that pods select it with."""


def _node(cut: _Cut) -> NodeInfo:
    """Return a node that offers devices, with its cpu and memory, and none of its pods."""
    node = cut.card.node
    plain = {name: amount for name, amount in node.allocatable.items() if name in (CPU, MEMORY, PODS)}
    said = {_WHOLE: str(cut.whole), **({_MIB: str(cut.memory)} if cut.memory else {})}
    return NodeInfo(node.name, {**node.labels, **said}, node.taints, {**plain, _DEVICE: cut.devices})


def _pod(player: Player, memory: int | None) -> PodInfo:
    """Return a pod that requests devices: several if cards are whole, and large ones if its memory is known."""
    pod, count = player.bare, sum(player.gpus.values())
    asks = {name: amount for name, amount in pod.asks.items() if name in (CPU, MEMORY, PODS)}
    terms = pod.terms
    if memory:
        enough = Requirement(_MIB, "Gt", frozenset((str(memory - 1),)))
        own = [NodeSelectorTerm()] if terms is None else [term for term in terms if term.labels or term.fields]
        terms = tuple(term._replace(labels=(*term.labels, enough)) for term in own)
    return replace(
        pod,
        asks={**asks, _DEVICE: count},
        selector={**pod.selector, **({_WHOLE: "True"} if count > 1 else {})},
        terms=terms,
        tolerations=(Toleration("", "Exists", "", ""),),
        priority=0,
        node="",
        claims=(),
        by_class={},
        missing="",
    )


# Output


def assumed(used: MemoryNeeds) -> list[str]:
    """Return the assumptions of a comparison that has used these measured needs."""
    shown = f"what its usage record shows, which is known of {several(len(used), 'workload')}; for others, {ANY}"
    return [each.format(without=shown if used else ANY) for each in ASSUMED]


def table(rows: Sequence[OptionResult], used: MemoryNeeds = MappingProxyType({})) -> str:
    """Write the comparison as a table, and the assumptions below it. `used` are the measured needs."""
    if not rows:
        return "No GPU is offered as a resource: devices of claims are not compared.\n"
    cells: list[tuple[str, ...]] = [("sharing", "devices", "whole", "memory", "land", "wait", "refused")]
    for row in rows:
        memory = f"{row.memory} MiB" if row.memory else "?"
        numbers = (row.devices, row.whole, memory, row.land, row.wait, row.many + row.large)
        cells.append((row.division.name, *map(str, numbers)))
    risks = {row.division.sharing: RISKS[row.division.sharing] for row in rows}
    lines = [*tables.columns(cells, right=range(1, 7)), "", "between pods on one GPU:"]
    lines += [f"- {sharing}: {risk}" for sharing, risk in risks.items()]
    if used:
        body = [(namespace, name, str(need)) for (namespace, name), need in used.items()]
        lines += ["", *tables.columns([("namespace", "workload", "need MiB"), *body], right=(2,))]
    lines += ["", "assumed:", *(f"- {each}" for each in assumed(used))]
    return "".join(f"{line}\n" for line in lines)


def write(rows: Sequence[OptionResult], used: MemoryNeeds = MappingProxyType({})) -> str:
    """Write a SharingAdvice in JSON. Memory is in MiB, and `used` are the measured needs."""
    value = {
        "apiVersion": API_VERSION,
        "kind": "SharingAdvice",
        "divisions": [
            {
                "sharing": row.division.sharing,
                "slices": row.division.slices,
                "profiles": [*row.division.profiles],
                "devices": row.devices,
                "whole": row.whole,
                "memory": row.memory,
                "land": row.land,
                "wait": row.wait,
                "refused": {"severalGPUs": row.many, "moreMemory": row.large},
                "risk": RISKS[row.division.sharing],
            }
            for row in rows
        ],
        "measured": [
            {"namespace": namespace, "workload": name, "needMiB": need} for (namespace, name), need in used.items()
        ],
        "assumed": assumed(used),
    }
    return json.dumps(value, indent=2) + "\n"
