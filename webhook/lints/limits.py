"""Lints about memory, and about the limits under `sharing`."""

from collections.abc import Iterator

from webhook.deviceplugin.usage import some
from webhook.facts.kinds.node import Node
from webhook.lints.base import Linted, LintFinding, Table, at
from webhook.memory.budget import budget, card_of, nodes, smallest
from webhook.model import Action
from webhook.policy.model import EVICT, FORBIDDEN, REQUIRED, Policy, Pool


def unknown_card(of: Linted) -> Iterator[LintFinding]:
    """No card is known for a pool whose pods are capped.

    A cap cannot be computed without the card's memory and its replicas.

    Way out: run GPU Feature Discovery on the pool's nodes, or state its smallest card under `assume`.
    """
    for path, pool, found in of.pools:
        if pool.sharing in of.policy.capped_sharing and found and smallest(pool, of.policy, of.facts) is None:
            yield LintFinding(path, f"no card is known on {some(found)}, so pods have no cap; write `assume`")


def thin_slice(of: Linted) -> Iterator[LintFinding]:
    """A slice of a pool's smallest card is too small for any framework.

    Its pods are refused, since a smaller cap would only move the failure.

    Way out: share the card into fewer slices, or measure the context and state it under `memory.context`.
    """
    for path, pool in at("pools", of.policy.pools):
        if pool.sharing not in of.policy.capped_sharing:
            continue
        cap = smallest(pool, of.policy, of.facts)
        if cap is not None and not cap.enough:
            yield LintFinding(path, f"leaves too little a slice: {cap.arithmetic}")


def broken_limit(of: Linted) -> Iterator[LintFinding]:
    """Nodes share their GPUs among more pods than the policy's limits allow.

    The next change of the sharing configuration will be refused. Until then its pods have less than the policy intends.

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
            reserve = budget(card, of.policy, driver=pool.driver_limits).reserve
            left = (card.memory - reserve) // card.replicas
            if left < of.policy.limits.min_slice:
                thin.setdefault(left, []).append(node)
        for (where, limit), whom in many.items():
            most = max(card.replicas for card in map(card_of, whom) if card)
            yield LintFinding(
                (*path, "nodes"), f"a card has {most} slices on {some(whom)}, and {where} is {limit}; lower one"
            )
        for left, whom in sorted(thin.items()):
            least = of.policy.limits.min_slice
            yield LintFinding(
                ("spec", "sharing", "minSliceMemory"),
                f"is {least} MiB, and a slice has {left} on {some(whom)} in pool {pool.name}; share into fewer",
            )


def _limit(pool: Pool, policy: Policy, product: str) -> tuple[str, int]:
    own = policy.limits.of_product(product)
    limits = [("maxReplicasByProduct", own), (f"maxReplicas of pool {pool.name}", pool.max_replicas)]
    known = [(limit, where) for where, limit in limits if limit is not None]
    limit, where = min(known, default=(policy.limits.max_replicas, "sharing.maxReplicas"))
    return where, limit


def contradicted_limit(of: Linted) -> Iterator[LintFinding]:
    """A pool needs a setting that the limits under `sharing` forbid.

    A sharing configuration that makes such nodes would be refused.

    Way out: change the pool, or the limit.
    """
    limits = of.policy.limits
    for path, pool in at("pools", of.policy.pools):
        names = [name for name in pool.resources.patterns if name.endswith((".shared", "*"))]
        if pool.sharing == "mps" and limits.mps == FORBIDDEN:
            yield LintFinding(
                (*path, "sharing"), "is mps, and sharing.mps is Forbidden; allow it, or share by time-slicing"
            )
        if pool.shared and limits.rename_by_default == REQUIRED and not names:
            yield LintFinding(
                (*path, "resources"), "sharing.renameByDefault is Required, so list nvidia.com/gpu.shared"
            )
        if pool.shared and limits.rename_by_default == FORBIDDEN and len(names) == len(pool.resources.patterns):
            yield LintFinding((*path, "resources"), "sharing.renameByDefault is Forbidden, so list nvidia.com/gpu")
        if pool.assume:
            where, limit = _limit(pool, of.policy, pool.assume.product)
            if pool.assume.replicas > limit:
                yield LintFinding(
                    (*path, "assume", "replicas"), f"is {pool.assume.replicas}, and {where} is {limit}; lower one"
                )


def missing_config_map(of: Linted) -> Iterator[LintFinding]:
    """A ConfigMap that the policy names as a sharing configuration does not exist.

    If the name is misspelt, the real one is recognized only by its content.

    Way out: correct namespace and name, or remove the entry.
    """
    if not of.facts.config_maps:
        return
    for path, each in at("sharing.configMaps", of.spec.get("sharing", {}).get("configMaps", ())):
        namespace, name = each["namespace"], each["name"]
        if (namespace, name) not in of.facts.config_maps:
            yield LintFinding(path, f"there is no ConfigMap {namespace}/{name}; correct it, or remove the entry")


def odd_stay(of: Linted) -> Iterator[LintFinding]:
    """A pool's longest stay is so short that pods end before they work, or so long that it frees no GPU.

    The kubelet counts from when it has accepted the pod, so a large image may take ten minutes of it. More than ninety
    days are often milliseconds that were taken for seconds.

    Way out: correct `maxActiveDeadlineSeconds`, or remove it from pools whose pods may stay.
    """
    for path, pool in at("pools", of.policy.pools):
        stay = pool.max_active_deadline
        if stay is not None and not SHORT <= stay <= LONG:
            words = "less than ten minutes, with the pull of the image" if stay < SHORT else "more than ninety days"
            yield LintFinding((*path, "maxActiveDeadlineSeconds"), f"is {stay} s, {words}; correct it, or remove it")


def late_idle(of: Linted) -> Iterator[LintFinding]:
    """The pods of a pool end before the agent would act on idle containers.

    So an idle container holds its slice for the longest stay, and `node.idle` has no effect.

    Way out: lower `afterMinutes` and `noticeMinutes`, or raise `maxActiveDeadlineSeconds`.
    """
    for path, pool in at("pools", of.policy.pools):
        stay, idle = pool.max_active_deadline, pool.idle
        if stay is None or idle is None:
            continue
        where = (*path, "node", "idle")
        if idle.after >= stay:
            yield LintFinding(where, f"reports after {idle.after} s, and pods end after {stay} s; lower afterMinutes")
        elif idle.action == EVICT and idle.after + idle.notice >= stay:
            evicts = idle.after + idle.notice
            yield LintFinding(where, f"evicts after {evicts} s, and pods end after {stay} s; lower noticeMinutes")


SHORT, LONG = 10 * 60, 90 * 24 * 3600
"""Seconds: the limits of a longest stay that seems meant."""


LINTS: Table = {
    unknown_card: Action.WARN,
    thin_slice: Action.DENY,
    broken_limit: Action.DENY,
    contradicted_limit: Action.DENY,
    missing_config_map: Action.WARN,
    odd_stay: Action.WARN,
    late_idle: Action.WARN,
}
