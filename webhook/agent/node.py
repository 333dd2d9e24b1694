"""Lists the pods of the agent's node, by a watch of the API server or by the names of log files."""

import time
from collections.abc import Mapping
from pathlib import Path

from webhook.agent import pods, taint
from webhook.agent.pods import Name
from webhook.agent.standing import Standing, standing
from webhook.agent.view import Known
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping
from webhook.api.pods import POD
from webhook.api.resources import Resource
from webhook.cluster.client import Api
from webhook.cluster.watch import Cluster
from webhook.facts.kinds import kept
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.policy.model import Contention, Over, Policy, Pool
from webhook.telemetry.log import Log

STEP = 0.05
"""Seconds between two questions whether everything is listed."""

LOGS = Path("/var/log/containers")


def read(node: str) -> tuple[Resource, ...]:
    """Return what the agent of a node reads. The ClusterRole in manifests/components/agent allows exactly these."""
    return (
        Resource("", "v1", "pods", "Pod", fields=f"spec.nodeName={node}"),
        Resource("", "v1", "nodes", "Node", fields=f"metadata.name={node}"),
        Resource("", "v1", "namespaces", "Namespace"),
    )


def trimmed(item: Object) -> Object | None:
    """Return the part of an object that the agent needs: of a pod its names, its spec and the ids of its containers."""
    metadata, status = mapping(item.get("metadata")), mapping(item.get("status"))
    if group_kind(item) != POD:
        return taint.kept(item, kept(item))
    keys = ("namespace", "name", "uid", "resourceVersion", "labels", "annotations", "deletionTimestamp")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: metadata[key] for key in keys if key in metadata},
        "spec": item.get("spec"),
        "status": {key: status[key] for key in pods.STATUSES if key in status},
    }


def by_logs(folder: Path = LOGS) -> Mapping[str, Name]:
    """Read the names of this node's containers from the kubelet's log files; none where they cannot be read."""
    try:
        return pods.by_logs(file.name for file in folder.iterdir())
    except OSError:
        return {}


class Node:
    """Follows the pods of one node. While the API server is away, what it knew last stays in force."""

    def __init__(self, name: str, api: Api, policy: Policy, log: Log, logs: Path = LOGS) -> None:
        self.name, self._policy, self._logs = name, policy, logs
        self._cluster = Cluster(api, log, read=read(name), keep=trimmed)
        self._standings: dict[str, tuple[str, Facts, Standing]] = {}

    def start(self) -> None:
        """Start to follow."""
        self._cluster.start()

    def stop(self) -> None:
        """Stop to follow."""
        self._cluster.stop()

    def use(self, policy: Policy) -> None:
        """Go on by another policy."""
        self._policy = policy
        self._standings = {}

    def settled(self, seconds: float) -> bool:
        """Wait until everything has been listed once, for so many seconds at most; tell whether it has."""
        end = time.monotonic() + seconds
        while self._cluster.facts() is None and time.monotonic() < end:
            time.sleep(STEP)
        return self._cluster.facts() is not None

    def over(self) -> Over:
        """Return what the policy says of containers above their allowance in this node's pool."""
        pool = self._pool()
        return pool.over if pool else Over()

    def taint_dead(self) -> bool:
        """Tell whether the policy wants this node tainted while a card of it is dead."""
        pool = self._pool()
        return pool is not None and pool.taint_dead

    def seen(self) -> Object | None:
        """Return the part of the node that its taint needs, as the API server gave it last.

        It is None until all is known that `taint_dead` needs: an agent that has begun takes no taint away before.
        """
        facts = self._cluster.facts()
        return next(iter(self._cluster.objects("Node")), None) if facts and self.name in facts.named else None

    def contention(self) -> Contention:
        """Return how containers take turns in this node's pool; not at all while the pool is unknown."""
        pool = self._pool()
        return pool.contention if pool else Contention()

    def _pool(self) -> Pool | None:
        facts = self._cluster.facts()
        node = facts.named.get(self.name) if facts else None
        return self._policy.pool_of(node.labels) if node else None

    def known(self) -> Mapping[str, Known]:
        """Return the containers of the node by id. A container that only its log file names has a name alone."""
        facts = self._cluster.facts()
        node = facts.named.get(self.name) if facts else None
        found = {container: Known(name) for container, name in by_logs(self._logs).items()}
        standings: dict[str, tuple[str, Facts, Standing]] = {}
        for container, (name, pod) in pods.by_status(self._cluster.objects("Pod")).items():
            if facts is None or node is None:
                found[container] = Known(name, pods.uid(pod))
                continue
            version = str(mapping(pod.get("metadata")).get("resourceVersion"))
            before = self._standings.get(container)
            now = before[2] if before and before[:2] == (version, facts) else None
            if now is None:
                now = standing(pod, name.container, self._policy, facts, node)
            standings[container] = version, facts, now
            found[container] = Known(name, pods.uid(pod), now)
        self._standings = standings
        return found
