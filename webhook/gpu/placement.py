"""Where a GPU pod belongs: the trust it has, and the pool that takes it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from webhook.api.pods import Pod
from webhook.api.selectors import Requirement, contradiction, equals
from webhook.facts.snapshot import Facts
from webhook.gpu.requests import Amount
from webhook.model import Path
from webhook.policy.model import TRUSTED, UNTRUSTED, Grant, Policy, Pool
from webhook.text.words import listed


class Claim(NamedTuple):
    """The trust a pod asks for (None: it says nothing), and the names of the pools in which it was granted.

    `level` is what it has in those. `withheld` says that a grant would cover it, had another asked for it.
    """

    asked: object
    pools: frozenset[str]
    level: str
    withheld: bool

    def in_(self, pool: Pool) -> str:
        """The trust it has in a pool."""
        return self.level if pool.name in self.pools else UNTRUSTED


def claim(pod: Pod, policy: Policy, facts: Facts) -> Claim:
    """Read a pod's trust: what it asks for, or the policy's default, but never more than it was granted.

    The grant is read off the namespace and the pod's service account. The requester, a controller for most
    pods, can only narrow it.
    """
    asked = pod.annotations.get(policy.annotation)
    labels = facts.namespaces.get(pod.namespace)
    grants = [grant for grant in policy.grants if grant.scope.covers(pod.namespace, labels, pod.service_account)]
    heard = [grant.pools or policy.pool_names for grant in grants if _hears(grant, pod, policy)]
    pools: frozenset[str] = frozenset().union(*heard)
    wanted = policy.default_trust if asked is None else asked
    level = TRUSTED if pools and wanted == TRUSTED else UNTRUSTED
    return Claim(asked, pools, level, withheld=bool(grants) and not pools)


def _hears(grant: Grant, pod: Pod, policy: Policy) -> bool:
    """Tell whether a grant listens to who asks for the pod, or writes the template.

    A controller makes what was judged when its workload was written. What runs already, or a template of
    which the pods stay the same, is asked for by nobody. Otherwise a grant that names requesters hears only
    them: were bare pods not looked at, anyone could make one in the workload's stead, or exchange what a pod runs.
    Nor does it hear one that asks for nothing: what a workload leaves to the policy's default nobody was denied, and
    its pods come from a controller.
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
        same = old.spec == pod.spec if pod.template else not pod.exchanged
        return same or grant.requesters.include(requester)
    return grant.requesters.include(requester)


class Clash(NamedTuple):
    """A pod's own node selection that no node of a pool can satisfy, with both sides in words."""

    path: Path
    tenant: str
    pool: str


@dataclass(frozen=True, eq=False)
class Placement:
    """Where a pod that asks for GPUs belongs.

    `pool` is None when none takes it; `refusals` then says why not, pool by pool where they differ. `clash` is the
    pod's own selection when that keeps it out of the pool.
    """

    totals: Mapping[str, Amount]
    level: str
    pool: Pool | None
    clash: Clash | None = None
    refusals: tuple[str, ...] = ()

    @property
    def asked(self) -> str:
        """What the pod asks for: `1 of nvidia.com/gpu and 2 of amd.com/gpu`."""
        each = [f"{amount} of {resource}" for resource, amount in islice(self.totals.items(), NAMED)]
        more = [f"{len(self.totals) - NAMED} more"] if len(self.totals) > NAMED else []
        return " and ".join(each + more)

    @property
    def count(self) -> Amount:
        """How many GPUs or slices the pod asks for altogether."""
        return sum(self.totals.values())


NAMED = 5
"""Resources that a message names; a pod may ask for thousands."""


