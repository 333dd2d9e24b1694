"""Decides which pool a GPU pod belongs to, by its trust and its requests."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from webhook.api.fields import group_kind
from webhook.api.pods import Pod
from webhook.api.quantity import Amount
from webhook.api.selectors import Requirement, contradiction, equals
from webhook.catalog.gpu_requests import vendor
from webhook.catalog.workloads import BUILT_IN
from webhook.facts.snapshot import Facts
from webhook.gpu.selection import MAX_CHOICES, assumes, fits, known_nodes, named_cards, repelling
from webhook.gpu.selection import offers as offered
from webhook.model import Path, immutable
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy, Pool
from webhook.policy.resources import ResourcePrefixes
from webhook.policy.scopes import Grant
from webhook.text.words import listed


class TrustRequest(NamedTuple):
    """The trust that a pod requests (`asked`, None without the annotation), and the `pools` in which it is granted.

    `level` is the pod's trust in those pools. `withheld` is true if a grant covers the pod, but not the user who sent
    it.
    """

    asked: object
    pools: frozenset[str]
    level: str
    withheld: bool

    def in_(self, pool: Pool) -> str:
        """Return the pod's trust in one pool."""
        return self.level if pool.name in self.pools else UNTRUSTED


def trust_request(pod: Pod, policy: Policy, facts: Facts) -> TrustRequest:
    """Read a pod's trust: the level that it asks for, or the policy's default, but never more than a grant allows.

    A grant covers namespaces and service accounts. A requester, which is a controller for most pods, can only narrow
    it. The right of trust is looked up last, and only for a pod that wants to be trusted.
    """
    asked = pod.annotations.get(policy.annotation)
    if not pod.namespace:  # a cluster-scoped object: each namespace that uses it has its own trust
        return TrustRequest(asked, policy.pool_names, UNTRUSTED if asked == UNTRUSTED else TRUSTED, withheld=False)
    labels = facts.namespaces.get(pod.namespace)
    if pod.metadata_only and not ("serviceAccountName" in pod.spec or "serviceAccount" in pod.spec):
        return _of_any_account(pod, policy, facts)
    account = pod.service_account if policy.grants else ""
    near = policy.grants_by_namespace.near(pod.namespace)
    grants = [grant for grant in near if grant.scope.covers(pod.namespace, labels, account)]
    wanted = (TRUSTED if pod.partial else policy.default_trust) if asked is None else asked
    if policy.asks_rbac:
        grants = [g for g in grants if not g.rbac or (wanted == TRUSTED and facts.trusts(pod.namespace, account))]
    applied = [grant.pools or policy.pool_names for grant in grants if _applies(grant, pod, policy)]
    pools: frozenset[str] = frozenset().union(*applied)
    level = TRUSTED if pools and wanted == TRUSTED else UNTRUSTED
    return TrustRequest(asked, pools, level, withheld=bool(grants) and not pools)


def _of_any_account(pod: Pod, policy: Policy, facts: Facts) -> TrustRequest:
    """Read the trust of pods whose account another object names: each grant that may cover them has to apply.

    The right of trust, which only their account may have, is judged with the pods themselves.
    """
    asked = pod.annotations.get(policy.annotation)
    grants = policy.grants_reaching(pod.namespace, facts.namespaces.get(pod.namespace))
    all_apply = all(_applies(grant, pod, policy) for grant in grants)
    granted = [grant.pools or policy.pool_names for grant in grants] if all_apply else []
    pools: frozenset[str] = frozenset().union(*granted)
    level = TRUSTED if pools and asked != UNTRUSTED else UNTRUSTED
    return TrustRequest(asked, pools, level, withheld=not all_apply)


