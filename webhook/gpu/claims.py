"""The pools of device claims: a claim belongs to a pool by its device class, and has trust as a pod has."""

from collections.abc import Iterable, Mapping

from webhook.api.devices import DeviceClaim, DeviceRequest
from webhook.api.pods import Pod
from webhook.facts.snapshot import Facts
from webhook.gpu.placement import Claim, closed
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy, Pool
from webhook.policy.scopes import Grant


def trust(claim: DeviceClaim, policy: Policy, facts: Facts) -> Claim:
    """Read the trust of a claim, or of the claims of a template, as that of a pod is read.

    No account runs a claim, so a grant reaches it in each of the grant's namespaces; the account of a pod is judged
    with the pod. A grant with requesters applies if one of them wrote the claim, or a controller made it from a judged
    template, or an update leaves its trust as it is: what it requests can never change.
    """
    asked = claim.annotations.get(policy.annotation)
    labels = facts.namespaces.get(claim.namespace)
    grants = [grant for grant in policy.grants if grant.scope.reaches(claim.namespace, labels)]
    applied = [grant.pools or policy.pool_names for grant in grants if _applies(grant, claim, policy)]
    pools: frozenset[str] = frozenset().union(*applied)
    level = TRUSTED if pools and (policy.default_trust if asked is None else asked) == TRUSTED else UNTRUSTED
    return Claim(asked, pools, level, withheld=bool(grants) and not pools)


def _applies(grant: Grant, claim: DeviceClaim, policy: Policy) -> bool:
    requester, key = claim.requester, policy.annotation
    if grant.requesters is None:
        return True
    if key not in claim.annotations:
        return False
    if requester is None or policy.controllers.include(requester) or grant.requesters.include(requester):
        return True
    return claim.old is not None and claim.old.annotations.get(key) == claim.annotations.get(key)


def of_scheduler(claim: DeviceClaim, policy: Policy) -> bool:
    """Tell whether a scheduler made a claim: for a pod that requests a class's devices as an extended resource.

    Such a pod is judged by the resource (kubernetes dynamicresources/extendeddynamicresources.go).
    """
    return claim.requester is not None and policy.schedulers.include(claim.requester)


def opens(claim: DeviceClaim, pools: Iterable[Pool], policy: Policy, facts: Facts) -> tuple[Pool | None, list[str]]:
    """Return the first of some pools that takes a claim, or the reasons why none does."""
    claimed, refusals = trust(claim, policy, facts), []
    for pool in pools:
        refusal = closed(pool, claim.namespace, claimed, facts, "claim")
        if not refusal:
            return pool, []
        refusals.append(refusal)
    return None, refusals


def counted(requests: Iterable[DeviceRequest], policy: Policy) -> Mapping[str, int]:
    """Return how many devices of each class that a pool offers some requests take at most.

    The scheduler takes one alternative of each request. Requests that are kept on cards of their own count as the
    largest of them: each is one slice of a card. `adminAccess` takes nothing from others.
    """
    found: dict[str, dict[object, int]] = {}
    for request in requests:
        if request.admin or not policy.pools_of_class(request.device_class):
            continue
        shared = any(pool.shared for pool in policy.pools_of_class(request.device_class))
        place, number = ("apart", 1) if request.distinct and shared else (request.place, request.number)
        by_place = found.setdefault(request.device_class, {})
        by_place[place] = max(by_place.get(place, 0), number)
    return {name: sum(by_place.values()) for name, by_place in found.items()}


def account_may(pod: Pod, policy: Policy, facts: Facts) -> bool:
    """Tell whether the account of a pod may use any claim that its namespace may have written.

    A claim is judged where it is written, by the grants of its namespace; a pod says only its name. So every grant that
    the namespace's claims may use has to cover the pod's account, unless others cover the account in the same pools.
    """
    labels = facts.namespaces.get(pod.namespace)
    reached = [grant for grant in policy.grants if grant.scope.reaches(pod.namespace, labels)]
    own = [grant for grant in reached if grant.scope.covers(pod.namespace, labels, pod.service_account)]
    offering = {pool.name for pool in policy.pools if pool.device_classes.patterns}
    return _pools(own, policy) & offering >= _pools(reached, policy) & offering


def _pools(grants: Iterable[Grant], policy: Policy) -> frozenset[str]:
    return frozenset(name for grant in grants for name in grant.pools or policy.pool_names)
