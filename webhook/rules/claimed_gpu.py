"""A claim asks for GPUs that no pool gives to its namespace.

A ResourceClaim, or a claim made from a ResourceClaimTemplate, gets devices by a device class, and the pod that uses it
only names it (resource/v1). So claims for GPUs are judged when they are written. A class belongs to the pools that list
it under `deviceClasses`. Such a pool takes a claim as it takes a pod: by the trust that the claim has, by its tenants,
and with at most `maxRequest` devices. A claim asks for trust by the annotation, and a template by the annotation of the
claims it makes (`spec.metadata.annotations`); the grants of the namespace decide. A request counts with all its
alternatives (`firstAvailable`), since the scheduler may choose any.

A class of no pool bypasses every pool: no trust is required, and nothing is counted. Claims for it may be written only
where `gpus.claims` lets pods claim devices. The policy, the drivers that a DeviceClass among the facts selects, and the
names that drivers publish show which classes are for GPUs. Classes of network cards, channels, TPUs and other known
devices pass. An unknown class may be for GPUs, so it is refused until the policy lists it. Claims that a scheduler
makes for pods with an extended resource pass: those pods were judged.

A node has one device of the class `compute-domain-daemon.nvidia.com`, for the daemon of NVIDIA's ComputeDomains
(dra-driver-nvidia-gpu templates/compute-domain-daemon.tmpl.yaml). A tenant who claims it keeps the daemon from the
node, so claims for it pass only in namespaces to which an exemption with `system: true` applies, as that of the driver.
Workloads claim a channel, whose class passes.

Way out: ask for a class that a pool offers, with the trust that the pool takes, or for a resource. Or have an
administrator list the class under a pool's `deviceClasses`, the namespace under `gpus.claims`, or the class under
`gpus.otherDeviceClasses` if it is not for GPUs.
"""

from collections.abc import Iterable, Iterator

from webhook.api.devices import DeviceClaim, DeviceRequest
from webhook.catalog.gpu_requests import GPU_CLASSES
from webhook.cel.clauses import Clause, RequestKind
from webhook.cel.policies import include, reaches
from webhook.cel.write import all_of, any_of, array, named, negated
from webhook.gpu import claims
from webhook.gpu.device_classes import Class, sort_of
from webhook.gpu.placement import foreign_vendor
from webhook.model import Finding
from webhook.policy.actions import Exemption
from webhook.policy.model import TRUSTED, Policy, Pool
from webhook.review import Review
from webhook.text.words import shown

SINCE = "0.1"


def check(review: Review[DeviceClaim]) -> Iterator[Finding]:
    """Flag requests for GPUs that no pool gives to the claim, and for unknown classes."""
    claim, policy, facts = review.subject, review.policy, review.facts
    labels = facts.namespaces.get(claim.namespace)
    if claims.of_scheduler(claim, policy) or any(
        scope.reaches(claim.namespace, labels) for scope in policy.forms.claims
    ):
        return
    taken: dict[str, Pool] = {}
    messages = {"": ""}
    for request in claim.requests:
        name = request.device_class
        if name not in messages:
            messages[name] = _refused(review, name, taken)
        if message := messages[name]:
            yield Finding((*request.path, "deviceClassName"), message)
    yield from _too_many(claim.requests, taken.values(), policy)


def _refused(review: Review[DeviceClaim], name: str, taken: dict[str, Pool]) -> str:
    """Say why the claim may not request a class; empty if it may. A pool that gives it is added to `taken`."""
    claim, policy, facts = review.subject, review.policy, review.facts
    sort = sort_of(name, policy, facts)
    if sort is Class.OTHER or (sort is Class.DAEMON and _has_daemons(review)):
        return ""
    if pools := policy.pools_of_class(name):
        pool, refusals = claims.opens(claim, pools, policy, facts)
        if pool is None:
            return f"class {shown(name)} is refused: {', '.join(refusals)}; {_way(review)}"
        taken[name] = pool
        return ""
    if sort is Class.GPU:
        return _closed(review, name)
    if sort is Class.DAEMON:
        return (
            f"class {shown(name)} is for the daemons of a driver, and a node has one such device; claim a channel of a "
            "ComputeDomain instead, or ask an administrator to exempt the driver's namespace with system: true"
        )
    return (
        f"class {shown(name)} is not known, and may be for GPUs; ask an administrator to list "
        "it under gpus.otherDeviceClasses, or under gpus.deviceClasses if it is for GPUs"
    )