def _applies(grant: Grant, pod: Pod, policy: Policy) -> bool:
    """Return whether a grant applies to the requester of a pod, or to the author of a template.

    A grant without requesters applies to everyone. A grant with requesters applies only to pods with the trust
    annotation: without it no requester asked for trust, and the pods of a workload come from a controller.

    The grant applies if one of its requesters or a controller sent the pod. A controller's pods were judged as a
    template. It also applies to an update that changes neither the trust nor what runs (`_runs_the_same`). Bare pods
    of others are refused. Otherwise anyone could create one in a workload's place, or change the image of a running
    pod.
    """
    requester, key = pod.requester, policy.annotation
    if grant.requesters is None:
        return True
    if key not in pod.annotations:
        return False
    if requester is None or policy.controllers.include(requester):
        return True
    old = pod.old
    if old is not None and old.annotations.get(key) == pod.annotations.get(key):
        return _runs_the_same(pod, old) or grant.requesters.include(requester)
    return grant.requesters.include(requester)


def _runs_the_same(pod: Pod, old: Pod) -> bool:
    """Return whether an update leaves what a pod runs.

    The template of a kind of Kubernetes says all of it. An operator's kind may say it anywhere: NIMService has an image
    of two parts, SparkApplication the name of its program, Workflow parameters. There only counts may change.
    Annotations that reach the pods may change neither: injectors read them, such as the image of a sidecar.
    """
    if not pod.template:
        return not pod.exchanged
    if _judged(pod.annotations) != _judged(old.annotations):
        return False
    if group_kind(pod.whole) in BUILT_IN:
        return old.spec == pod.spec
    return pod.update is not None and pod.update.counts_only


def _judged(annotations: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in annotations.items() if name not in HARMLESS}


HARMLESS = frozenset(
    (
        "kubectl.kubernetes.io/restartedAt",
        "kubectl.kubernetes.io/last-applied-configuration",
        "kubeflow-resource-stopped",
        "notebooks.kubeflow.org/last-activity",
        "notebooks.kubeflow.org/last_activity_check_timestamp",
    )
)
"""Annotations that say nothing of what a pod runs: of a restart, of `kubectl apply`, and of an idle notebook.

kubectl pkg/polymorphichelpers/objectrestarter.go; k8s.io/api core/v1/annotation_key_constants.go; kubeflow
components/notebook-controller/controllers/culling_controller.go.
"""


class Clash(NamedTuple):
    """The part of a pod's own node selection that excludes every node of a pool.

    `tenant` is the pod's side in words, and `pool` the pool's side.
    """

    path: Path
    tenant: str
    pool: str
    key: str = ""
    """The label on which both disagree."""


@immutable
class Placement:
    """The pool that a pod belongs to, and the amounts of each GPU resource that it requests (`totals`).

    If no pool accepts the pod, `pool` is None, and `refusals` has a reason for each pool, or a common one. `clash` is
    set if the pod's own node selection excludes the pool's nodes. `waits` is true if nodes of the pool are known, and
    none of them both offers the requested GPUs and fits the pod's node selection and tolerations.
    """

    totals: Mapping[str, Amount]
    level: str
    pool: Pool | None
    clash: Clash | None = None
    refusals: tuple[str, ...] = ()
    waits: bool = False

    @property
    def asked(self) -> str:
        """The requested amounts in words: `1 of nvidia.com/gpu and 2 of amd.com/gpu`."""
        each = [f"{amount} of {resource}" for resource, amount in islice(self.totals.items(), NAMED)]
        more = [f"{len(self.totals) - NAMED} more"] if len(self.totals) > NAMED else []
        return " and ".join(each + more)

    @property
    def count(self) -> Amount:
        """The total number of GPUs or slices that the pod requests."""
        return sum(self.totals.values())


NAMED = 5
"""Maximum number of resources named in a message. A pod may request thousands."""


