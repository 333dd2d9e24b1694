"""A container on a shared GPU lifts a limit that a library or a daemon sets.

MPS limits the clients of its server, and CUDA_MPS_PIPE_DIRECTORY can lead a client elsewhere. HAMi-core, vgpu-manager
and cGPU are libraries that load before the program. They read from the environment their limits, and whether to enforce
them; a pod's own variable overrides the device plugin's (HAMi#1678). LD_PRELOAD, LD_AUDIT and /etc/ld.so.preload load a
library before theirs. A mount in its place, or a termination message there, hides the device plugin's own file. The
same is true of the paths where device plugins mount the library, its limits, or the pipe of an MPS server. HAMi-core
also reads variables from the file /overrideEnv, and puts them in place of the device plugin's.

In a pool that shares nothing a container harms only itself, and is not judged. Time-slicing sets no limit by a
library, and servers preload their allocators (Triton tcmalloc, Ray jemalloc), so LD_PRELOAD and LD_AUDIT only warn
there. So do mounts: the webhooks of Datadog and Dynatrace mount a /etc/ld.so.preload of their own into the pods that
they trace. A mount is refused in a time-sliced pool that names a scheduler or offers another scheduler's resource, and
in every shared pool if the policy lists `nvidia.com/gpumem` among other devices: there a library may set limits. If
HAMi's device plugin has a default memory, pods name no `nvidia.com/gpumem`: name the pool's `scheduler`, or a mount
only warns.

CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and CUDA_MPS_PINNED_DEVICE_MEM_LIMIT can only narrow a limit, and pass.
LD_LIBRARY_PATH is common, and only warns.

Way out: remove the variable or the mount. Build libraries that the program needs into its image. If a webhook writes
them, exclude the pod from that webhook.
"""

from collections.abc import Iterator

from webhook.catalog import host_paths
from webhook.catalog.device_variables import LIBRARY_PATH, LIMIT_VARIABLES, LINKER
from webhook.catalog.gpu_requests import LIMITED_BY_LIBRARIES, SHARES_OF_MEMORY
from webhook.cel.clauses import Clause
from webhook.cel.paths import joined, mounts, steps, within
from webhook.cel.write import any_of, array, matches, text
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy, Pool
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("limit_variables", "limit_mounts")

_WAY = "remove it, and build what has to be loaded into the image"


def check(review: PodReview) -> Iterator[Finding]:
    """Flag variables and mounts that lift limits on a shared GPU."""
    variables, mounts = review.exposure.limit_variables, review.exposure.limit_mounts
    if not variables and not mounts:
        return
    placement = review.placement
    if placement is None or placement.pool is None or not placement.pool.shared:
        return
    pool, sliced = placement.pool.name, placement.pool.sharing == "time-slicing"
    limited = _limited_by_library(placement.pool, review.policy)
    for path, name, _, container in variables:
        if container is None or container.path not in review.sharing_containers:
            continue
        if name == LIBRARY_PATH:
            yield Finding(
                path, f"{name} can hide the libraries that limit the GPUs of pool {pool}; {_WAY}", advice=True
            )
        elif name in LINKER and sliced:
            message = f"{name} can load a library before those that limit the GPUs of pool {pool}; {_WAY}"
            yield Finding(path, message, advice=True)
        else:
            yield Finding(path, f"{name} can lift a limit that protects everyone in pool {pool}; {_WAY}")
    for path, _, value, container in mounts:
        if container is None or container.path not in review.sharing_containers:
            continue
        if limited:
            harm = f"lift a limit that protects everyone in pool {pool}"
        elif host_paths.over_plugin(str(value)):
            continue  # no plugin limits the pool, so its mount hides nothing
        else:
            harm = f"load a library before those that limit the GPUs of pool {pool}"
        yield Finding(path, f"a mount at {shown(value)} can {harm}; {_WAY}", advice=not limited)


def _limited_by_library(pool: Pool, policy: Policy) -> bool:
    """Whether a library may limit the containers of a shared pool: one of MPS, or one of another scheduler."""
    names = (*pool.resources.patterns, *(name for name in SHARES_OF_MEMORY if name in pool.resources))
    return (
        pool.sharing != "time-slicing"
        or pool.scheduler is not None
        or any(name in LIMITED_BY_LIBRARIES for name in names)
        or any(name not in policy.gpu_resources for name in SHARES_OF_MEMORY)
    )


def fallback(policy: Policy) -> Iterator[Clause]:
    """Weaker: a mount passes if its path has `..` in it, and a pod passes if pools of several kinds accept it."""
    strict = [pool.name for pool in policy.pools if pool.shared and pool.sharing != "time-slicing"]
    shared = [pool.name for pool in policy.pools if pool.shared]
    limited = [pool.name for pool in policy.pools if pool.shared and _limited_by_library(pool, policy)]
    place = f"path == '/etc' || {within('path', (*host_paths.LIMIT_MOUNTS, *host_paths.PLUGIN_MOUNTS))}"
    replaced = f"[{joined(steps('m'))}].exists(path, {place})"
    mounted = mounts("c", ("etc", *host_paths.LIMIT_PARTS), replaced, message=True)
    hard = [name for name in LIMIT_VARIABLES if name not in LINKER]
    for pools, lifts in (
        (shared, f"variables.names[i].exists(n, {matches('n', hard)})"),
        (limited, mounted),
        (strict, any_of(f"{text(name)} in variables.names[i]" for name in LINKER)),
    ):
        if pools:
            yield Clause(
                f"size(variables.pools) == 0 || !variables.pools.all(p, p in {array(pools)})"
                f" || !variables.containers.exists(i, c, size(variables.asks[i]) > 0 && {lifts})",
                f"a variable or a mount can lift a limit that protects everyone in its pool; {_WAY}",
            )
