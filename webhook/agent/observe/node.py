"""Follows the containers of the agent's node, by a watch of the API server or by the names of log files."""

import json
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from webhook.agent.observe import pods
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.view import NodeContainer
from webhook.api import requests
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, string
from webhook.api.pods import POD
from webhook.api.resources import Resource
from webhook.cluster.client import Api
from webhook.cluster.decoding import decoded
from webhook.cluster.listing import LIVING
from webhook.cluster.packed import Packed
from webhook.cluster.watch import Cluster
from webhook.facts import kinds
from webhook.facts.kind import Fields
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.memory import essential
from webhook.memory.admitted import UNKNOWN, Admitted, admitted, widest
from webhook.memory.budget import PRODUCT, card_of
from webhook.memory.driver.nodes import selected
from webhook.model import Object
from webhook.policy.model import REPORT, Contention, Idle, Over, Policy, Pool
from webhook.telemetry.log import Log
from webhook.telemetry.rate_limit import TimeShare
from webhook.usage.held import NodeSlices, PodSlices, held_by

STEP = 0.05
"""Seconds between two checks that everything has been listed."""

SILENT = 660.0
"""Seconds without a message of the API server after which the known pods may be old: twice the length of a watch."""

LOGS = Path("/var/log/containers")

DEAD_CARDS = "slicewarden.dev/dead-gpus"
"""The node's annotation with the dead cards for which the agent has tainted it."""


def read(node: str) -> tuple[Resource, ...]:
    """Return the API resources that a node's agent reads: those of its ClusterRole in manifests/components/agent."""
    return (
        Resource("", "v1", "pods", "Pod", fields=f"spec.nodeName={node},{LIVING}", namespaced=True),
        Resource("", "v1", "nodes", "Node", fields=f"metadata.name={node}"),
        Resource("", "v1", "namespaces", "Namespace"),
    )


class PodSums(NamedTuple):
    """What was computed from a pod, and `of` what: its version, its node, and the labels of its namespace."""

    of: tuple[str, Node, Mapping[str, str] | None]
    admitted: Mapping[str, Admitted]
    held: PodSlices


def fields(resource: Resource) -> Fields:
    """Return the fields of a resource's objects that `trimmed` and facts read."""
    more = {"Pod": (*essential.FIELDS, *pods.FIELDS), "Node": ("metadata.annotations",)}
    return (*kinds.fields(resource), *more.get(resource.kind, ()))


def trimmed(item: Object) -> Object | None:
    """Return the part of an object that the agent needs: a pod's names, spec and container ids, or a node's labels.

    All of a pod that a tenant writes is packed, because labels may take 14 MB. Next to it are 16 names of resources.
    """
    metadata, spec, status = (mapping(item.get(key)) for key in ("metadata", "spec", "status"))
    if group_kind(item) != POD:
        return _trimmed_node(item, kinds.kept(item))
    own = {key: metadata[key] for key in essential.OWN if key in metadata}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: value for key, value in metadata.items() if key not in essential.OWN},
        "packed": Packed(json.dumps({"metadata": own, "spec": essential.essential(spec)}).encode()),
        "extended": [name for name in requests.of_spec(spec) if "/" in name][:16],
        "status": {"phase": status.get("phase"), **pods.statuses(status)},
    }


def whole(pod: Object) -> Object:
    """Return a trimmed pod with all of its metadata, and the essential part of its spec."""
    packed = decoded(pod["packed"].data())
    return {**pod, "metadata": {**pod["metadata"], **packed["metadata"]}, "spec": packed["spec"]}


def _trimmed_node(item: Object, part: Object | None) -> Object | None:
    """Return `part` of an object. For a node, add its version and the agent's annotation, which a patch needs."""
    metadata = mapping(item.get("metadata"))
    if part is None or string(item.get("kind")) != "Node":
        return part
    own = {key: value for key, value in mapping(metadata.get("annotations")).items() if key == DEAD_CARDS}
    return {**part, "metadata": {**metadata, **mapping(part.get("metadata")), "annotations": own}}


