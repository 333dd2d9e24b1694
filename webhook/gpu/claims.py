"""Decides which pool a device claim belongs to, by its device class and by the trust that it has, as a pod has."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from webhook.allowance import CLAIMED, Allowance
from webhook.api.devices import TEMPLATE, DeviceClaim, DeviceRequest, source
from webhook.api.fields import entries, section, text
from webhook.api.pods import Container, Pod
from webhook.catalog.gpu_requests import IMPLICIT
from webhook.facts.kinds.resource_claim import ClaimedRequest
from webhook.facts.snapshot import Facts
from webhook.gpu.device_classes import sort_of
from webhook.gpu.placement import TrustRequest, closed
from webhook.model import Object, Path, immutable
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy, Pool
from webhook.policy.scopes import Grant
from webhook.text.words import listed, shown


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
    """Return whether the scheduler itself made a claim, for a pod that requests a device class as an extended resource.

    The pod of such a claim is judged by its resource (kubernetes dynamicresources/extendeddynamicresources.go).
    """
    return claim.requester is not None and policy.schedulers.include(claim.requester)


def opens(claim: DeviceClaim, pools: Iterable[Pool], policy: Policy, facts: Facts) -> tuple[Pool | None, list[str]]:
    """Return the first of these pools that accepts a claim, or None and the reason why each one refuses it."""
    claimed, refusals = trust(claim, policy, facts), []
    for pool in pools:
        refusal = closed(pool, claim.namespace, claimed, facts, "claim")
        if not refusal:
            return pool, []
        refusals.append(refusal)
    return None, refusals


def counted(requests: Iterable[DeviceRequest | ClaimedRequest], policy: Policy) -> Mapping[str, int]:
    """Return how many devices of each class some requests can take at most.

    Only classes that a pool offers are counted.

    The scheduler takes one alternative of each request. So if several are for classes of one pool, the class of which
    most devices are requested counts for all of them. Requests of which a constraint puts each device on a different
    card count as one in a shared pool: together they take one slice of a card. If a pool that shares nothing offers
    their class too, each counts, because the devices may be whole cards of that pool. Requests with `adminAccess` are
    not counted, because they take no device from others.
    """
    requests = [*requests]
    pools, most = _pools_by_class(requests, policy), dict[tuple[object, tuple[str, ...]], tuple[int, str]]()
    for request in requests:
        name = request.device_class
        if request.admin or not pools[name]:
            continue
        place, number = _place(request, shared=all(pool.shared for pool in pools[name]))
        key = place, tuple([pool.name for pool in pools[name]])
        if key not in most or most[key][0] < number:
            most[key] = number, name
    found: Counter[str] = Counter()
    for number, name in most.values():
        found[name] += number
    return found


class PoolCount(NamedTuple):
    """The devices of a pool that a claim can take at most, and their classes in words."""

    pool: Pool
    number: int
    classes: str


def counted_by_pool(requests: Iterable[DeviceRequest], policy: Policy) -> Iterator[PoolCount]:
    """Yield the devices that requests can take of each pool, of all its classes together."""
    requests = [request for request in requests if not request.admin]
    pools, by_pool = _pools_by_class(requests, policy), defaultdict[str, list[DeviceRequest]](list)
    for request in requests:
        for pool in pools[request.device_class]:
            by_pool[pool.name].append(request)
    for pool in (pool for pool in policy.pools if pool.name in by_pool):
        own, most = by_pool[pool.name], dict[object, int]()
        for request in own:
            place, number = _place(request, shared=pool.shared)
            most[place] = max(most.get(place, 0), number)
        names = [shown(name) for name in dict.fromkeys(request.device_class for request in own)]
        words = f"class{'es' if len(names) > 1 else ''} {listed(names, 3)}"
        yield PoolCount(pool, sum(most.values()), words)


def _pools_by_class(
    requests: Iterable[DeviceRequest | ClaimedRequest], policy: Policy
) -> Mapping[str, tuple[Pool, ...]]:
    """Return the pools of each device class that is requested. A claim may name one class thousands of times."""
    return {name: policy.pools_of_class(name) for name in dict.fromkeys(each.device_class for each in requests)}


def _place(request: DeviceRequest | ClaimedRequest, *, shared: bool) -> tuple[object, int]:
    """Return what a request counts with, together with others of the same key, and its number of devices."""
    if shared and request.apart is not None:
        return ("apart", request.apart), 1
    return request.place, request.number


def account_may(pod: Pod, policy: Policy, facts: Facts) -> bool:
    """Return whether the service account of a pod may use every claim that its namespace is allowed to have.

    A claim is judged when it is written, by the grants of its namespace. The pod only names the claim. So the account
    has to be trusted, by grants that cover it, in every pool where a claim of the namespace may be trusted.
    """
    labels = facts.namespaces.get(pod.namespace)
    near = policy.grants_reaching(pod.namespace, labels)
    reached = [grant for grant in near if not grant.rbac or facts.trusts(pod.namespace)]
    own = [grant for grant in reached if grant.scope.covers(pod.namespace, labels, pod.service_account)]
    offering = {pool.name for pool in policy.pools if pool.device_classes.patterns}
    return _pools(own, policy) & offering >= _pools(reached, policy) & offering


def may_be_for_gpus(namespace: str, policy: Policy, facts: Facts) -> bool:
    """Return whether a claim of a namespace may hold a GPU, with any trust and any account that a claim there may have.

    Whoever writes such a claim may also replace the claim of a pod that waits. A right of trust that is not known
    counts as given.
    """
    labels = facts.namespaces.get(namespace)
    if any(scope.reaches(namespace, labels) for scope in policy.forms.claims):
        return True
    near = policy.grants_reaching(namespace, labels)
    reached = [grant for grant in near if not grant.rbac or facts.trusts(namespace) is not False]
    levels = (
        TrustRequest(None, frozenset(), UNTRUSTED, withheld=False),
        TrustRequest(TRUSTED, _pools(reached, policy), TRUSTED, withheld=False),
    )
    offering = [pool for pool in policy.pools if pool.device_classes.patterns]
    return any(not closed(pool, namespace, level, facts, "claim") for pool in offering for level in levels)


def _pools(grants: Iterable[Grant], policy: Policy) -> frozenset[str]:
    return frozenset(name for grant in grants for name in grant.pools or policy.pool_names)


@immutable
class ClaimContents:
    """The contents of a claim or a template that is among the facts.

    `classes` has the device class of each request. `others` is true if all of them are known not to be for GPUs.
    `pooled` has those classes that pools offer, each once. `numbers` says how many devices of each pooled class the
    claim takes (`counted`). `memory` has the smallest amount, in MiB, that a request for a class names.
    """

    classes: tuple[str, ...]
    others: bool
    pooled: tuple[str, ...]
    numbers: Mapping[str, int]
    memory: Mapping[str, int]


class ClaimEntry(NamedTuple):
    """One entry of a pod's `resourceClaims`. `contents` is None if the claim is unknown."""

    path: Path
    entry: Object
    contents: ClaimContents | None

    @property
    def others(self) -> bool:
        """Whether the claim is known, and only for devices that are known not to be GPUs."""
        return self.contents is not None and self.contents.others


