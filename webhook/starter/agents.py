"""Finds the pods of a cluster that a policy would refuse, and those among them that are agents for GPUs."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from webhook.api import admission
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, string
from webhook.api.metadata import name_of, namespace_of
from webhook.api.pods import POD
from webhook.catalog.gpu_requests import NVIDIA_RESOURCES, RESOURCES
from webhook.catalog.names import Names
from webhook.engine.engine import Engine
from webhook.engine.registration import left_alone
from webhook.facts.snapshot import Facts
from webhook.gpu.review import placements_for
from webhook.model import Action, Object, Request
from webhook.policy.model import Policy
from webhook.starter.inventory import GPU
from webhook.text.words import shown


class AgentWorkload(NamedTuple):
    """The workloads of a service account in a namespace, and the rules that would refuse them.

    No rules stand for all.
    """

    namespace: str
    account: str
    names: tuple[str, ...]
    rules: tuple[str, ...]


def agents_of(
    objects: Iterable[Object], engine: Engine, facts: Facts
) -> tuple[tuple[AgentWorkload, ...], tuple[AgentWorkload, ...]]:
    """Return the agents that rules would refuse or keep off GPU nodes, and the other pods that would be refused.

    An agent is a DaemonSet, or a pod without a GPU in a namespace that has such a DaemonSet.
    """
    found: dict[tuple[str, str], AgentWorkload] = {}
    strangers: dict[tuple[str, str], AgentWorkload] = {}
    systems = set[str]()
    alone = left_alone(engine.policy)
    for item in sorted(objects, key=lambda item: group_kind(item) == POD):
        daemon_set = group_kind(item) == ("apps", "DaemonSet")
        namespace, name = namespace_of(item), name_of(item) if daemon_set else _without_hash(name_of(item))
        if not (daemon_set or group_kind(item) == POD) or namespace in alone:
            continue
        spec = _pod_spec(item)
        if _asks(spec):
            continue
        denied = _denied(item, engine, facts)
        gpus = daemon_set and _looks_after_gpus(spec, engine.policy)
        if not denied and not gpus:
            continue
        systems |= {namespace} if daemon_set else set()
        chosen = found if daemon_set or namespace in systems else strangers
        account = string(spec.get("serviceAccountName")) or "default"
        before = chosen.get((namespace, account), AgentWorkload(namespace, account, (), ("",)))
        some = () if gpus or not before.rules else tuple(sorted({*denied, *filter(None, before.rules)}))
        names = before.names if name in before.names else (*before.names, name)
        chosen[namespace, account] = before._replace(names=names, rules=some)
    return tuple(found[key] for key in sorted(found)), tuple(strangers[key] for key in sorted(strangers))


_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
"""The letters of generated names (kubernetes apimachinery pkg/util/rand/rand.go)."""

_HASHED = re.compile(f"-{_LETTERS}{{6,10}}-{_LETTERS}{{5}}$")


def _without_hash(name: str) -> str:
    """Return the name of the Deployment whose pod seems to have the name; facts keep no owners of pods."""
    return _HASHED.sub("", name)


def _looks_after_gpus(spec: Mapping[str, Any], policy: Policy) -> bool:
    """Whether a DaemonSet is made for nodes with GPUs: it selects, tolerates, mounts or names something of theirs.

    Such an agent needs an exemption from all rules: with NVIDIA_VISIBLE_DEVICES=void it would see no GPU.
    """
    paths = [string(mapping(each.get("hostPath")).get("path")) for each in mappings(spec.get("volumes"))]
    selected = json.dumps([spec.get("nodeSelector"), spec.get("affinity"), spec.get("runtimeClassName"), paths])
    tolerated = {string(each.get("key")) for each in mappings(spec.get("tolerations"))}
    named = any(each.get("env") for each in mappings(spec.get("containers")))
    told = any(word in selected for word in ("nvidia", "gke-accelerator", "kubelet/device-plugins"))
    guard = policy.guard.taint if policy.guard else None
    return told or bool(tolerated & {GPU, guard}) or named


class Fates(NamedTuple):
    """The GPU pods for which something changes when they are created again, each as a line for people.

    The policy refuses the `refused`, each with its rules. The `waiting` fit no known node of their pool. The `moved`
    have a whole GPU and get a slice, and the `elsewhere` go to another pool.
    """

    refused: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


def fates_of(objects: Iterable[Object], engine: Engine, facts: Facts) -> Fates:
    """Judge the pods that have a GPU today as if they were created again.

    If all denials of a pod have the same way out, and it is short, the line about the pod names it.
    """
    found: dict[str, list[str]] = {name: [] for name in Fates._fields}
    alone = left_alone(engine.policy)
    for item in objects:
        namespace = namespace_of(item)
        if namespace in alone or group_kind(item) not in (POD, ("apps", "DaemonSet")):
            continue
        name = shown(f"{namespace}/{name_of(item)}", quotes=False)
        if _asks(_pod_spec(item)) and (denied := _denied(item, engine, facts)):
            ways = {way for each in denied.values() for way in each}
            short = "".join(f"; {way}" for way in ways if len(ways) == 1 and 0 < len(way) <= _SHORT)
            found["refused"].append(f"{name}: {', '.join(denied)}{short}")
        elif group_kind(item) == POD and (fate := _fate(item, engine.policy, facts)):
            kind, more = fate
            found[kind].append(f"{name}{more}")
    return Fates(*map(tuple, found.values()))


_SHORT = 60
"""The longest way out, in characters, that a line about a pod has."""


def _fate(item: Object, policy: Policy, facts: Facts) -> tuple[str, str] | None:
    """Return what happens to a running pod that is let in, with its pools in words; None if it stays in its pool."""
    node = facts.named.get(string(_pod_spec(item).get("nodeName")))
    today = policy.pool_of(node.labels) if node else None
    if today is None:
        return None
    for anew in placements_for(_created(item), policy, facts):
        if anew.pool is None:
            continue
        if anew.waits:
            return "waiting", f": pool {anew.pool.name}"
        if anew.pool.shared and not today.shared:
            return "moved", ""
        if anew.pool is not today:
            return "elsewhere", f": pool {anew.pool.name} instead of {today.name}"
    return None


def _pod_spec(item: Object) -> Mapping[str, Any]:
    """Return the spec of a pod, or of a DaemonSet's pods."""
    spec = mapping(item.get("spec"))
    return spec if group_kind(item) == POD else mapping(mapping(spec.get("template")).get("spec"))


def _asks(spec: Mapping[str, Any]) -> bool:
    """Whether a pod asks for a GPU, of any maker."""
    asked = [
        mapping(mapping(each.get("resources")).get(part))
        for each in (*mappings(spec.get("containers")), *mappings(spec.get("initContainers")))
        for part in ("limits", "requests")
    ]
    return any(name in _GPUS for amounts in asked for name in amounts)


_GPUS = Names((NVIDIA_RESOURCES, *RESOURCES))


def _denied(item: Object, engine: Engine, facts: Facts) -> dict[str, set[str]]:
    """Return the rules that would refuse an object as it was created, sorted, each with the ways out it names."""
    ways: dict[str, set[str]] = {}
    for result in engine.judge(_created(item), facts).having(Action.DENY):
        ways.setdefault(result.rule, set()).add(result.finding.message.partition("; ")[2])
    return dict(sorted(ways.items()))


def _created(item: Object) -> Request:
    """Return the request that created an object, before it had a node."""
    spec = {key: value for key, value in mapping(item.get("spec")).items() if key != "nodeName"}
    return admission.decode(admission.wrap({**item, "spec": spec}))
