"""Plans the probes of a cluster: for each pool and level of trust, one pod for each way to a GPU, and an honest one.

The honest pod only requests a GPU.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from webhook.api import admission
from webhook.api.selectors import Requirement
from webhook.engine import registration
from webhook.engine.engine import Engine, Seen
from webhook.facts.snapshot import Facts
from webhook.gpu.review import PodReview
from webhook.model import Object, Verdict
from webhook.policy.model import UNTRUSTED, Policy, Pool
from webhook.policy.scopes import Grant
from webhook.proving.ways import IMAGE, NODE, WAYS, GPUWay
from webhook.review import Review

NAME = "slicewarden-probe"

JUDGED_BY = next(way for way in WAYS if way.name == "variable")
"""The way that shows whether a namespace's pods are judged at all."""

PLAIN = next(way for way in WAYS if way.name == "image")
"""The way whose pod has nothing but its image. The others without a request add to this pod."""

SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What Pod Security's level `restricted` demands of each container, so that it refuses only the ways."""


MOST = 32
"""The most service accounts that are looked at for a pool, in all namespaces: the engine judges pods of each."""


class ProbeTarget(NamedTuple):
    """A target for probes: a pool, a level of trust, and a namespace whose pods have that trust.

    `resource` is a resource that the pool offers, and `node` one of its nodes; each is empty if it is not known.
    """

    pool: Pool
    trust: str
    namespace: str
    resource: str
    node: str
    gpus: int = 1
    """How many GPUs an honest pod requests. A trusted pod with one belongs to a pool that shares GPUs, if any does."""
    account: str = ""
    """The service account of the pods; empty for the namespace's default."""
    without_grant: str = ""
    """A namespace that has no grant of the trust; empty if there is none, or if the pool takes pods without trust."""


class Probe(NamedTuple):
    """A pod to send, and the way to a GPU that it tries.

    `way` is None for the honest pod, which only requests a GPU.
    """

    way: GPUWay | None
    pod: Object


class Untried(NamedTuple):
    """A pool and a level of trust for which no probe can be made, and the reason."""

    pool: Pool
    trust: str
    why: str


def targets(engine: Engine, facts: Facts, namespace: str | None = None) -> Iterator[ProbeTarget | Untried]:
    """Yield the targets of the probes: each pool of the policy, with each of its levels of trust.

    The engine judges which namespace is suitable: its honest pod belongs to the pool, and a pod with a way is denied.
    So a namespace is skipped that is exempt, is never judged, or has no grant. With `namespace`, only this one is
    considered.
    """
    policy, alone = engine.policy, frozenset(registration.left_alone(engine.policy))
    known = sorted(facts.namespaces) if namespace is None else [namespace]
    names = _ranked(policy, facts, [name for name in known if name not in alone])
    granted = {name: policy.grants_reaching(name, facts.namespaces.get(name)) for name in names}
    for pool in policy.pools:
        node = next((each for each in facts.nodes if pool.nodes.matches(each.labels)), None) if pool.has_nodes else None
        named = [*(node.resources if node else ()), *(each for each in pool.resources.patterns if "*" not in each)]
        resource = next((each for each in named if each in pool.resources), "")
        for trust in sorted(pool.trust):
            at = ProbeTarget(pool, trust, "", resource, node.name if node else "")
            may = (name for name in names if resource and _may(policy, facts, at, name, granted[name]))
            pods = (
                at._replace(namespace=name, account=account) for name in may for account in _accounts(granted[name])
            )
            first = [*islice(pods, MOST)]
            wanted = (each._replace(gpus=gpus) for gpus in (1, 2) for each in first)
            found = next((each for each in wanted if _fits(engine, facts, each)), None)
            if found is not None:
                yield found._replace(without_grant=_without_grant(engine, facts, found, granted))
            elif not resource:
                yield Untried(pool, trust, "no node of the pool is known that offers a resource of it")
            else:
                among = f"namespace {namespace} is none" if namespace else "there is no namespace"
                yield Untried(pool, trust, f"{among} whose pods are judged, have this trust, and belong to the pool")


def probes(policy: Policy, target: ProbeTarget) -> Iterator[Probe]:
    """Yield the pods to send for a target, the honest one first. A way that does not apply there is left out."""
    yield Probe(None, probe(policy, target, None))
    for way in WAYS:
        lacks_node = NODE in way.spec.values() and not target.node
        lacks_place = way.unearned and not target.without_grant
        if not lacks_node and not lacks_place and (target.pool.shared or not way.shared):
            at = target._replace(namespace=target.without_grant, account="") if way.unearned else target
            yield Probe(way, probe(policy, at, way))