def claim_entries(pod: Pod, policy: Policy, facts: Facts, allowance: Allowance) -> Iterator[ClaimEntry]:
    """Yield the entries of a pod's `resourceClaims`. Raises TooLarge and TooLate.

    Each known claim costs units once, by the number of its requests.
    """
    reader, paid = _reader(policy, facts), set[ClaimContents]()
    for index, entry in entries(pod.spec, "resourceClaims", pod.at("spec")):
        allowance.look()
        named = source(entry)
        contents = reader[named[0], pod.namespace, named[1]] if named else None
        if contents is not None and contents not in paid:
            paid.add(contents)
            allowance.spend("requests of claims", len(contents.classes), CLAIMED)
        yield ClaimEntry(pod.at("spec", "resourceClaims", index), entry, contents)


class _ClaimReader(dict[tuple[str, str, str], ClaimContents | None]):
    """The claims of a snapshot that have been read, by kind, namespace and name; None if unknown.

    Thousands of a pod's entries may name one claim, so each claim is read once.
    """

    def __init__(self, policy: Policy, facts: Facts) -> None:
        super().__init__()
        self._policy, self._facts = policy, facts

    def __missing__(self, claim: tuple[str, str, str]) -> ClaimContents | None:
        requests = self._facts.requested(*claim)
        if requests is None:
            return None
        self[claim] = read = _contents(requests, self._policy, self._facts)
        return read