def place(pod: Pod, policy: Policy, facts: Facts, asked: Mapping[str, Amount], claimed: TrustRequest) -> Placement:
    """Find the pool of a pod that requests these amounts of GPU resources.

    A trusted pod that requests one GPU goes to a shared pool. Every other pod goes to a pool that is not shared. If no
    such pool takes the pod, a pool of the other kind may. A pool with `tenants` takes only pods of its namespaces. The
    result is the first such pool that the pod's own node selection allows. One with a known node that the pod selects
    and tolerates comes before one without, where the pod would wait. Of those without, one that assumes the card that
    the pod names comes first, and one that assumes another last. If only the number of GPUs is too large for every
    pool, the result is the pool that would take the most; other rules flag the number.
    """
    count = sum(asked.values())
    share = claimed.level == TRUSTED and count == 1
    willing = _willing(pod, policy, facts, asked, claimed)
    fitting = [p for p in willing if p.max_request is None or count <= p.max_request]
    right = [p for p in fitting if p.shared == share] or fitting
    waiting = []
    for pool in right:  # for nearly every pod it is the first pool
        if not _excludes(pod, pool):
            if fits(pod, pool, facts, asked):
                return Placement(asked, claimed.in_(pool), pool)
            waiting.append(pool)
    if waiting:
        named = named_cards(pod)
        pool = min(waiting, key=lambda pool: _LIKELY.index(assumes(pool, named, facts)))
        return Placement(asked, claimed.in_(pool), pool, waits=True)
    too_small = sorted(
        (p for p in willing if p not in fitting), key=lambda p: (p.shared != share, -(p.max_request or 0))
    )
    for pool in too_small:
        if not _excludes(pod, pool):
            return Placement(asked, claimed.in_(pool), pool, waits=not fits(pod, pool, facts, asked))
    if pools := right or too_small:
        return Placement(asked, claimed.in_(pools[0]), pools[0], clash(pod, pools[0]))
    if nowhere := unoffered(asked, policy):
        refusals: tuple[str, ...] = (f"no pool offers {listed(nowhere, NAMED)}",)
    else:
        beyond = _beyond(asked, policy)
        refusals = tuple(_refusal(p, beyond.get(p.resources.wide, asked), pod, claimed, facts) for p in policy.pools)
    return Placement(asked, claimed.level, None, refusals=refusals)


_LIKELY = (True, None, False)
"""Whether the nodes that a pool gets have a card that a pod names, in the order in which pools are chosen."""


def unoffered(asked: Iterable[str], policy: Policy) -> list[str]:
    """Return those of the requested resources that no pool offers."""
    return [name for name in asked if name not in policy.exact and not any(name in wide for wide in policy.wide)]


def _beyond(asked: Iterable[str], policy: Policy) -> Mapping[ResourcePrefixes, list[str]]:
    """Return the resources that no prefix of a pool matches, by the pool's prefixes. A pool without any matches none.

    A pod may request thousands of names, and a policy have 250 pools: nearly all of them have the same prefixes.
    """
    return {wide: [name for name in asked if name not in wide] for wide in policy.wide}


def _willing(pod: Pod, policy: Policy, facts: Facts, asked: Mapping[str, Amount], claimed: TrustRequest) -> list[Pool]:
    beyond = _beyond(asked, policy)
    return [
        pool
        for pool in policy.pools_by_namespace.near(pod.namespace)
        if pool.resources.exact.issuperset(beyond.get(pool.resources.wide, asked))
        and not closed(pool, pod.namespace, claimed, facts)
    ]