def probe(policy: Policy, target: ProbeTarget, way: GPUWay | None) -> Object:
    """Return a pod that may run on the nodes of the target's pool and tries a way to a GPU.

    Without a way it is the honest pod.
    """
    pool, gpus = target.pool, target.gpus if way is None or way.gpus == 1 else way.gpus
    container: dict[str, Any] = {"name": "probe", "image": IMAGE}
    if gpus:
        container["resources"] = {"limits": {target.resource: gpus}}
    spec: dict[str, Any] = {"restartPolicy": "Never", "tolerations": [*pool.tolerations]}
    if policy.guard is not None and policy.guard.taint:
        spec["tolerations"].append({"key": policy.guard.taint, "operator": "Exists"})
    if pool.has_nodes:
        terms = [{"key": r.key, "operator": r.operator, **_values(r)} for r in pool.nodes.requirements]
        selected = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selected}}
    modest = way is not None and way.unearned and way.gpus
    if target.account:
        spec["serviceAccountName"] = target.account
    annotations: dict[str, str] = {} if modest else {policy.annotation: target.trust}
    if way is not None:
        container |= way.container
        spec |= {key: target.node if value == NODE else value for key, value in way.spec.items()}
        annotations |= way.annotations
    named = {"generateName": f"{NAME}-", "namespace": target.namespace}
    lists = {"initContainers": spec.get("initContainers", ()), "containers": [container]}
    secured = {key: [{"securityContext": SECURITY, **each} for each in value] for key, value in lists.items() if value}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**named, "annotations": annotations, "labels": {**(way.labels if way else {})}},
        "spec": {**spec, **secured},
    }


def _ranked(policy: Policy, facts: Facts, names: Iterable[str]) -> list[str]:
    """Return namespaces in the order in which they are looked at: first one of each kind, and then the others.

    The policy's grants, exemptions and overrides make the kinds.
    """
    kinds: dict[tuple[int, ...], str] = {}
    others = []
    for name in names:
        labels = facts.namespaces.get(name)
        exempt = (each for each in policy.exemptions_by_namespace.near(name) if each.scope.reaches(name, labels))
        eased = (each for each in policy.overrides if each.scope is not None and each.scope.reaches(name, labels))
        kind = tuple(map(id, (*policy.grants_reaching(name, labels), *exempt, *eased)))
        if kinds.setdefault(kind, name) != name:
            others.append(name)
    return [*kinds.values(), *others]


def _may(policy: Policy, facts: Facts, target: ProbeTarget, namespace: str, grants: Iterable[Grant]) -> bool:
    """Return whether a namespace's pods may have the target's trust and pool, as far as tenants and grants say."""
    pool = target.pool
    if pool.tenants is not None and not pool.tenants.reaches(namespace, facts.namespaces.get(namespace)):
        return False
    if target.trust in (policy.default_trust, UNTRUSTED):
        return True
    return any(UNTRUSTED in pool.trust or not grant.pools or pool.name in grant.pools for grant in grants)


def _accounts(grants: Iterable[Grant]) -> list[str]:
    """Return the service accounts of a namespace that may have trust: its default, and those that grants name."""
    return ["", *sorted({each for grant in grants for each in grant.scope.service_accounts})]


def _values(requirement: Requirement) -> Object:
    return {"values": sorted(requirement.values)} if requirement.values else {}


def _fits(engine: Engine, facts: Facts, target: ProbeTarget) -> bool:
    pools: list[Pool] = []

    def seen(review: Review[Any]) -> None:
        if isinstance(review, PodReview) and review.placement is not None and review.placement.pool is not None:
            pools.append(review.placement.pool)

    honest = _judged(engine, facts, target, None, seen).allowed
    return honest and target.pool in pools and not _judged(engine, facts, target, JUDGED_BY).allowed


def _without_grant(engine: Engine, facts: Facts, target: ProbeTarget, granted: Mapping[str, tuple[Grant, ...]]) -> str:
    """Return a namespace whose pods are judged, and have no grant for a pool that demands trust; empty without one."""
    if engine.policy.default_trust in target.pool.trust:
        return ""
    at = (target._replace(namespace=name, account="") for name, grants in granted.items() if not grants)
    judged = (each.namespace for each in islice(at, MOST) if not _judged(engine, facts, each, JUDGED_BY).allowed)
    return next(judged, "")


def _judged(engine: Engine, facts: Facts, target: ProbeTarget, way: GPUWay | None, seen: Seen | None = None) -> Verdict:
    pod = admission.decode(admission.wrap(probe(engine.policy, target, way)))
    return engine.judge(pod, facts, seen=seen)
