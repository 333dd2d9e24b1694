"""A claim for a shared GPU does not say how much memory it takes, takes less than 1Mi, or takes too much.

If a driver lets several claims share a device, the scheduler subtracts each claim's request from the device's capacity
(`capacity.requests`, resource/v1). There is no other limit: a claim for 0 fits on a full card, and any number of such
claims fit. A claim without a request takes the driver's default, which is 0 in a mode such as NVIDIA's
`--consumable-shares=unlimited`. The capacity is also the slice by which Slicewarden sizes memory caps. The scheduler
only keeps the books: no driver enforces the memory.

A pool says under `maxMemory` how much one claim may take. There every claim has to say how much it takes. In other
shared pools a request of less than 1Mi is refused. So is a claim without a request, if a ResourceSlice among the facts
shows that the default is 0.

Way out: request memory, as in `capacity: {requests: {memory: 4Gi}}`, within what the message names. On Kubernetes 1.34
and 1.35 an administrator must first switch on the feature gate `DRAConsumableCapacity`: without it the API server
drops the request before the webhook sees it.
"""

from collections.abc import Iterator

from webhook.api import quantity
from webhook.api.devices import MEMORY, DeviceClaim, DeviceRequest
from webhook.cel.clauses import Clause, RequestKind
from webhook.cel.policies import include
from webhook.cel.write import all_of, any_of, named
from webhook.facts.snapshot import Facts
from webhook.gpu import claims, device_classes
from webhook.model import Finding
from webhook.policy.model import Policy, Pool
from webhook.review import Review
from webhook.text.words import shown

SINCE = "0.1"

LEAST = 2**20
"""The fewest bytes that a claim may take of a shared GPU: 1Mi."""


def check(review: Review[DeviceClaim]) -> Iterator[Finding]:
    """Flag requests with a wrong amount of memory, for classes of shared pools or of pools with `maxMemory`."""
    claim, policy = review.subject, review.policy
    if claims.of_scheduler(claim, policy):
        return
    for request in claim.requests:
        if request.admin:
            continue
        for pool in policy.pools_of_class(request.device_class):
            if finding := _judged(request, pool, review.facts):
                yield finding
                break


def _judged(request: DeviceRequest, pool: Pool, facts: Facts) -> Finding | None:
    path = (*request.path, "capacity", "requests", MEMORY)
    most = _written(pool.max_memory) if pool.max_memory is not None else ""
    within = f" at most {most}" if most else ""
    if request.memory is None:
        if not most and not (pool.shared and device_classes.uncounted(request.device_class, facts)):
            return None
        why = f"pool {pool.name} gives one claim at most {most}" if most else f"pool {pool.name} counts nothing else"
        message = f"the request does not say how much memory it takes, and {why}; request {most or 'memory'}"
        return Finding(path, f"{message}{' or less' if most else ', such as 4Gi'}")
    name, written = request.memory
    path = (*path[:-1], name)
    try:
        amount = quantity.parse(written)
    except ValueError:
        return Finding(path, f"{shown(written)} is not a quantity of memory; request{within or ' one such as 4Gi'}")
    if amount < LEAST and (pool.shared or most):
        return Finding(
            path,
            f"{shown(written)} is less than 1Mi, so any number of claims share one GPU; request{within or ' more'}",
        )
    if pool.max_memory is not None and amount > pool.max_memory * 2**20:
        return Finding(path, f"{shown(written)} is more than pool {pool.name} gives to one claim; request{within}")
    return None


def _written(mib: int) -> str:
    return f"{mib}Mi" if mib % 1024 else f"{mib // 1024}Gi"


def fallback(policy: Policy) -> Iterator[Clause]:
    """Weaker: a claim without a request for memory passes if only a ResourceSlice shows that the default is 0."""
    faulty = [
        all_of((named("one.?deviceClassName.orValue('')", pool.device_classes), _faulty(pool)))
        for pool in policy.pools
        if pool.device_classes.patterns and (pool.shared or pool.max_memory is not None)
    ]
    if faulty:
        yield Clause(
            any_of(
                (
                    "request.operation != 'CREATE'",
                    include(policy.schedulers),
                    f"variables.requested.all(one, one.?adminAccess.orValue(false) || !({any_of(faulty)}))",
                )
            ),
            "a request for a shared GPU takes no memory, more than its pool gives to one claim, or does not say how "
            "much; request memory, as in capacity: {requests: {memory: 4Gi}}",
            asked=(RequestKind.DEVICES,),
        )


def _faulty(pool: Pool) -> str:
    """Whether request `one` takes a wrong amount of a pool's memory: by all names of memory if it has several."""
    said = "one.?capacity.?requests.orValue({})"
    names = f"{said}.filter(k, k == '{MEMORY}' || k.endsWith('/{MEMORY}'))"
    amount = f"quantity({said}[k])"
    wrong = [f"{amount}.compareTo(quantity('{LEAST}')) < 0"]
    if pool.max_memory is not None:
        wrong.append(f"{amount}.compareTo(quantity('{pool.max_memory}Mi')) > 0")
    unsaid = f"size({names}) == 0" if pool.max_memory is not None else "false"
    return any_of((unsaid, f"(size({names}) > 0 && {names}.all(k, {any_of(wrong)}))"))
