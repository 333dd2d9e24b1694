"""A container on a shared GPU lifts a limit that a library or a daemon sets it.

MPS's limits hold for clients of its server, which CUDA_MPS_PIPE_DIRECTORY can lead elsewhere; HAMi-core, vgpu-manager
and cGPU are libraries that are loaded before the program and read their limits, and whether they hold at all, from
the environment, where a pod's own entry counts over the device plugin's (HAMi#1678). LD_PRELOAD, LD_AUDIT and
/etc/ld.so.preload load a library before theirs. In pools that share nothing a container only harms itself.
Time-slicing itself limits nothing by a library, and servers preload their allocators (Triton tcmalloc, Ray jemalloc):
there the first two are only warned of.
CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and CUDA_MPS_PINNED_DEVICE_MEM_LIMIT can only narrow, and pass; for LD_LIBRARY_PATH,
which is common, there is a warning.

Way out: remove the variable or the mount, or put what has to be loaded into the image.
"""

from collections.abc import Iterator

from webhook.catalog.doors import LIBRARY_PATH, LINKER
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.text.words import shown


def check(review: PodReview) -> Iterator[Finding]:
    """Flag variables and mounts by which limits on a shared GPU are lifted."""
    variables, mounts = review.exposure.limit_variables, review.exposure.limit_mounts
    if not variables and not mounts:
        return
    placement = review.placement
    if placement is None or placement.pool is None or not placement.pool.shared:
        return
    pool, sliced = placement.pool.name, placement.pool.sharing == "time-slicing"
    for path, name, _, container in variables:
        if container is None or container.path not in review.gpu_containers:
            continue
        if name == LIBRARY_PATH:
            yield Finding(path, f"{name} can hide the libraries by which GPUs of pool {pool} are limited", advice=True)
        elif name in LINKER and sliced:
            message = f"{name} can load a library before one by which GPUs of pool {pool} are limited"
            yield Finding(path, message, advice=True)
        else:
            yield Finding(path, f"{name} can lift a limit that holds for everyone in pool {pool}; remove it")
    for path, _, value, container in mounts:
        if container is not None and container.path in review.gpu_containers:
            yield Finding(
                path,
                f"a mount at {shown(value)} can lift a limit that holds for everyone in pool {pool}; remove it",
            )
