"""A user who is no administrator writes a DeviceClass by which a pool hands out its GPUs.

A DeviceClass decides which devices a claim gets, and how its driver shares them (resource/v1). A class that a pool
lists under `deviceClasses` is the pool's sharing configuration: whoever may write it may give pods of the pool other
GPUs. A class may also take over a resource by `extendedResourceName`. The newest class with that name counts
(k8s.io/dynamic-resource-allocation deviceclass/extendedresourcecache), and every pod that requests the resource is
given devices of the class. So only administrators of the policy may write such classes. If a class takes over a
resource of a pool, and the pool does not list the class, even administrators get a warning.

Way out: ask an administrator of the policy to write the class. An installer of a driver has to be an administrator.
List a class that takes over a pool's resource under the `deviceClasses` of that pool.
"""

from collections.abc import Iterator

from webhook.api.devices import CLASS, DeviceClaim
from webhook.cel.clauses import Clause, RequestKind
from webhook.cel.policies import include, offered
from webhook.cel.write import any_of, named, negated
from webhook.model import Finding
from webhook.policy.model import Policy, Pool
from webhook.review import Review
from webhook.text.words import listed, shown

SINCE = "0.1"


def check(review: Review[DeviceClaim]) -> Iterator[Finding]:
    """Flag a class of a pool, or one that takes over a pool's resource, if a user who is no administrator writes it.

    Warn if the pool does not list a class that takes over its resource, or if another class has the same resource name.
    """
    claim, policy = review.subject, review.policy
    if claim.kind != CLASS or (claim.old is not None and claim.old.devices == claim.devices):
        return
    requester, own = claim.requester, policy.pools_of_class(claim.name)
    taken = [pool for pool in policy.pools if claim.resource and claim.resource in pool.resources]
    path = (*claim.base, "extendedResourceName") if taken else ("metadata", "name")
    if (own or taken) and requester is not None and not policy.administrators.include(requester):
        what = f"{shown(claim.resource)} is a resource" if taken else f"{shown(claim.name)} is a class"
        yield Finding(
            path,
            f"user {shown(requester.username)} may not write this class: {what} of pool {_names(taken or own)}, so it "
            f"decides which GPUs pods get; ask an administrator of policy {policy.name}",
        )
    elif strange := [pool for pool in taken if pool not in own]:
        yield Finding(
            path,
            f"the class moves every pod that requests {shown(claim.resource)} to its own devices, and pool "
            f"{_names(strange)} offers that name without the class; list the class under the pool's deviceClasses, or "
            "choose another name",
            advice=True,
        )
    elif others := [
        name
        for name, known in review.facts.device_classes.items()
        if taken and name != claim.name and known.resource == claim.resource
    ]:
        yield Finding(
            path,
            f"class {listed(others, 3)} has the name {shown(claim.resource)} too, and only the newest class with it "
            "counts; keep one of them",
            advice=True,
        )


def _names(pools: list[Pool] | tuple[Pool, ...]) -> str:
    return listed([pool.name for pool in pools], 3)


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact: the fallback gives the same verdict as the webhook."""
    own = any_of(named("object.metadata.name", pool.device_classes) for pool in policy.pools)
    taken = any_of(offered("n", pool.resources) for pool in policy.pools)
    takes = f"[object.spec.?extendedResourceName.orValue('')].exists(n, n != '' && ({taken}))"
    yield Clause(
        any_of(
            (
                "request.kind.kind != 'DeviceClass'",
                "(request.operation == 'UPDATE' && object.spec == oldObject.spec)",
                include(policy.administrators),
                negated(any_of((own, takes))),
            )
        ),
        "the class decides which GPUs pods of a pool get, and only administrators of policy "
        f"{policy.name} may write it; ask one",
        places="'class ' + object.metadata.name",
        asked=(RequestKind.DEVICES,),
    )