@lru_cache(maxsize=2)  # once per snapshot: it has claims among the facts, and nothing of a pod
def _reader(policy: Policy, facts: Facts) -> _ClaimReader:
    return _ClaimReader(policy, facts)


def _contents(requests: tuple[ClaimedRequest, ...], policy: Policy, facts: Facts) -> ClaimContents:
    names = dict.fromkeys(request.device_class for request in requests)
    pooled = [name for name in names if policy.pools_of_class(name)]
    offered = frozenset(pooled)
    memory: dict[str, int] = {}
    for request in requests:
        if request.device_class in offered and (mib := request.mib) is not None:
            memory[request.device_class] = min(memory.get(request.device_class, mib), mib)
    return ClaimContents(
        classes=tuple(request.device_class for request in requests),
        others=bool(names) and all(sort_of(name, policy, facts).without_gpu for name in names),
        pooled=tuple(pooled),
        numbers=counted(requests, policy),
        memory=memory,
    )


class ClaimUse(NamedTuple):
    """A pod's use of a known claim that requests devices of pools.

    `path` is the place of the claim in the pod. `kind` and `name` are those of the claim, or of the template that makes
    it. `containers` are those that get its devices; entries with the same name share one tuple.
    """

    path: Path
    kind: str
    name: str
    contents: ClaimContents
    containers: tuple[Container, ...]

    @property
    def words(self) -> str:
        """The claim in words: `template quarter`."""
        return f"{'template' if self.kind == TEMPLATE else 'claim'} {self.name}"


class Slice(NamedTuple):
    """The memory (MiB) of a shared device that a pod's claim gives to one process, and the claim in words."""

    mib: int
    by: str


def free(pod: Pod, policy: Policy, facts: Facts) -> bool:
    """Return whether the policy lets a pod claim any device (`gpus.claims`)."""
    labels = facts.namespaces.get(pod.namespace)
    return any(scope.covers(pod.namespace, labels, pod.service_account) for scope in policy.forms.claims)


def uses(pod: Pod, listed: Iterable[ClaimEntry]) -> Iterator[ClaimUse]:
    """Yield a pod's uses of known claims that request devices of pools."""
    using: dict[str, list[Container]] = {}
    for container in pod.containers:
        resources = section(container.spec, "resources", container.path)
        place = (*container.path, "resources")
        for index, one in entries(resources, "claims", place):
            using.setdefault(text(one, "name", (*place, "claims", index)), []).append(container)
    containers = {name: tuple(several) for name, several in using.items()}
    for path, entry, contents in listed:
        named = source(entry)
        if named and contents and contents.pooled:
            yield ClaimUse(path, *named, contents, containers.get(text(entry, "name", path), ()))


def containers_of(used: Collection[ClaimUse]) -> Mapping[Path, Container]:
    """Return the containers that get devices by these claims, each under its path."""
    if not used:
        return {}
    different = {id(use.containers): use.containers for use in used}  # thousands of entries may have one name
    return {one.path: one for containers in different.values() for one in containers}


def totals(used: Collection[ClaimUse]) -> Mapping[str, int]:
    """Return how many devices of each class these claims take. The key is the implicit resource name of the class."""
    found: dict[str, int] = {}
    for contents, times in Counter(use.contents for use in used).items() if used else ():
        for name, number in contents.numbers.items():
            found[IMPLICIT + name] = found.get(IMPLICIT + name, 0) + times * number
    return found


def slice_of(used: Iterable[ClaimUse], pool: Pool) -> Slice | None:
    """Return the smallest slice that a pod's claims take of a pool's devices; None if they do not name memory.

    The containers that use a claim share it. The smallest of several alternatives counts.
    """
    different = {(use.contents, len(use.containers)): use for use in used}
    found = [
        Slice(mib // max(1, number), use.words)
        for (contents, number), use in different.items()
        for name, mib in contents.memory.items()
        if name in pool.device_classes
    ]
    return min(found, default=None)
