"""Makes the pods of a simulation: the pods that manifests create, after the webhook has admitted them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from webhook.api import admission, jsonpatch
from webhook.api.devices import CLAIM, GROUP, TEMPLATE
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
from webhook.placing.claiming import Claims
from webhook.placing.scheduling.filters import obstacle
from webhook.placing.scheduling.infos import NodeInfo, PodInfo, asked, pod_info
from webhook.placing.scheduling.terms import label_selector
from webhook.scan import live
from webhook.scan.judge import judge
from webhook.scan.results import Judged

MAX_PODS = 10_000
"""Maximum pods of a run: each is tried on every node."""

Priorities = Mapping[str, tuple[int, bool]]

Denied = Mapping[tuple[str, str, str], tuple[str, ...]]
"""Why claims and templates are denied, by kind, namespace and name."""


@immutable
class Player:
    """A pod in the simulation: as admitted (`info`) and as written (`bare`).

    `memory` is the MiB of a GPU that it requests by annotation, or None. If admission denies it, `refused` is the
    reason, and it is not simulated. `unplayed` lists parts of it that the scheduler considers and this simulation does
    not.
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
        """Whether the pod requests GPUs, or has claims for devices."""
        return bool(self.gpus or self.info.claims or self.unplayed)


@dataclass(frozen=True, eq=False)
class World:
    """The objects that all pods of a simulation have in common.

    `services` are the namespaces and selectors of Services. `denied` has the claims and templates of the files that
    admission denies, each with the reasons.
    """

    facts: Facts
    priorities: Priorities
    claims: Claims
    services: tuple[tuple[str, Mapping[str, str]], ...]
    denied: Denied = field(default_factory=dict)

    def info(self, item: Object, name: str, peers: Selector = NOTHING) -> PodInfo:
        """Return what the scheduler reads of a pod."""
        return pod_info(item, name, self.priorities, self.facts.namespaces, peers)

    def peers(self, pod: Object, owner: Object) -> Selector:
        """Return a selector of the pods of a pod's services and workload (plugins/helper/spread.go)."""
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


def identity(item: Object) -> tuple[str, str]:
    """Return an object's namespace and name."""
    return namespace_of(item), name_of(item)


def players_of(
    items: Iterable[Item], engine: Engine, world: World, nodes: Sequence[NodeInfo]
) -> tuple[list[Player], list[Problem]]:
    """Return the pods that items create, and the problems of items that cannot be simulated."""
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
    world: World,
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


def denied_claims(items: Iterable[Item], engine: Engine, facts: Facts) -> tuple[Denied, list[Problem]]:
    """Judge the claims and templates among the files, and return those that are denied with the reasons."""
    denied, problems = dict[tuple[str, str, str], tuple[str, ...]](), list[Problem]()
    for item in items:
        group, kind = group_kind(item.value)
        if group == GROUP and kind in (CLAIM, TEMPLATE):
            refused = _refused(item, engine, facts)
            if isinstance(refused, Problem):
                problems.append(refused)
            elif refused:
                denied[kind, *identity(item.value)] = refused
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