def choices(pod: Pod, policy: Policy, facts: Facts, placement: Placement, claimed: TrustRequest) -> tuple[str, ...]:
    """Return the values of the clashing label with which the pod would select a pool that accepts it.

    The label is that of `placement.clash`. If nodes of that pool are known, only values count whose nodes offer the
    requested GPUs and have no taint that keeps the pod off. A pod with more than MAX_CHOICES terms and conditions gets
    none.
    """
    written = sum(1 + len(term.expressions or ()) for term in pod.node_terms or ())
    if placement.clash is None or placement.pool is None or written > MAX_CHOICES:
        return ()
    key, rest = placement.clash.key, without(pod, placement.clash.key)
    found: dict[str, None] = {}
    for pool in _willing(pod, policy, facts, placement.totals, claimed):
        small = pool.max_request is None or placement.count <= pool.max_request
        if small and pool.shared == placement.pool.shared and key in pool.nodes.values and not _excludes(rest, pool):
            conditions = [each for each in pool.nodes.requirements if each.key == key]
            barred = repelling(pod, pool, facts, placement.totals)
            for requirement in conditions:
                if requirement.operator == "In":
                    known = known_nodes(pool, facts)
                    open_ = [n for n in known if barred.isdisjoint(n.taints)]
                    having = {n.labels.get(key) for n in open_ if offered(n, placement.totals.items())}
                    values = sorted(requirement.values & having if known else requirement.values)
                    leading = (value for value in values if all(each.matches({key: value}) for each in conditions))
                    found |= dict.fromkeys(leading)
    return tuple(found)


def without(pod: Pod, *keys: str) -> Pod:
    """Return a copy of a pod that does not select nodes by these labels."""
    terms = pod.node_terms and tuple(
        term._replace(expressions=term.expressions and tuple(r for r in term.expressions if r.key not in keys))
        for term in pod.node_terms
    )
    selector = {name: value for name, value in pod.node_selector.items() if name not in keys}
    return replace(pod, node_selector=selector, node_terms=terms)


def selected(pod: Pod, policy: Policy) -> Pool | None:
    """Return the first pool whose nodes a pod selects by one of that pool's labels; None if there is no such pool."""
    return next((pool for pool in policy.pools if _chosen(pod, pool) and not _excludes(pod, pool)), None)


def _refusal(pool: Pool, beyond: Iterable[str], pod: Pod, claimed: TrustRequest, facts: Facts) -> str:
    """Return why a pool does not take a pod, regardless of the number of GPUs; empty if it takes it."""
    missing = [resource for resource in beyond if resource not in pool.resources.exact]
    if missing:
        return f"pool {pool.name} does not offer {listed(missing, NAMED)}"
    return _closed(pool, pod, claimed, facts)


def _closed(pool: Pool, pod: Pod, claimed: TrustRequest, facts: Facts) -> str:
    return closed(pool, pod.namespace, claimed, facts)


def closed(pool: Pool, namespace: str, claimed: TrustRequest, facts: Facts, what: str = "pod") -> str:
    """Return why a pool accepts no pods of a namespace with this trust; empty if it accepts them.

    `what` is the word for the subject in the message: `pod` or `claim`.
    """
    if pool.tenants and not pool.tenants.reaches(namespace, facts.namespaces.get(namespace)):
        return f"pool {pool.name} is shared among other namespaces"
    level = claimed.in_(pool)
    if level in pool.trust:
        return ""
    if level != claimed.level:
        return f"pool {pool.name} is not one where the {what} may be {claimed.level}"
    return f"pool {pool.name} takes no {level} {what}s"


def offers(pod: Pod, policy: Policy, facts: Facts, claimed: TrustRequest) -> tuple[str, ...]:
    """Return the GPU resources that a pod may request: those of all pools that accept its namespace and its trust."""
    open_ = (pool for pool in policy.pools if not _closed(pool, pod, claimed, facts))
    return tuple(dict.fromkeys(name for pool in open_ for name in pool.resources.patterns))


def alternatives(pod: Pod, policy: Policy, facts: Facts, claimed: TrustRequest, excluded: Pool) -> tuple[str, ...]:
    """Return the resources of the other pools that a pod's own node selection allows.

    A pool counts only if the pod selects by one of the pool's labels: any other pool would match by accident. If nodes
    of the pool are known, the names are those that its nodes offer.
    """
    found: dict[str, None] = {}
    for pool in policy.pools:
        if pool is excluded or _closed(pool, pod, claimed, facts) or not _chosen(pod, pool) or _excludes(pod, pool):
            continue
        on_nodes = _names_on_nodes(policy, facts.of_nodes).get(pool.name)
        found |= dict.fromkeys(on_nodes or pool.resources.patterns)
    return tuple(found)


