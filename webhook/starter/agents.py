"""Finds the pods of a cluster that a policy would refuse, and the agents for GPUs among them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from webhook.api import admission
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, string
from webhook.api.metadata import name_of, namespace_of
from webhook.api.pods import POD
from webhook.engine.engine import Engine
from webhook.engine.registration import left_alone
from webhook.facts.snapshot import Facts
from webhook.gpu.review import pools_for
from webhook.model import Action, Object, Request
from webhook.policy.model import Policy
from webhook.starter.inventory import GPU
from webhook.text.words import shown


class AgentWorkload(NamedTuple):
    """The workloads of a service account in a namespace, and the rules that would refuse them; none stand for all."""

    namespace: str
    account: str
    names: tuple[str, ...]
    rules: tuple[str, ...]


def agents_of(
    objects: Iterable[Object], engine: Engine, facts: Facts
) -> tuple[tuple[AgentWorkload, ...], tuple[AgentWorkload, ...]]:
    """Return the agents that rules would refuse, or would keep from their GPUs; and other pods that would be refused.

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


def refused_of(objects: Iterable[Object], engine: Engine, facts: Facts) -> Iterator[str]:
    """List the pods that have a GPU today and would be refused, each with the rules that refuse it.

    A short way out is named: one word may be enough.
    """
    alone = left_alone(engine.policy)
    for item in objects:
        namespace = namespace_of(item)
        workload = group_kind(item) in (POD, ("apps", "DaemonSet"))
        if workload and namespace not in alone and _asks(_pod_spec(item)) and (denied := _denied(item, engine, facts)):
            name = shown(f"{namespace}/{name_of(item)}", quotes=False)
            ways = {way for each in denied.values() for way in each}
            short = "".join(f"; {way}" for way in ways if len(ways) == 1 and 0 < len(way) <= _SHORT)
            yield f"{name}: {', '.join(denied)}{short}"


_SHORT = 60
"""The longest way out, in characters, that a line about a pod has."""


def moved_of(objects: Iterable[Object], engine: Engine, facts: Facts) -> Iterator[str]:
    """Name the pods that have a whole GPU today, and would get a slice if they were created again."""
    policy = engine.policy
    alone = left_alone(policy)
    for item in objects:
        namespace = namespace_of(item)
        node = facts.named.get(string(_pod_spec(item).get("nodeName"))) if group_kind(item) == POD else None
        pool = policy.pool_of(node.labels) if node else None
        if pool is None or pool.shared or namespace in alone:
            continue
        if any(anew and anew.shared for anew in pools_for(_created(item), policy, facts)):
            yield shown(f"{namespace}/{name_of(item)}", quotes=False)


def _pod_spec(item: Object) -> Mapping[str, Any]:
    """Return the spec of a pod, or of a DaemonSet's pods."""
    spec = mapping(item.get("spec"))
    return spec if group_kind(item) == POD else mapping(mapping(spec.get("template")).get("spec"))


def _asks(spec: Mapping[str, Any]) -> bool:
    """Whether a pod asks for a GPU of NVIDIA."""
    asked = [
        mapping(mapping(each.get("resources")).get(part))
        for each in (*mappings(spec.get("containers")), *mappings(spec.get("initContainers")))
        for part in ("limits", "requests")
    ]
    return any(name.startswith("nvidia.com/") for amounts in asked for name in amounts)


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
