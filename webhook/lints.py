"""What is likely wrong with a policy that can be used: pools without nodes, grants that add nothing, doors left open.

Each lint is a generator over a policy and what is known of its cluster. Its function's name is its id, its docstring
its page, whose last paragraph begins `Way out:`; its action says how bad it is: Deny for what will hurt, Warn for what
is likely a mistake, Audit for what is only worth knowing. A lint that needs facts is silent where there are none.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import combinations
from typing import NamedTuple, TypeVar

from webhook import guard
from webhook.budget import MIN_BUDGET, budget, card_of, nodes, smallest
from webhook.check import Judged, Report
from webhook.documents import Document
from webhook.facts import Facts, Node
from webhook.model import Action, Finding, Object, Path, Result, Verdict
from webhook.policy import (
    FORBIDDEN,
    NAME_LABEL,
    REQUIRED,
    SHARED,
    TRUSTED,
    Grant,
    Override,
    Policy,
    Pool,
    ResourceNames,
    Scope,
)
from webhook.sharing import GPU, has_gpus, some


@dataclass(frozen=True, eq=False)
class Linted:
    """A policy, its `spec` as the file has it, what is known of the cluster, and by when an end is soon."""

    policy: Policy
    spec: Object
    facts: Facts
    today: date
    soon: timedelta

    @property
    def pools(self) -> Iterator[tuple[Path, Pool, list[Node]]]:
        """Each pool with its path and its nodes, where any nodes are known."""
        if self.facts.nodes:
            for path, pool in at("pools", self.policy.pools):
                yield path, pool, [node for node in self.facts.nodes if pool.nodes.matches(node.labels)]

    @property
    def scopes(self) -> Iterator[tuple[Path, Scope]]:
        """Everything that speaks of namespaces, with its path."""
        yield from ((path, each.scope) for path, each in at("trust.grants", self.policy.grants))
        yield from (
            ((*path, "circle"), pool.circle) for path, pool in at("pools", self.policy.pools) if pool.circle is not None
        )
        yield from at("gpus.claims", self.policy.forms.claims)
        for path, override in at("overrides", self.policy.overrides):
            if override.scope is not None:
                yield path, override.scope
        yield from ((path, each.scope) for path, each in at("exemptions", self.policy.exemptions))

    def reached(self, scope: Scope) -> set[str]:
        """The known namespaces that a scope covers."""
        return {name for name, labels in self.facts.namespaces.items() if scope.reaches(name, labels)}


T = TypeVar("T")


def at(place: str, values: Iterable[T]) -> Iterator[tuple[Path, T]]:
    """Give each item of a list of the policy its path."""
    for index, value in enumerate(values):
        yield ("spec", *place.split("."), index), value


class Found(NamedTuple):
    """Where, and what: one line with the way out."""

    path: Path
    message: str


# Pools and nodes


def empty_pool(of: Linted) -> Iterator[Found]:
    """No node is in a pool.

    What is steered there waits for ever. A pool that scales from zero says so with `assume`, and is passed over.

    Way out: correct the labels under `nodes`, label the nodes, or remove the pool.
    """
    for path, pool, found in of.pools:
        if not found and pool.assume is None:
            wanted = " and ".join(map(str, pool.nodes.requirements))
            yield Found(
                (*path, "nodes"), f"no node has {wanted}, so pods of pool {pool.name} wait for ever; correct it"
            )


def poolless_node(of: Linted) -> Iterator[Found]:
    """A node with GPUs is in no pool.

    No pod is steered there, so its GPUs lie idle.

    Way out: label the node as one of the pools wants it, or add a pool for it.
    """
    left = [node for node in of.facts.nodes if has_gpus(node) and of.policy.pool_of(node.labels) is None]
    if left:
        yield Found(("spec", "pools"), f"no pool has {some(left)}, whose GPUs lie idle; add one, or label them")


def other_sharing(of: Linted) -> Iterator[Found]:
    """A node's GPUs are shared in another way than its pool says.

    Pods that were promised a card of their own would share it, or the other way round.

    Way out: give the node another sharing configuration, or tell the pools apart by nvidia.com/gpu.sharing-strategy.
    """
    for path, pool, found in of.pools:
        wrong: dict[str, list[Node]] = {}
        for node in found:
            said = node.labels.get(f"{GPU}.sharing-strategy")
            if said is not None and (said if said in SHARED else "none") != (pool.sharing if pool.shared else "none"):
                wrong.setdefault(said, []).append(node)
        for said, whom in sorted(wrong.items()):
            yield Found(
                (*path, "sharing"),
                f"is {pool.sharing}, but {said} on {some(whom)} in pool {pool.name}; select by {GPU}.sharing-strategy",
            )


def unoffered_resource(of: Linted) -> Iterator[Found]:
    """A pool offers a resource that none of its nodes has.

    Pods that ask for it are steered there, and wait for ever.

    Way out: remove the resource from the pool, or set up the device plugin on the nodes.
    """
    for path, pool, found in of.pools:
        if not any(node.resources for node in found):
            continue
        for place, pattern in enumerate(pool.resources.patterns):
            names = ResourceNames((pattern,), shares=pool.shared)
            if not any(count and name in names for node in found for name, count in node.resources.items()):
                yield Found(
                    (*path, "resources", place), f"no node of pool {pool.name} has {pattern}; remove it, or offer it"
                )


def unlisted_offer(of: Linted) -> Iterator[Found]:
    """Nodes of a pool offer GPUs by a name that the pool does not list.

    Nobody can ask for them.

    Way out: add the resource to the pool, or change what the nodes offer.
    """
    for path, pool, found in of.pools:
        idle: dict[str, list[Node]] = {}
        for node in found:
            for name, count in node.resources.items():
                if count and name in of.policy.gpu_resources and name not in pool.resources:
                    idle.setdefault(name, []).append(node)
        for name, whom in sorted(idle.items()):
            yield Found((*path, "resources"), f"lacks {name}, offered by {some(whom)}; add it to pool {pool.name}")


def unguarded_node(of: Linted) -> Iterator[Found]:
    """Nothing keeps pods that ask for no GPU off a node that has some.

    An image alone may then see GPUs there.

    Way out: taint all nodes with GPUs and name the taint in `guard`, or say `guard: every-pod`.
    """
    if caution := guard.unguarded(of.policy, of.facts):
        yield Found(("spec", "guard"), caution)


def unreachable_request(of: Linted) -> Iterator[Found]:
    """A pool lets pods ask for more GPUs than any of its nodes has.

    Such a pod is admitted and waits for ever.

    Way out: lower `maxRequest` to what the largest node has.
    """
    for path, pool, found in of.pools:
        most = max(
            (count for node in found for name, count in node.resources.items() if name in pool.resources), default=0
        )
        if pool.max_request and 0 < most < pool.max_request:
            yield Found(
                (*path, "maxRequest"),
                f"is {pool.max_request}, and no node of pool {pool.name} has more than {most}; lower it",
            )


# Memory and limits


def unknown_card(of: Linted) -> Iterator[Found]:
    """No card of a pool whose pods are capped is known.

    Without its memory and replicas nothing can be capped.

    Way out: run GPU Feature Discovery on its nodes, or say under `assume` what its smallest card is.
    """
    for path, pool, found in of.pools:
        if pool.sharing in of.policy.capped_sharing and found and smallest(pool, of.policy, of.facts) is None:
            yield Found(path, f"no card is known on {some(found)}, so pods have no cap; write `assume`")


def thin_slice(of: Linted) -> Iterator[Found]:
    """A slice of a pool's smallest card is too small for any framework.

    Its pods are refused: a cap of less only moves the failure.

    Way out: share the card into fewer slices, or measure the context and say it under `memory.context`.
    """
    for path, pool in at("pools", of.policy.pools):
        if pool.sharing not in of.policy.capped_sharing:
            continue
        cap = smallest(pool, of.policy, of.facts)
        if cap is not None and not cap.enough:
            yield Found(path, f"leaves {cap.least} MiB a slice, and {MIN_BUDGET} are needed: {cap.arithmetic}")


def broken_limit(of: Linted) -> Iterator[Found]:
    """Nodes are shared further than the policy's own limits allow.

    The next change of the sharing configuration will be refused, and until then its pods have less than was meant.

    Way out: share the cards into fewer slices, or raise the limit.
    """
    for path, pool, _ in of.pools:
        many: dict[tuple[str, int], list[Node]] = {}
        thin: dict[int, list[Node]] = {}
        for node, card in nodes(pool, of.facts):
            if card is None or not pool.shared:
                continue
            where, limit = _limit(pool, of.policy, card.product)
            if card.replicas > limit:
                many.setdefault((where, limit), []).append(node)
            left = (card.memory - budget(card, of.policy).reserve) // card.replicas
            if left < of.policy.limits.min_slice:
                thin.setdefault(left, []).append(node)
        for (where, limit), whom in many.items():
            most = max(card.replicas for card in map(card_of, whom) if card)
            yield Found(
                (*path, "nodes"), f"a card has {most} slices on {some(whom)}, and {where} is {limit}; lower one"
            )
        for left, whom in sorted(thin.items()):
            least = of.policy.limits.min_slice
            yield Found(
                ("spec", "sharing", "minSliceMemory"),
                f"is {least} MiB, and a slice has {left} on {some(whom)} in pool {pool.name}; share into fewer",
            )


def _limit(pool: Pool, policy: Policy, product: str) -> tuple[str, int]:
    own = policy.limits.of_product(product)
    limits = [("maxReplicasByProduct", own), (f"maxReplicas of pool {pool.name}", pool.max_replicas)]
    known = [(limit, where) for where, limit in limits if limit is not None]
    limit, where = min(known, default=(policy.limits.max_replicas, "sharing.maxReplicas"))
    return where, limit


def contradicted_limit(of: Linted) -> Iterator[Found]:
    """A pool needs what the limits under `sharing` forbid.

    No sharing configuration would be allowed that makes such nodes.

    Way out: change the pool, or the limit.
    """
    limits = of.policy.limits
    for path, pool in at("pools", of.policy.pools):
        names = [name for name in pool.resources.patterns if name.endswith((".shared", "*"))]
        if pool.sharing == "mps" and limits.mps == FORBIDDEN:
            yield Found((*path, "sharing"), "is mps, and sharing.mps is Forbidden; allow it, or share by time-slicing")
        if pool.shared and limits.rename_by_default == REQUIRED and not names:
            yield Found((*path, "resources"), "sharing.renameByDefault is Required, so list nvidia.com/gpu.shared")
        if pool.shared and limits.rename_by_default == FORBIDDEN and len(names) == len(pool.resources.patterns):
            yield Found((*path, "resources"), "sharing.renameByDefault is Forbidden, so list nvidia.com/gpu")
        if pool.assume:
            where, limit = _limit(pool, of.policy, pool.assume.product)
            if pool.assume.replicas > limit:
                yield Found(
                    (*path, "assume", "replicas"), f"is {pool.assume.replicas}, and {where} is {limit}; lower one"
                )


def missing_config_map(of: Linted) -> Iterator[Found]:
    """A ConfigMap that the policy names as a sharing configuration is not there.

    A misspelt name leaves the real one to be found by its looks alone.

    Way out: correct namespace and name, or remove the entry.
    """
    if not of.facts.config_maps:
        return
    for path, each in at("sharing.configMaps", of.spec.get("sharing", {}).get("configMaps", ())):
        namespace, name = each["namespace"], each["name"]
        if (namespace, name) not in of.facts.config_maps:
            yield Found(path, f"there is no ConfigMap {namespace}/{name}; correct it, or remove the entry")


# Who


def unknown_namespace(of: Linted) -> Iterator[Found]:
    """A namespace that the policy names does not exist.

    What it was given is nobody's, or, once someone may create the namespace, theirs.

    Way out: correct the name, create the namespace, or remove it from the policy.
    """
    if not of.facts.namespaces:
        return
    for path, name in _namespaces_named(of.spec):
        if name not in of.facts.namespaces:
            yield Found(path, f"there is no namespace {name}; correct the name, or remove it")


def _namespaces_named(spec: Object) -> Iterator[tuple[Path, str]]:
    holders: list[tuple[Path, Object]] = [(("spec", "sharing"), spec.get("sharing", {}))]
    holders += at("trust.grants", spec.get("trust", {}).get("grants", ()))
    holders += [((*path, "circle"), pool.get("circle", {})) for path, pool in at("pools", spec["pools"])]
    holders += at("gpus.claims", spec.get("gpus", {}).get("claims", ()))
    holders += at("memory.torch.versions", spec.get("memory", {}).get("torch", {}).get("versions", ()))
    for key in ("overrides", "exemptions"):
        holders += at(key, spec.get(key, ()))
    for path, holder in holders:
        for place, name in enumerate(holder.get("namespaces", ())):
            yield (*path, "namespaces", place), name


def idle_scope(of: Linted) -> Iterator[Found]:
    """A grant, circle, override or exemption covers no namespace that there is.

    It does nothing today, and will once somebody gives a namespace the labels.

    Way out: correct the labels, or remove it.
    """
    for path, scope in of.scopes:
        if of.facts.namespaces and scope.selector and not of.reached(scope):
            wanted = " and ".join(map(str, scope.selector.requirements))
            yield Found((*path, "namespaceSelector"), f"no namespace has {wanted}; correct it, or remove it")


def broad_grant(of: Linted) -> Iterator[Found]:
    """A grant covers nearly everybody: whoever does not carry a label, or every namespace there is.

    A namespace that is created tomorrow is trusted without anybody's decision.

    Way out: grant by a label that an administrator has to write, or by names.
    """
    for path, grant in at("trust.grants", of.policy.grants):
        selector = grant.scope.selector
        if selector and all(r.operator in _OPEN or _is_any_name(r.key, r.operator) for r in selector.requirements):
            said = " and ".join(map(str, selector.requirements))
            yield Found((*path, "namespaceSelector"), f"{said} trusts every new namespace; ask for a label's value")
        elif len(of.facts.namespaces) > 1 and of.reached(grant.scope) == set(of.facts.namespaces):
            yield Found(path, f"covers all {len(of.facts.namespaces)} namespaces, the system's too; name fewer")


_OPEN = ("NotIn", "DoesNotExist")


def _is_any_name(key: str, operator: str) -> bool:
    return key == NAME_LABEL and operator == "Exists"


def shadowed_grant(of: Linted) -> Iterator[Found]:
    """A grant gives nothing that another one does not give.

    Whoever removes it, or restricts it, believes to have taken something away.

    Way out: remove it, or the wider one.
    """
    for index, grant in enumerate(of.policy.grants):
        for other, wider in enumerate(of.policy.grants):
            same = _wider(wider, grant) and _wider(grant, wider)
            if other != index and _wider(wider, grant) and (not same or other < index):
                yield Found(
                    ("spec", "trust", "grants", index), f"gives nothing that grants[{other}] does not; remove one"
                )
                break


def _wider(wide: Grant, narrow: Grant) -> bool:
    """Tell whether a grant gives all that another does, whatever the labels of namespaces are."""
    return _within(narrow.scope, wide.scope) and not any(_restrictions(wide, narrow))


def _within(narrow: Scope, wide: Scope) -> bool:
    if narrow.selector:
        if wide.selector is None:
            return False
        if not set(wide.selector.requirements) <= set(narrow.selector.requirements):
            return False
    return narrow.namespaces <= wide.namespaces


def _restrictions(grant: Grant, other: Grant) -> Iterator[str]:
    """Name what a grant asks for that another does not."""
    accounts = grant.scope.service_accounts
    if accounts and not (other.scope.service_accounts and other.scope.service_accounts <= accounts):
        yield "serviceAccounts"
    if grant.pools and not (other.pools and other.pools <= grant.pools):
        yield "pools"
    asked, needed = grant.requesters, other.requesters
    if asked is not None and (needed is None or not (needed.users <= asked.users and needed.groups <= asked.groups)):
        yield "users or groups"


def overlapping_grants(of: Linted) -> Iterator[Found]:
    """Two grants cover a namespace, and what one of them asks for the other does not.

    Grants add up, so the restriction holds for nobody there.

    Way out: take the namespace out of the wider one.
    """
    for (first, one), (second, other) in combinations(enumerate(of.policy.grants), 2):
        for number, narrow, by, wide in ((first, one, second, other), (second, other, first, one)):
            both = of.reached(narrow.scope) & of.reached(wide.scope)
            asked = list(_restrictions(narrow, wide))
            if both and asked and not any(_restrictions(wide, narrow)) and not _wider(wide, narrow):
                yield Found(
                    ("spec", "trust", "grants", number),
                    f"its {' and '.join(asked)} do not hold in {', '.join(sorted(both)[:3])}, where grants[{by}] asks "
                    "for less; take them out of one",
                )


def useless_grant(of: Linted) -> Iterator[Found]:
    """A grant gives trust where no pool asks for it.

    Nothing follows from it.

    Way out: remove it, or let a pool take only the trusted.
    """
    for path, grant in at("trust.grants", of.policy.grants):
        pools = [pool for pool in of.policy.pools if not grant.pools or pool.name in grant.pools]
        if not any(TRUSTED in pool.trust for pool in pools):
            yield Found(path, f"{' and '.join(pool.name for pool in pools)} take no trusted pods; remove it")


# What is eased


def ended_exemption(of: Linted) -> Iterator[Found]:
    """An exemption has ended.

    It does nothing any more but mislead its readers.

    Way out: remove it.
    """
    for path, each in at("exemptions", of.policy.exemptions):
        if each.until is not None and each.until < of.today:
            yield Found((*path, "until"), f"exemption {each.name} ended on {each.until}; remove it")


def ending_exemption(of: Linted) -> Iterator[Found]:
    """An exemption ends soon.

    What it let through is refused the day after.

    Way out: mend what it was for, or set another day.
    """
    for path, each in at("exemptions", of.policy.exemptions):
        if each.until is not None and of.today <= each.until < of.today + of.soon:
            yield Found((*path, "until"), f"exemption {each.name} ends on {each.until}; mend what it is for")


def idle_override(of: Linted) -> Iterator[Found]:
    """An override changes nothing: it gives a rule the action that it has anyway, or comes after a wider one.

    Of those that fit and name a rule the first counts.

    Way out: remove it, or move it up.
    """
    overrides = of.policy.overrides
    for index, (path, each) in enumerate(at("overrides", overrides)):
        for rule, action in each.actions.items():
            before = [(place, one) for place, one in enumerate(overrides[:index]) if rule in one.actions]
            wider = next((place for place, one in before if _overrides(one, each)), None)
            if wider is not None:
                yield Found((*path, "rules", rule), f"overrides[{wider}] speaks of this rule first; move this up")
            elif not before and action is of.policy.action(rule):
                yield Found((*path, "rules", rule), f"is {action} without it too; remove it")


def _overrides(wide: Override, narrow: Override) -> bool:
    """Tell whether an override covers all that another does."""
    if wide.scope is not None and (narrow.scope is None or not _within(narrow.scope, wide.scope)):
        return False
    return not wide.pools or (bool(narrow.pools) and narrow.pools <= wide.pools)


class Door(NamedTuple):
    """A way around the policy: open where of each set of rules one is not Deny."""

    sets: tuple[frozenset[str], ...]
    open: str


_PAST_THE_GUARD = frozenset(("broad-toleration", "chosen-node", "foreign-binding"))
_TAKING = frozenset(
    (
        "device-annotation",
        "device-mount",
        "device-path",
        "host-namespaces",
        "privileged-container",
        "visible-devices",
    )
)

DOORS = (
    Door((frozenset(("unsteered-pod",)),), "pods go where they like, and neither pools nor circles hold"),
    Door(
        (frozenset(("changed-trust", "relabelled-node", "self-granted-trust")),),
        "whoever may write labels can grant trust, or move a node into another pool",
    ),
    Door((_TAKING,), "a pod with one GPU can take those of its neighbours"),
    Door(
        (_PAST_THE_GUARD, _TAKING | {"unguarded-container"}),
        "a pod that asks for no GPU can come to one and take it",
    ),
    Door((frozenset(("lifted-limit", "uncapped-memory")),), "one pod can take the whole memory of a shared card"),
    Door((frozenset(("claimed-gpu", "unlisted-claim")),), "GPUs can be claimed past the pools"),
)
"""Which rules shut which door; docs/doors.md has all of them."""


def open_door(of: Linted) -> Iterator[Found]:
    """Rules that only warn or record leave a way around the policy open.

    Each may be right by itself while a cluster is brought under the policy; this says what they come to together.

    Way out: set the rules to Deny, and ease them by an override for those who still need it.
    """
    eased = {rule for rule, action in of.policy.actions.items() if action is not Action.DENY}
    for override in of.policy.overrides:
        if override.scope is None and override.pools >= of.policy.pool_names:
            eased |= {rule for rule, action in override.actions.items() if action is not Action.DENY}
    for door in DOORS:
        open_ = [sorted(rules & eased) for rules in door.sets]
        if all(open_):
            rules = sorted({rule for each in open_ for rule in each})
            yield Found(("spec", "rules", rules[0]), f"with {_and(rules)} eased {door.open}; set them to Deny")


def _and(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


LINTS: Mapping[Callable[[Linted], Iterator[Found]], Action] = {
    empty_pool: Action.WARN,
    poolless_node: Action.WARN,
    other_sharing: Action.DENY,
    unoffered_resource: Action.WARN,
    unlisted_offer: Action.WARN,
    unguarded_node: Action.DENY,
    unreachable_request: Action.WARN,
    unknown_card: Action.WARN,
    thin_slice: Action.DENY,
    broken_limit: Action.DENY,
    contradicted_limit: Action.DENY,
    missing_config_map: Action.WARN,
    unknown_namespace: Action.WARN,
    idle_scope: Action.WARN,
    broad_grant: Action.DENY,
    shadowed_grant: Action.WARN,
    overlapping_grants: Action.WARN,
    useless_grant: Action.WARN,
    ended_exemption: Action.WARN,
    ending_exemption: Action.AUDIT,
    idle_override: Action.WARN,
    open_door: Action.WARN,
}
"""Every lint, and how bad what it finds is."""


def lint(policy: Policy, document: Document, facts: Facts, today: date, soon: timedelta) -> Report:
    """Lint a policy, which stands in this document. The report has one object, the policy itself."""
    of = Linted(policy, document.value["spec"], facts, today, soon)
    results = [
        (Result(name(each), action, Finding(found.path, found.message)), document.line(found.path))
        for each, action in LINTS.items()
        for found in each(of)
    ]
    results.sort(key=lambda each: each[1])
    judged = Judged(
        file=document.file,
        line=document.line(),
        document=document.index,
        api_version=document.value["apiVersion"],
        kind=document.value["kind"],
        namespace="",
        name=policy.name,
        verdict=Verdict(tuple(result for result, _ in results)),
        lines=tuple(line for _, line in results),
    )
    return Report((judged,), pages=pages())


def name(check: Callable[[Linted], Iterator[Found]]) -> str:
    """The id of a lint."""
    return check.__name__.replace("_", "-")


def pages() -> Mapping[str, str]:
    """The page of each lint by its id."""
    return {name(each): inspect.cleandoc(each.__doc__ or "") for each in LINTS}


_SEVERITIES = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "note"}


def markdown() -> str:
    """Write the page of all lints."""
    lines = [
        "# What `slicewarden policy lint` finds",
        "",
        "Written by `slicewarden policy lints --markdown` from the docstrings in `webhook/lints.py`. In reports an",
        "error is `Deny`, a warning `Warn` and a note `Audit`. Two pools that a node could both be in, and all else",
        "that makes a policy unusable, are refused wherever the policy is read. What speaks of nodes and namespaces",
        "needs `--facts`.",
    ]
    for each, action in LINTS.items():
        page = inspect.cleandoc(each.__doc__ or "")
        lines += ["", f"## {name(each)}", "", f"*{_SEVERITIES[action]}*", "", page]
    return "\n".join(lines) + "\n"
