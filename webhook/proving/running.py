"""Plans the pods that `slicewarden prove --run` starts: for which probes, with which fields, and on which node."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, mappings, string
from webhook.catalog.device_variables import VISIBLE
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.proving import capacity
from webhook.proving.capacity import MemoryCap
from webhook.proving.probes import NAME, ProbeTarget, probe
from webhook.proving.proof import PATCH, Outcome, Shown, Tried
from webhook.proving.ways import NODE, GPUWay

MANAGED_BY, MANAGER = "app.kubernetes.io/managed-by", "slicewarden-prove"
INSTANCE = "app.kubernetes.io/instance"
"""The label with the id of a run."""

UNTIL = "slicewarden.dev/prove-until"
"""The annotation of a run's object with the time by which the run ends, or renews it."""

RELEASED = "slicewarden:0.1.0"
"""The image of this release, as the manifests name it."""

HOSTNAME = "kubernetes.io/hostname"

SECONDS = 120
"""How long a pod may run by default, in seconds. The time includes the pull of its image."""

SLACK = 30
"""Seconds after which a pod is given up that was not scheduled, or that outlives its `activeDeadlineSeconds`."""

MARGIN = 30
"""Seconds for the calls between two pods of a run, and for clocks that differ."""

LONGEST = 3600
"""Seconds. A run that claims to go on for longer is not believed: anyone in the namespace may write its object."""

PYTHON, PROGRAM = ("python3", "-I"), ("-m", "webhook.proving.probe")
"""The program in a pod. It writes its report to the container's termination message."""

LIMITS: Object = {"cpu": "500m", "memory": "512Mi"}
REQUESTS: Object = {"cpu": "50m", "memory": "64Mi"}


class ProbeRun(NamedTuple):
    """A run of pods in a namespace: its id, the image of the pods, and the seconds that each may run.

    `uid` is that of the run's object, which owns the pods. Without a `priority_class` they have the cluster's default.
    `memory` is the most MiB that a pod may take of a card; 0 means that no pod takes any.
    """

    id: str
    namespace: str
    image: str
    seconds: int = SECONDS
    uid: str = ""
    priority_class: str = ""
    memory: int = 0

    @property
    def name(self) -> str:
        """The name of the run's object, and the beginning of the names of its pods."""
        return f"{NAME}-{self.id}"

    @property
    def patience(self) -> int:
        """The seconds after which a pod is deleted if it has not ended."""
        return self.seconds + SLACK

    def until(self, now: datetime) -> str:
        """Return the time at which the run counts as ended, unless it writes a later one before its next pod."""
        return (now + timedelta(seconds=self.patience + MARGIN)).isoformat(timespec="seconds")


def in_progress(item: Object, now: datetime) -> bool:
    """Return whether the run that an object stands for may still be in progress."""
    text = string(mapping(mapping(item.get("metadata")).get("annotations")).get(UNTIL))
    try:
        left = datetime.fromisoformat(text) - now
    except (ValueError, TypeError):  # no time, or one without a zone
        return False
    return timedelta() < left <= timedelta(seconds=LONGEST)


def is_of_a_run(item: Object) -> bool:
    """Return whether an object belongs to a run, by both its label and its name."""
    metadata = mapping(item.get("metadata"))
    labelled = mapping(metadata.get("labels")).get(MANAGED_BY) == MANAGER
    return labelled and string(metadata.get("name")).startswith(f"{NAME}-")


def run_object(run: ProbeRun, now: datetime) -> Object:
    """Return the ConfigMap that stands for a run: deleting it deletes the run's pods.

    Its entries are the variables for the ways that read a ConfigMap.
    """
    metadata = {"name": run.name, "namespace": run.namespace, "labels": _labels(run)}
    metadata["annotations"] = {UNTIL: run.until(now)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {VISIBLE: "all", "devices": "all"},
    }


def _labels(run: ProbeRun) -> Object:
    return {MANAGED_BY: MANAGER, INSTANCE: run.id}


def unrun(way: GPUWay) -> str:
    """Return the reason why a way's pod is not started although admission let it in; empty if it may be started."""
    if way.unearned:
        return "its pod is in another namespace"
    if NODE in way.spec.values():
        return "its pod bypasses the scheduler, which keeps pods to free slices"
    if any("hostPath" in each for each in mappings(way.spec.get("volumes"))):
        return "its pod would mount files of the node"
    if way.rule in ("forged-placement", "unsteered-pod", "unlisted-claim"):
        return "its pod needs a scheduler, a device or a claim that the probe does not have"
    return "its pod would take more than one slice" if way.gpus > 1 else ""