def by_logs(folder: Path = LOGS) -> Mapping[str, ContainerName]:
    """Read the names of this node's containers from the kubelet's log files; empty if the folder cannot be read."""
    try:
        return pods.by_logs(file.name for file in folder.iterdir())
    except OSError:
        return {}


def links(folder: Path, names: Mapping[str, ContainerName]) -> Mapping[str, str]:
    """Return the targets of the kubelet's links to these containers' logs, by id, if they can be read."""
    found = dict[str, str]()
    for container, (namespace, pod, name) in names.items():
        with suppress(OSError):
            found[container] = str((folder / f"{pod}_{namespace}_{name}-{container}.log").readlink())
    return found


def named_by_logs() -> Mapping[str, NodeContainer]:
    """Return this node's containers by id, with only the names of their log files."""
    return {container: NodeContainer(name) for container, name in by_logs().items()}


class NodeWatch:
    """Follows the containers of one node. While the API server cannot be reached, the last known state is used."""

    def __init__(self, name: str, api: Api, policy: Policy, log: Log, logs: Path = LOGS) -> None:
        self.name, self._policy, self._logs = name, policy, logs
        self._cluster = Cluster(api, log, read=read(name), keep=trimmed, fields=fields)
        self._sums: dict[str, PodSums] = {}
        self._share = TimeShare()

    def start(self) -> None:
        """Start the watches."""
        self._cluster.start()

    def stop(self) -> None:
        """Stop the watches."""
        self._cluster.stop()

    def use(self, policy: Policy) -> None:
        """Follow another policy from now on."""
        self._policy = policy
        self._sums = {}

    def settled(self, seconds: float) -> bool:
        """Wait until every resource has been listed once, for at most so many seconds. Returns whether all have."""
        end = time.monotonic() + seconds
        while self._cluster.facts() is None and time.monotonic() < end:
            time.sleep(STEP)
        return self._cluster.facts() is not None

    def over(self) -> Over:
        """Return the policy of this node's pool on containers above their allowance.

        If the policy only records, no container is evicted or killed.
        """
        pool = self._pool()
        rules = pool.over if pool else Over()
        return rules._replace(action=REPORT) if self._policy.only_records else rules

    def idle(self) -> Idle | None:
        """Return the pool's policy on containers that do no work; None if there is none. Audit mode only reports."""
        pool = self._pool()
        rules = pool.idle if pool else None
        return rules._replace(action=REPORT) if rules and self._policy.only_records else rules

    def taint_dead(self) -> bool:
        """Whether the policy asks for a taint while a card of this node is dead."""
        return bool((pool := self._pool()) and pool.taint_dead)

    def driver_limits(self) -> bool:
        """Whether the policy has the driver limit containers on this node."""
        return bool((pool := self._pool()) and pool.driver_limits)

    def by_hook(self) -> bool:
        """Whether the policy has NVIDIA's hook limit containers on this node, before they start."""
        return bool((pool := self._pool()) and pool.driver_limits and selected(pool))

    def seen(self) -> Object | None:
        """Return the last known state of the node, with the fields that the taint needs.

        Returns None until `taint_dead` is known, so that an agent that has just started removes no taint.
        """
        facts = self._cluster.facts()
        return next(iter(self._cluster.objects("Node")), None) if facts and self.name in facts.named else None

    def contention(self) -> Contention:
        """Return how containers of this node's pool take turns on a card. While the pool is unknown, they do not."""
        return pool.contention if (pool := self._pool()) else Contention()

    def slices(self) -> NodeSlices:
        """Return which containers have slices of this node's cards.

        Nothing is known before every resource has been listed. A node has no slices if it is in no pool, or if its
        labels do not give the number of slices. While the API server has been silent for SILENT seconds, a new pod may
        have slices without being known, so the answer is marked as not complete.
        """
        facts, pool = self._cluster.facts(), self._pool()
        node = facts.named.get(self.name) if facts else None
        card = card_of(node) if node else None
        if facts is None or node is None or pool is None or (pool.shared and card is None):
            return NodeSlices()
        held = [self._sums_of(pod, facts, node).held for pod in self._cluster.objects("Pod")]
        return NodeSlices(
            card.replicas if pool.shared and card else 1,
            pool.name,
            node.labels.get(PRODUCT, ""),
            tuple(each for known in held for each in known.held),
            self._cluster.age() < SILENT and all(known.complete for known in held),
        )

    def _pool(self) -> Pool | None:
        facts = self._cluster.facts()
        node = facts.named.get(self.name) if facts else None
        return self._policy.pool_of(node.labels) if node else None

    def containers(self) -> Mapping[str, NodeContainer]:
        """Return the node's containers by id. A container that is known only by its log file has only its names.

        A container that is not yet in its pod's status is never frozen: the kubelet may be running its postStart hook.
        """
        names, known = by_logs(self._logs), self._cluster.objects("Pod")
        found = {container: NodeContainer(name) for container, name in names.items()}
        reported = pods.by_status(known)
        new = {name for container, name in names.items() if container not in reported}
        logs = links(self._logs, {container: name for container, name in names.items() if name in new})
        started = pods.unreported(known, names, logs) if logs else {}
        for container, (name, pod) in {**started, **reported}.items():
            own = self._admitted_of(pod).get(name.container, UNKNOWN)
            bears = own._replace(pause=None) if container in started else own
            found[container] = NodeContainer(name, pods.uid(pod), bears)
        return found

    def pods(self) -> Mapping[str, NodeContainer]:
        """Return the running pods with containers that the driver must limit, by uid.

        Each pod is represented by a container without a name, with the widest limit of the pod's containers.
        """
        known = self._cluster.objects("Pod")
        own = {uid: (pod, widest(self._admitted_of(pod).values())) for uid, pod in pods.running(known).items()}
        here = {*map(pods.uid, known)}
        self._sums = {uid: each for uid, each in self._sums.items() if uid in here}
        self._share.forget()
        return {
            uid: NodeContainer(pods.named(pod, pods.UNNAMED), uid, most)
            for uid, (pod, most) in own.items()
            if most != UNKNOWN
        }

    def _admitted_of(self, pod: Object) -> Mapping[str, Admitted]:
        """Return what the containers of a pod were admitted with, by name; nothing while the node is not known."""
        facts = self._cluster.facts()
        node = facts.named.get(self.name) if facts else None
        return {} if facts is None or node is None else self._sums_of(pod, facts, node).admitted

    def _sums_of(self, pod: Object, facts: Facts, node: Node) -> PodSums:
        """Return what is computed from a pod, again only if something that was read for it has changed.

        Unpacking a large one takes up to 0.2 s, and its tenant may change it each second. So it waits for its turn, and
        the last result counts. A pod that requests a GPU, of which a node has few, waits only if it is known.
        """
        metadata, uid = mapping(pod.get("metadata")), pods.uid(pod)
        of = str(metadata.get("resourceVersion")), node, facts.namespaces.get(string(metadata.get("namespace")))
        sums = self._sums.get(uid)
        if sums is not None and sums.of == of:
            return sums
        is_new = sums is None and any(name in self._policy.gpu_resources for name in pod["extended"])
        waits = pod["packed"].large and not is_new
        if waits and not self._share.is_next(uid):
            return sums or PodSums(of, {}, PodSlices(complete=False))
        with self._share.spent(uid) if waits else nullcontext():
            item = whole(pod)
            sums = PodSums(of, admitted(item, self._policy, facts, node), held_by(item, self._policy, facts))
        self._sums[uid] = sums
        return sums
