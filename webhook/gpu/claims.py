"""The pools of device claims: a claim belongs to a pool by its device class, and has trust as a pod has."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from webhook.api.devices import TEMPLATE, DeviceClaim, DeviceRequest, source
from webhook.api.fields import entries, section, text
from webhook.api.pods import Container, Pod
from webhook.catalog.gpu_requests import IMPLICIT
from webhook.facts.kinds.resource_claim import ClaimedRequest
from webhook.facts.snapshot import Facts
from webhook.gpu.placement import TrustRequest, closed
from webhook.model import Object, Path
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy, Pool
from webhook.policy.scopes import Grant


def trust(claim: DeviceClaim, policy: Policy, facts: Facts) -> TrustRequest:
    """Read the trust of a claim, or of a template's claims, by the same rules as for a pod.

    No account runs a claim, so a grant covers it in each of the grant's namespaces; the account of a pod is judged with
    the pod. The right of trust counts if all accounts of the namespace have it. A grant with requesters applies if one
    of them wrote the claim, if a controller made it from a judged template, or if an update leaves its trust unchanged:
    a claim's requests can never change.
    """
    asked = claim.annotations.get(policy.annotation)
    labels = facts.namespaces.get(claim.namespace)
    wanted = policy.default_trust if asked is None else asked
    near = policy.grants_reaching(claim.namespace, labels)
    grants = [each for each in near if not each.rbac or (wanted == TRUSTED and facts.trusts(claim.namespace))]
    applied = [grant.pools or policy.pool_names for grant in grants if _applies(grant, claim, policy)]
    pools: frozenset[str] = frozenset().union(*applied)
    level = TRUSTED if pools and wanted == TRUSTED else UNTRUSTED
    return TrustRequest(asked, pools, level, withheld=bool(grants) and not pools)


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
    """Return whether a scheduler made a claim: for a pod that requests a class's devices as an extended resource.

    Such a pod is judged by the resource (kubernetes dynamicresources/extendeddynamicresources.go).
    """
    return claim.requester is not None and policy.schedulers.include(claim.requester)


def opens(claim: DeviceClaim, pools: Iterable[Pool], policy: Policy, facts: Facts) -> tuple[Pool | None, list[str]]:
    """Return the first of these pools that takes a claim, or the reasons why none does."""
    claimed, refusals = trust(claim, policy, facts), []
    for pool in pools:
        refusal = closed(pool, claim.namespace, claimed, facts, "claim")
        if not refusal:
            return pool, []
        refusals.append(refusal)
    return None, refusals


def counted(requests: Iterable[DeviceRequest | ClaimedRequest], policy: Policy) -> Mapping[str, int]:
    """Return the maximum number of devices that some requests take of each class that a pool offers.

    The scheduler takes one alternative of each request. Requests whose devices must be on different cards count as the
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
    """Return whether the account of a pod may use every claim that its namespace is allowed to have.

    A claim is judged when it is written, by the grants of its namespace; a pod has only its name. So every grant that
    the namespace's claims may use has to cover the pod's account, unless other grants cover the account in the same
    pools.
    """
    labels = facts.namespaces.get(pod.namespace)
    near = policy.grants_reaching(pod.namespace, labels)
    reached = [grant for grant in near if not grant.rbac or facts.trusts(pod.namespace)]
    own = [grant for grant in reached if grant.scope.covers(pod.namespace, labels, pod.service_account)]
    offering = {pool.name for pool in policy.pools if pool.device_classes.patterns}
    return _pools(own, policy) & offering >= _pools(reached, policy) & offering


def _pools(grants: Iterable[Grant], policy: Policy) -> frozenset[str]:
    return frozenset(name for grant in grants for name in grant.pools or policy.pool_names)


class ClaimUse(NamedTuple):
    """A pod's use of a claim that is among the facts and requests devices of pools.

    `path` is the pod's entry for it. `kind` and `name` are those of the claim, or of the template that makes it.
    `containers` are those that get its devices.
    """

    path: Path
    kind: str
    name: str
    requests: tuple[ClaimedRequest, ...]
    containers: tuple[Container, ...]

    @property
    def words(self) -> str:
        """The claim in words: `template quarter`."""
        return f"{'template' if self.kind == TEMPLATE else 'claim'} {self.name}"


class Slice(NamedTuple):
    """The memory (MiB) of a shared device that a pod's claim gives to one process, and the claim in words."""

    mib: int
    by: str


def uses(pod: Pod, policy: Policy, facts: Facts) -> tuple[ClaimUse, ...]:
    """Return the known claims of a pod for devices of pools; none if the policy lets the pod claim any device."""
    if not pod.spec.get("resourceClaims") or not pod.namespace or free(pod, policy, facts):
        return ()
    return tuple(_uses(pod, policy, facts))


def free(pod: Pod, policy: Policy, facts: Facts) -> bool:
    """Return whether the policy lets a pod claim any device (`gpus.claims`)."""
    labels = facts.namespaces.get(pod.namespace)
    return any(scope.covers(pod.namespace, labels, pod.service_account) for scope in policy.forms.claims)


def unknown(pod: Pod, facts: Facts) -> Iterator[tuple[Path, Object]]:
    """Yield the pod's entries for unknown claims, with their paths."""
    for index, entry in entries(pod.spec, "resourceClaims", pod.at("spec")):
        named = source(entry)
        if named is None or facts.requested(named[0], pod.namespace, named[1]) is None:
            yield pod.at("spec", "resourceClaims", index), entry


def _uses(pod: Pod, policy: Policy, facts: Facts) -> Iterator[ClaimUse]:
    at = pod.at("spec")
    using: dict[str, list[Container]] = {}
    for container in pod.containers:
        resources = section(container.spec, "resources", container.path)
        place = (*container.path, "resources")
        for index, one in entries(resources, "claims", place):
            using.setdefault(text(one, "name", (*place, "claims", index)), []).append(container)
    for index, entry in entries(pod.spec, "resourceClaims", at):
        path, known = (*at, "resourceClaims", index), source(entry)
        requests = facts.requested(known[0], pod.namespace, known[1]) if known else None
        requests = tuple(one for one in requests or () if policy.pools_of_class(one.device_class))
        if known and requests:
            yield ClaimUse(path, *known, requests, tuple(using.get(text(entry, "name", path), ())))


def totals(used: Iterable[ClaimUse], policy: Policy) -> Mapping[str, int]:
    """Return how many devices some claims take of each class, by the class's implicit resource."""
    found: dict[str, int] = {}
    for use in used:
        for name, number in counted(use.requests, policy).items():
            found[IMPLICIT + name] = found.get(IMPLICIT + name, 0) + number
    return found


def slice_of(used: Iterable[ClaimUse], pool: Pool) -> Slice | None:
    """Return the smallest slice that a pod's claims take of a pool's devices; None if they do not name memory.

    The containers that use a claim share it. The smallest of several alternatives counts.
    """
    found = [
        Slice(request.mib // max(1, len(use.containers)), use.words)
        for use in used
        for request in use.requests
        if request.device_class in pool.device_classes and request.mib is not None
    ]
    return min(found, default=None)