def let_in(tried: Tried) -> Iterator[GPUWay]:
    """Yield the ways of a target whose pods must be started, because admission let them in, as sent or patched.

    There are none if the honest pod was not admitted.
    """
    if _tried(tried):
        yield from (each.way for each in tried.shown if each.way and admitted(each) and not unrun(each.way))


def admitted(shown: Shown) -> bool:
    """Return whether admission let in the pod of a way."""
    return shown.outcome is Outcome.OPEN or (shown.outcome is Outcome.SHUT and shown.by == PATCH)


def most(proof: Iterable[Tried], honest: int = 1) -> int:
    """Return how many pods a run starts at most: the `honest` pods of each target, and those that were let in."""
    return sum(honest + sum(1 for _ in let_in(each)) for each in proof if _tried(each))


def most_held(proof: Iterable[Tried]) -> int:
    """Return how many pods a run creates at most that never start: two for each target, to try changes on."""
    return 2 * sum(map(_tried, proof))


def _tried(tried: Tried) -> bool:
    return tried.shown[0].outcome is Outcome.ADMITTED


def roomy(policy: Policy, target: ProbeTarget, facts: Facts, name: str = "") -> Node | None:
    """Return the node of a pool with the most of its resource free, if that is enough for an honest pod.

    Returns None if there is no such node. A node with a taint that the pool's pods do not tolerate is left out, such as
    a cordoned node. With a `name`, only the node with this name is considered.
    """
    used = Counter[str]()
    for holder in facts.holders:
        used[holder.node] += holder.asks.get(target.resource, 0)
    tolerated = {string(each.get("key")) for each in probe(policy, target, None)["spec"]["tolerations"]}
    free = [
        (node.resources.get(target.resource, 0) - used[node.name], node.name, node)
        for node in facts.nodes
        if name in ("", node.name)
        and (not target.pool.has_nodes or target.pool.nodes.matches(node.labels))
        and node.labels.get(HOSTNAME)
        and node.taints.keys() <= tolerated
    ]
    room, _, node = max(free, key=lambda each: each[:2], default=(0, "", None))
    return node if room >= target.gpus else None


def started(
    policy: Policy,
    target: ProbeTarget,
    way: GPUWay | None,
    run: ProbeRun,
    node: Node,
    number: int,
    cap: MemoryCap | None = None,
) -> Object:
    """Return the pod of a probe to be really created: the pod of the dry run with a program, a node, and time limits.

    With a `cap`, the program measures that cap.
    """
    pod = probe(policy, target, way)
    there = {"nodeSelector": {**pod["spec"].get("nodeSelector", {}), HOSTNAME: node.labels[HOSTNAME]}}
    return owned({**pod, "spec": {**pod["spec"], **there}}, run, number, cap)


def owned(pod: Object, run: ProbeRun, number: int, cap: MemoryCap | None = None) -> Object:
    """Return a pod as one of a run: with the run's name, owner, program and time limits."""
    spec: dict[str, Any] = {**pod["spec"]}
    spec |= {
        "activeDeadlineSeconds": run.seconds,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
    }
    if run.priority_class:
        spec["priorityClassName"] = run.priority_class
    for key in ("initContainers", "containers"):
        if key in spec:
            spec[key] = [_program(each, run, cap) for each in spec[key]]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": run.name, "uid": run.uid}
    metadata = {
        "name": f"{run.name}-{number}",
        "namespace": run.namespace,
        "annotations": pod["metadata"]["annotations"],
        "labels": {**pod["metadata"]["labels"], **_labels(run)},
        "ownerReferences": [owner],
    }
    return {**pod, "metadata": metadata, "spec": spec}


def _program(container: Object, run: ProbeRun, cap: MemoryCap | None) -> Object:
    limits = mapping(mapping(container.get("resources")).get("limits"))
    most, command = LIMITS, [*PYTHON, *PROGRAM]
    if cap is not None:  # without -I, so that Python loads the shim, as in a tenant's pod
        most, command = capacity.LIMITS, [PYTHON[0], *PROGRAM, *capacity.options(cap, run.seconds)]
    resources = {"requests": {**REQUESTS, **limits}, "limits": {**most, **limits}}
    made: Object = _of_the_run(container, run.name)
    return {**made, "image": run.image, "command": command, "resources": resources}