def place(pod: Pod, policy: Policy, facts: Facts, asked: Mapping[str, Amount], claimed: Claim) -> Placement:
    """Find the pool a pod belongs to that asks for GPUs, by resource, and has claimed trust.

    Trusted pods that ask for one GPU go to a shared pool, all others to one that is not shared; a pool of the
    other sort is used where no pool of the right one takes the pod. A pool with a circle takes only pods of
    its namespaces. Of several pools the first that the pod's own node selection allows is used. Where only
    the number of GPUs is too large for every pool, the pool that would take the most is returned all the same:
    the rules on numbers speak of it.
    """
    count = sum(asked.values())
    willing = [p for p in policy.pools if not _refusal(p, asked, pod, claimed, facts)]
    fitting = [p for p in willing if p.max_request is None or count <= p.max_request]
    share = claimed.level == TRUSTED and count == 1
    right = [p for p in fitting if p.shared == share] or fitting
    too_small = sorted(
        (p for p in willing if p not in fitting), key=lambda p: (p.shared != share, -(p.max_request or 0))
    )
    for pool in (*right, *too_small):
        if clash(pod, pool) is None:
            return Placement(asked, claimed.in_(pool), pool)
    if pools := right or too_small:
        return Placement(asked, claimed.in_(pools[0]), pools[0], clash(pod, pools[0]))
    if nowhere := [resource for resource in asked if not any(resource in p.resources for p in policy.pools)]:
        refusals: tuple[str, ...] = (f"no pool offers {listed(nowhere, NAMED)}",)
    else:
        refusals = tuple(_refusal(p, asked, pod, claimed, facts) for p in policy.pools)
    return Placement(asked, claimed.level, None, refusals=refusals)


def _refusal(pool: Pool, asked: Mapping[str, Amount], pod: Pod, claimed: Claim, facts: Facts) -> str:
    """Say why a pool does not take a pod, whatever its number of GPUs; nothing when it does."""
    missing = [resource for resource in asked if resource not in pool.resources]
    if missing:
        return f"pool {pool.name} does not offer {listed(missing, NAMED)}"
    return _closed(pool, pod, claimed, facts)


def _closed(pool: Pool, pod: Pod, claimed: Claim, facts: Facts) -> str:
    """Say why a pool does not take a pod, whatever it asks for; nothing when it does."""
    if pool.circle and not pool.circle.covers(pod.namespace, facts.namespaces.get(pod.namespace), pod.service_account):
        return f"pool {pool.name} is shared among other namespaces"
    level = claimed.in_(pool)
    if level in pool.trust:
        return ""
    if level != claimed.level:
        return f"pool {pool.name} is not one where the pod may be {claimed.level}"
    return f"pool {pool.name} takes no {level} pods"


def offers(pod: Pod, policy: Policy, facts: Facts, claimed: Claim) -> tuple[str, ...]:
    """The names of resources that a pod may ask for: what the pools offer that take pods such as it."""
    open_ = (pool for pool in policy.pools if not _closed(pool, pod, claimed, facts))
    return tuple(dict.fromkeys(name for pool in open_ for name in pool.resources.patterns))


@lru_cache(maxsize=2)  # by the snapshot, which has ten thousand nodes
def names(policy: Policy, facts: Facts) -> tuple[tuple[str, ...], frozenset[str]]:
    """The names by which pools offer GPUs, as far as they or known nodes say them whole, and what else nodes have."""
    had = {name for node in facts.nodes for name in node.resources}
    said = {name for pool in policy.pools for name in pool.resources.patterns if not name.endswith("*")}
    offered = said | {name for name in had if any(name in pool.resources for pool in policy.pools)}
    return tuple(sorted(offered)), frozenset(had - offered)


def clash(pod: Pod, pool: Pool) -> Clash | None:
    """Tell what in a pod's own node selection excludes every node of a pool; None when nothing does.

    A selection that contradicts itself is its author's affair: no node is chosen by it.
    """
    needed, labels = pool.nodes.requirements, pod.node_selector
    if pod.node_terms is None and all(r.matches(labels) for r in needed if r.key in labels):
        return None  # as nearly all pods, before and after they are steered
    own = _selected(pod, needed)
    if contradiction(own + needed) is not None:
        return _clash(pod.at("spec", "nodeSelector"), own, needed)
    terms = [
        (term.path, (*_selected(pod, (*term.expressions, *needed)), *term.expressions))
        for term in pod.node_terms or ()
        if term.expressions is not None
    ]
    terms = [(path, own) for path, own in terms if contradiction(own) is None]
    if not terms or any(contradiction(own + needed) is None for _, own in terms):
        return None
    return _clash(*terms[0], needed)


def _selected(pod: Pod, requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """Return what the pod's nodeSelector says of the labels that the requirements speak of."""
    keys = {r.key for r in requirements}
    return equals({key: pod.node_selector[key] for key in keys if key in pod.node_selector})


def _clash(path: Path, own: tuple[Requirement, ...], needed: tuple[Requirement, ...]) -> Clash:
    key = contradiction(own + needed)
    return Clash(
        path,
        " and ".join(str(r) for r in own if r.key == key),
        " and ".join(str(r) for r in needed if r.key == key),
    )