def _chosen(pod: Pod, pool: Pool) -> bool:
    """Return whether a pod's node selection uses a label that selects the pool's nodes."""
    return not pod.chosen_keys.isdisjoint(pool.nodes.values)


@lru_cache(maxsize=2)  # by the nodes, of which there are ten thousand
def _names_on_nodes(policy: Policy, facts: Facts) -> Mapping[str, tuple[str, ...]]:
    """The resources of each pool's known nodes that the pool offers, by the pool's name."""
    found = {pool: {name for node in known_nodes(pool, facts) for name in node.resources} for pool in policy.pools}
    return {pool.name: tuple(sorted(name for name in had if name in pool.resources)) for pool, had in found.items()}


def foreign_vendor(name: str, policy: Policy) -> str:
    """Return the vendor of a GPU resource or device class if no pool has GPUs of that vendor; otherwise ""."""
    maker = vendor(name)
    return "" if maker in _makers(policy) else maker


@lru_cache(maxsize=8)  # by the policy: a pod may request thousands of names, and a policy have 250 pools
def _makers(policy: Policy) -> frozenset[str]:
    patterns = (each for pool in policy.pools for each in (*pool.resources.patterns, *pool.device_classes.patterns))
    return frozenset(map(vendor, patterns))


@lru_cache(maxsize=2)  # by the nodes, of which there are ten thousand
def names(policy: Policy, facts: Facts) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the exact names of the GPU resources that pools offer, and the names of the nodes' other resources."""
    had = {name for node in facts.nodes for name in node.resources}
    said = {name for pool in policy.pools for name in pool.resources.patterns if not name.endswith("*")}
    offered = said | {name for name in had if any(name in pool.resources for pool in policy.pools)}
    return tuple(sorted(offered)), frozenset(had - offered)


def clash(pod: Pod, pool: Pool) -> Clash | None:
    """Return the part of a pod's own node selection that excludes every node of a pool; None if there is no such part.

    A selection that contradicts itself is not a clash: it selects no node in any pool.
    """
    if not _excludes(pod, pool):
        return None
    needed = pool.nodes.requirements
    own = _selected(pod, needed)
    if contradiction(own + needed) is not None:
        return _clash(pod.at("spec", "nodeSelector"), own, needed)
    term = pod.possible_terms[0].term
    expressions = term.expressions or ()
    return _clash(term.path, (*_selected(pod, (*expressions, *needed)), *expressions), needed)


def _excludes(pod: Pod, pool: Pool) -> bool:
    """Return whether a pod's own node selection excludes every node of a pool.

    A policy has up to 250 pools, and a pod thousands of terms, so only the labels by which the pool selects are looked
    at, and the terms look at the clock. Raises TooLate.
    """
    needed, labels = pool.nodes.requirements, pod.node_selector
    if pod.node_terms is None and all(r.matches(labels) for r in needed if r.key in labels):
        return False  # nearly every pod, before and after it is steered
    if contradiction(_selected(pod, needed) + needed) is not None:
        return True
    left = pool.nodes.values.items()
    return bool(pod.possible_terms) and not any(
        all(key not in term.values or term.values[key].meet(values) for key, values in left)
        for term in pod.possible_terms
    )


def _selected(pod: Pod, requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """Return the pod's nodeSelector as requirements, reduced to the labels that the given requirements name.

    They keep the order of the given requirements, so that every process names the same one if several exclude a pool.
    """
    keys = dict.fromkeys(r.key for r in requirements)
    return equals({key: pod.node_selector[key] for key in keys if key in pod.node_selector})


def _clash(path: Path, own: tuple[Requirement, ...], needed: tuple[Requirement, ...]) -> Clash:
    key = contradiction(own + needed)
    return Clash(
        path,
        " and ".join(str(r) for r in own if r.key == key),
        " and ".join(str(r) for r in needed if r.key == key),
        key or "",
    )