def _of_the_run(value: Any, name: str) -> Any:
    """Return a part of a container with its references to ConfigMaps changed to the run's object."""
    if isinstance(value, dict):
        return {
            key: {**each, "name": name} if key in ("configMapRef", "configMapKeyRef") else _of_the_run(each, name)
            for key, each in value.items()
        }
    return [_of_the_run(each, name) for each in value] if isinstance(value, list) else value


class Ending(NamedTuple):
    """The end of a pod's containers: the termination message of each, or the reason why a container has none.

    `node` is the node on which the pod ran.
    """

    node: str
    texts: tuple[str, ...]
    lacking: str = ""


def meddled(made: Object, found: Object) -> str:
    """Return what somebody changed in a pod after its creation, so that its report does not count; else an empty text.

    A user who may change pods in the namespace can put another one in its place. They can also change its images, and
    change them back: the kubelet starts a container again if its image changed, even in a pod that is never restarted.
    A debug container can write the report of another container.
    """
    if found["metadata"].get("uid") != made["metadata"].get("uid"):
        return "somebody put another pod in the place of its own"
    if mapping(found.get("spec")).get("ephemeralContainers"):
        return "somebody added a container to its pod"
    if _images(found) != _images(made):
        return "somebody changed the image of its pod"
    restarted = any(each.get("restartCount") for each in _statuses(found) if each.get("name") in _once(found))
    return "a container of its pod was started again" if restarted else ""


def _images(pod: Object) -> list[str]:
    spec = mapping(pod.get("spec"))
    return [string(each.get("image")) for key in ("initContainers", "containers") for each in mappings(spec.get(key))]


def ended(pod: Object) -> bool:
    """Return whether every container of the probe, or the whole pod, has ended."""
    if mapping(pod.get("status")).get("phase") in ("Succeeded", "Failed"):
        return True
    return all(_terminated(pod, name) is not None for name in _names(pod))


def ending(pod: Object) -> Ending:
    """Read how the containers of a pod ended."""
    node = string(mapping(pod.get("spec")).get("nodeName"))
    found = [_terminated(pod, name) for name in _names(pod)]
    texts = tuple(string(each.get("message")) for each in found if each is not None)
    if found and len(texts) == len(found) and all(texts):
        return Ending(node, texts)
    return Ending(node, tuple(filter(None, texts)), f"its pod did not report: {_why(pod)}")


def _own(pod: Object) -> list[Mapping[str, Any]]:
    """Return the probe's own containers; other webhooks may add some."""
    spec = mapping(pod.get("spec"))
    found = (each for key in ("initContainers", "containers") for each in mappings(spec.get(key)))
    return [each for each in found if string(each.get("name")) in ("before", "probe")]


def _names(pod: Object) -> list[str]:
    return [string(each.get("name")) for each in _own(pod)]


def _once(pod: Object) -> set[str]:
    """Return the names of the probe's own containers that end once: all but sidecars."""
    return {string(each.get("name")) for each in _own(pod) if each.get("restartPolicy") != "Always"}


def _statuses(pod: Object) -> list[Mapping[str, Any]]:
    status = mapping(pod.get("status"))
    return [each for key in ("initContainerStatuses", "containerStatuses") for each in mappings(status.get(key))]


def _terminated(pod: Object, name: str) -> Mapping[str, Any] | None:
    """Return the state of a container that has ended; for a sidecar that started again, how it ended before."""
    keys = ("state",) if name in _once(pod) else ("state", "lastState")
    for each in _statuses(pod):
        if each.get("name") == name:
            for key in keys:
                state = mapping(mapping(each.get(key)).get("terminated"))
                if state:
                    return state
    return None


def _why(pod: Object) -> str:
    """Say why a pod gave no report, by its status: the first of a pod's, a container's and the scheduler's reasons."""
    status = mapping(pod.get("status"))
    states = [mapping(each.get("state")) for each in _statuses(pod)]
    reasons = [
        status,
        *(mapping(state.get(key)) for state in states for key in ("waiting", "terminated")),
        *(each for each in mappings(status.get("conditions")) if each.get("status") == "False"),
    ]
    for each in reasons:
        words = [string(each.get(key)) for key in ("reason", "message")]
        if words[0]:
            return ": ".join(filter(None, words))
    return f"it is {string(status.get('phase')) or 'unknown'}"