def _has_daemons(review: Review[DeviceClaim]) -> bool:
    """Whether the policy exempts a component of the system in the claim's namespace, whatever its account."""
    namespace = review.subject.namespace
    labels = review.facts.namespaces.get(namespace)
    near = review.policy.exemptions_by_namespace.near(namespace)
    return any(_of_system(each) and each.scope.reaches(namespace, labels) for each in near)


def _of_system(exemption: Exemption) -> bool:
    return exemption.until is None and (not exemption.rules or "claimed-gpu" in exemption.rules)


def _too_many(requests: tuple[DeviceRequest, ...], taken: Iterable[Pool], policy: Policy) -> Iterator[Finding]:
    taken = [*taken]
    for pool, number, classes in claims.counted_by_pool(requests, policy):
        if pool not in taken or pool.shared or pool.max_request is None or number <= pool.max_request:
            continue
        first = next(request for request in requests if request.device_class in pool.device_classes)
        message = (
            f"{number} devices of {classes} are more than pool {pool.name} gives to one claim; request at "
            f"most {pool.max_request}, or split the work"
        )
        yield Finding(first.path, message, parts=(message,))


def _way(review: Review[DeviceClaim]) -> str:
    """Say how the claim can get a pool: by requesting trust, or by asking an administrator."""
    claim, policy, facts = review.subject, review.policy, review.facts
    claimed = claims.trust(claim, policy, facts)
    if claimed.pools and claimed.level != TRUSTED:
        where = ".".join(map(str, claim.metadata_path))
        return (
            f"set the annotation {policy.annotation}: {TRUSTED} in {where}, which is granted to namespace "
            f"{shown(claim.namespace)}"
        )
    return "ask for a class of another pool, or an administrator for a grant"


def _closed(review: Review[DeviceClaim], name: str) -> str:
    """Say that nobody may claim a class in the namespace, and what to do. Another maker's GPU is no substitute."""
    where = shown(review.subject.namespace)
    if maker := foreign_vendor(name, review.policy):
        return (
            f"pods in namespace {where} may not claim {shown(name, quotes=False)}, and policy {review.policy.name} has "
            f"no pool of {maker} GPUs; ask an administrator to list the namespace under gpus.claims"
        )
    return (
        f"class {shown(name)} is for GPUs, which nobody may claim in namespace {where}; request {_offered(review)} "
        "instead, or ask an administrator to list the namespace under gpus.claims"
    )


def _offered(review: Review[DeviceClaim]) -> str:
    """Name classes of pools that take the claim, or a usual resource if none does."""
    claim, policy, facts = review.subject, review.policy, review.facts
    open_ = (pool for pool in policy.pools if claims.opens(claim, [pool], policy, facts)[0])
    names = [name for pool in open_ for name in pool.device_classes]
    return f"class {' or '.join(names[:3])}" if names else "a resource such as nvidia.com/gpu"


def fallback(policy: Policy) -> Iterator[Clause]:
    """Weaker: only classes that no pool has, and that the policy names or drivers publish, count as GPU classes."""
    offered = any_of(named("name", pool.device_classes) for pool in policy.pools)
    gpu = named("name", policy.forms.device_classes)
    if not policy.forms.classes_named:
        gpu = all_of((f"name in {array(sorted(GPU_CLASSES))}", gpu))
    daemons = any_of(reaches(each.scope) for each in policy.exemptions if _of_system(each))
    gpu = any_of((gpu, all_of((named("name", policy.forms.daemon_classes), negated(daemons)))))
    one = f"[one.?deviceClassName.orValue('')].exists(name, name != '' && {gpu} && {negated(offered)})"
    yield Clause(
        "request.operation != 'CREATE' || "
        + any_of(
            (
                f"!variables.requested.exists(one, {one})",
                *map(reaches, policy.forms.claims),
                include(policy.schedulers),
            )
        ),
        "nobody may claim GPUs, or a driver's own devices, in this namespace; request a resource such as "
        "nvidia.com/gpu instead, or ask an administrator to list the namespace under gpus.claims",
        asked=(RequestKind.DEVICES,),
    )
