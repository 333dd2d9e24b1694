"""Explains how a cap is computed: for a cluster, and for one object."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from webhook.allowance import Allowance
from webhook.api.pods import Pod
from webhook.catalog.gpu_requests import IMPLICIT
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.gpu.device_classes import devices_of
from webhook.gpu.placement import Placement
from webhook.gpu.review import PodReview
from webhook.gpu.selection import Selection, fits, offers, repelled, taken
from webhook.memory.budget import Budget, budget, nodes, smallest
from webhook.memory.coverage import Capped, coverage
from webhook.memory.plan import CapPlan, CapRefusal, plan, size
from webhook.model import Path, dotted
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy, Pool
from webhook.review import Review
from webhook.text import tables
from webhook.text.words import listed, shown

HEAD = ("pool", "card", "nodes", "memory", "replicas", "reserve", "context", "cap", "fraction")


def caps(policy: Policy, facts: Facts, pools: Iterable[Pool]) -> str:
    """Write the budget of every GPU in some pools, in MiB, and mark the budget that pods get if they choose no card."""
    rows = [HEAD, *(row for pool in pools for row in _rows(pool, policy, facts))]
    lines = [*tables.columns(rows, right=range(2, len(HEAD)))]
    if any(row[-1].endswith("*") for row in rows):
        lines += ["", "* the least fraction of the pool, which caps all its pods that choose no card"]
    return "\n".join(lines) + "\n"


def _rows(pool: Pool, policy: Policy, facts: Facts) -> Iterator[tuple[str, ...]]:
    if pool.sharing not in policy.capped_sharing:
        yield (pool.name, f"no caps: {pool.sharing}", *("",) * 7)
        return
    known = nodes(pool, facts)
    cards = {node.name: card for node, card in known}
    products = sorted({card for card in cards.values() if card}, key=lambda c: (c.product, c.memory, c.replicas))
    least = smallest(pool, policy, facts)
    if least is None:
        yield (pool.name, "no card is known, and the policy assumes none", *("",) * 7)
        return
    for card in products or [least.card]:
        share = budget(card, policy, driver=pool.driver_limits)
        count = sum(other == card for other in cards.values())
        mark = "*" if share.permille == least.permille and len(products) > 1 else ""
        yield (
            pool.name,
            card.product or "unnamed",
            str(count) if products else "assumed",
            *map(str, (card.memory, card.replicas, share.reserve, share.context, share.budget)),
            f"{share.fraction}{mark}" if not least.unified else "none: the host's memory",
        )
    if blind := [name for name, card in cards.items() if card is None]:
        yield (pool.name, f"no usable labels: {listed(blind, _LISTED)}", str(len(blind)), *("",) * 6)


COVERED = ("object", "container", "framework", "capped by", "why not", "the line that turns a cap on")


def covered(rows: Iterable[tuple[str, str, str, str, str, str]]) -> str:
    """Write how the frameworks of some pods are capped, as a table; one sentence if no pod requests a shared GPU."""
    lines = [COVERED, *rows]
    return "\n".join(tables.columns(lines) if len(lines) > 1 else ("no pod with caps",)) + "\n"


class Landing(NamedTuple):
    """The pool that a pod belongs to, the nodes there on which it may land, and its cap.

    `path` is the path of its spec in the object, `trust` is its trust level, and `asks` has its amount of each
    resource. `where` describes these nodes, or says why there are none. `reason` says why it lands there. `uncapped`
    says why it has no cap. `capped` says how each framework in each container is capped, if requested. `whole_gpu_way`
    says how to get a whole GPU, for a pod that shares only because of the policy's default. A pod `waits` if nodes are
    known, and no node of its pool fits. A running pod is judged as if it were created again.
    """

    path: Path
    pool: str
    nodes: tuple[str, ...]
    where: str
    trust: str
    asks: Mapping[str, str]
    reason: str
    cap: Budget | None = None
    uncapped: str = ""
    capped: tuple[Capped, ...] = ()
    whole_gpu_way: str = ""
    waits: bool = False

    @property
    def brief(self) -> str:
        """One line: pool, nodes, trust and requested amounts."""
        if not self.pool:
            return f"no pool takes it: {self.reason}"
        return f"pool {self.pool}{'' if self.nodes else ','} {self.where}: {self.reason}"

    @property
    def memory(self) -> str:
        """One line on how the cap is computed."""
        return self.cap.arithmetic if self.cap else self.uncapped

    @property
    def value(self) -> dict[str, Any]:
        """The landing as an object for JSON: where the pod lands, and why. Only the first of many nodes are named."""
        return {
            "path": dotted(self.path),
            "pool": self.pool or None,
            "nodes": list(self.nodes[:_NAMED]),
            "nodeCount": len(self.nodes),
            "where": self.where,
            "trust": self.trust,
            "asks": dict(self.asks),
            "reason": self.reason,
        }

    @property
    def explained(self) -> dict[str, Any]:
        """The fields that `--explain` adds to JSON: every node, and the cap. Memory is in MiB."""
        value: dict[str, Any] = {**self.value, "nodes": list(self.nodes)}
        if self.cap is None:
            return {**value, "why": self.uncapped}
        card = self.cap.card
        return {
            **value,
            "frameworks": [one._asdict() for one in self.capped],
            "budget": {
                "product": card.product,
                "memory": card.memory,
                "replicas": card.replicas,
                "processes": self.cap.wish.processes,
                "reserve": self.cap.reserve,
                "context": self.cap.context,
                "cap": self.cap.mib,
                "fraction": None if self.cap.unified else self.cap.fraction,
            },
        }


_LISTED, _NAMED = 4, 10
"""Maximum number of nodes that are named for people, and for programs."""


def landings(reviews: Iterable[Review[Any]], *, capped: bool = False) -> Iterator[Landing]:
    """Yield the landing of each reviewed pod that requests a GPU. Raises Malformed for an object of a wrong shape.

    With `capped`, each landing also says how each framework is capped.
    """
    for review in reviews:
        if isinstance(review, PodReview) and review.placement is not None:
            yield _landing(review, review.placement, capped=capped)


def _landing(review: PodReview, placement: Placement, *, capped: bool) -> Landing:
    pod, policy, facts = review.subject, review.policy, review.facts
    pool, cap, uncapped, rows = placement.pool, None, "", tuple[Capped, ...]()
    names, where = _where(pod, pool, placement, facts) if pool else ((), "")
    if pool is None:
        uncapped = "no pool takes it"
    elif pool.sharing not in policy.capped_sharing:
        uncapped = f"no caps: {pool.sharing}"
    else:
        sized = size(review, pool)
        cap = sized.budget
        if cap is None and isinstance(sized, CapRefusal):
            no_card = "no card is known, and the policy assumes none"
            uncapped = f"{sized.annotation}: {sized.message}" if sized.annotation else no_card
        if capped and isinstance(planned := plan(review, pool, Allowance()), CapPlan):
            rows = tuple(coverage(planned))
    if pool and pod.old is None and (full := taken(pool, facts)):
        where = f"{where} ({full})"
    asks = {resource: str(amount) for resource, amount in placement.totals.items()}
    reason = "; ".join(_reasons(review, placement))
    name = pool.name if pool else ""
    by_default = pool is not None and pool.shared and review.trust_request.asked is None and not pod.partial
    way = review.whole_gpu_way if by_default else ""
    path = pod.located(pod.spec_path)[0]
    waits = pool is not None and bool(facts.nodes) and not fits(pod, pool, facts, placement.totals)
    return Landing(path, name, names, where, placement.level, asks, reason, cap, uncapped, rows, way, waits)


def _where(pod: Pod, pool: Pool, placement: Placement, facts: Facts) -> tuple[tuple[str, ...], str]:
    """Name the nodes of a pool that a pod selects and that have the requested resources, and describe them in words."""
    if not pool.has_nodes:
        return _holding(placement, facts)
    known, selection = [node for node, _ in nodes(pool, facts)], Selection.of(pod, pool)
    own = pod.spec.get("nodeName")
    chosen = [node for node in known if node.name == own] or known  # it runs elsewhere, and is judged as created
    selected = [node for node in chosen if selection.allows(node)]
    if keys := repelled(pod, pool, facts, placement.totals):
        return (), f"but the pod does not tolerate the taint {listed([*keys], _LISTED)} of its nodes ({_names(known)})"
    names = tuple(node.name for node in selected if offers(node, placement.totals.items()))
    if names:
        return names, f"on {listed(names, _LISTED)}"
    if not known:
        return (), "but no node of it is known"
    if not selected:
        return (), f"but the pod selects none of its known nodes ({_names(known)})"
    if len(selected) == len(known):
        return (), f"but no known node of it ({_names(known)}) has what the pod asks for"
    return (), f"but the nodes that the pod selects there ({_names(selected)}) do not have what it asks for"


def _holding(placement: Placement, facts: Facts) -> tuple[tuple[str, ...], str]:
    """Name the nodes that have devices of the claimed classes, if only the claim decides."""
    classes = [name.removeprefix(IMPLICIT) for name in placement.totals if name.startswith(IMPLICIT)]
    holding = {device.node for name in classes for device in devices_of(name, facts) if device.node}
    names = tuple(sorted(holding))
    return names, f"on {listed(names, _LISTED)}" if names else "where its claim is given a device"


def _names(some: Iterable[Node]) -> str:
    return listed([node.name for node in some], _LISTED)


def _reasons(review: PodReview, placement: Placement) -> Iterator[str]:
    yield f"asks for {', '.join(f'{amount} {shown(name, quotes=False)}' for name, amount in placement.totals.items())}"
    yield from _by_claim(review, placement)
    yield _trust(review, placement)
    yield from placement.refusals
    if placement.clash:
        yield f"its node selection {placement.clash.tenant} excludes the pool's {placement.clash.pool}"


def _by_claim(review: PodReview, placement: Placement) -> Iterator[str]:
    """Name the claim that gives a pod devices: its own, or one that the scheduler makes for a resource of a class."""
    for use in review.claims:
        classes, sized = listed(use.contents.pooled, 3), use.contents.memory.values()
        memory = f", {min(sized)} MiB of a device" if sized else ""
        yield f"by {shown(use.words, quotes=False)} for class {shown(classes, quotes=False)}{memory}"
    for name, known in review.facts.device_classes.items():
        if known.resource in placement.totals:
            yield f"{shown(known.resource, quotes=False)} by claim of class {shown(name, quotes=False)}"


def _trust(review: PodReview, placement: Placement) -> str:
    """Say which trust level a pod has, and which grant gives it or is missing."""
    asked, _, _, withheld = review.trust_request
    if placement.level == TRUSTED:
        return f"trusted{' by default' if asked is None else ''} (granted to {_grant(review, placement)})"
    if asked not in (None, TRUSTED, UNTRUSTED):
        return f"treated as untrusted: {shown(asked)} is not a trust level"
    if (asked or review.policy.default_trust) != TRUSTED:
        return "untrusted, as it asks" if asked else "untrusted by default"
    why = f"{'it asks to be trusted' if asked else 'trust is the default'}, but"
    if withheld:
        return f"treated as untrusted: {why} its grants are for other users"
    return f"treated as untrusted: {why} no grant covers {_uncovered(review)}"


def _uncovered(review: PodReview) -> str:
    """Say which part of a pod no grant covers: its service account, if its namespace has a grant for others."""
    pod, labels = review.subject, review.facts.namespaces.get(review.subject.namespace)
    reaching = review.policy.grants_reaching(pod.namespace, labels)
    if any(grant.rbac for grant in reaching):
        known = review.facts.trusts(pod.namespace, pod.service_account) is not None
        return f"its service account {shown(pod.service_account)}{'' if known else ', whose rights are not known'}"
    if reaching:
        return f"its service account {shown(pod.service_account)}"
    return f"its namespace {shown(pod.namespace)}"


def _grant(review: PodReview, placement: Placement) -> str:
    pod, pool = review.subject, placement.pool
    labels = review.facts.namespaces.get(pod.namespace)
    for grant in review.policy.grants:
        scope = grant.scope
        held = not grant.rbac or review.facts.trusts(pod.namespace, pod.service_account)
        named = not grant.pools or pool is None or pool.name in grant.pools
        if scope.covers(pod.namespace, labels, pod.service_account) and named and held:
            if grant.rbac:
                return f"its service account {shown(pod.service_account)} by RBAC"
            if pod.namespace in scope.namespaces or scope.selector is None:
                return f"namespace {shown(pod.namespace, quotes=False)}"
            return f"namespaces with {' and '.join(map(str, scope.selector.requirements))}"
    return "its namespace"
