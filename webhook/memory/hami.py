"""Recognises HAMi-core, a library that limits the GPU memory of a container.

Other schedulers install it; Slicewarden does not. It replaces the CUDA driver's functions in processes that load it
(Project-HAMi/HAMi-core src/libvgpu.c).
"""

from collections.abc import Mapping

from webhook.api.fields import entries, text
from webhook.api.pods import Container, EnvVar
from webhook.memory.frameworks.cuda import HAMI_LIMIT

RESOURCES = frozenset(
    {
        "nvidia.com/gpumem",
        "nvidia.com/gpumem-percentage",
        "volcano.sh/vgpu-memory",
        "volcano.sh/vgpu-memory-percentage",
    }
)
"""The resources whose device plugins bring the library and the limit (HAMi pkg/device/nvidia/device.go, Volcano
docs/user-guide/how_to_use_vgpu.md)."""

LIMITS = (HAMI_LIMIT, f"{HAMI_LIMIT}_0")
"""The variables from which the library reads its limit. Without one, or with 0, it limits nothing (HAMi-core
src/multiprocess/multiprocess_memory_limit.c)."""

OFF = "CUDA_DISABLE_CONTROL"
"""With `true` HAMi's device plugin brings no library (HAMi pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go).
"""

PRELOAD, PRELOADED, LIBRARY = "LD_PRELOAD", "/etc/ld.so.preload", "libvgpu.so"
"""The two ways in which processes load the library, and its name."""

READ = frozenset({*LIMITS, OFF, PRELOAD})
"""The variables that `sign` looks at."""


def sign(container: Container, env: Mapping[str, EnvVar], resource: str) -> str:
    """Return the resource or the variable by which HAMi-core is known to limit a container; empty if there is none.

    `env` has the container's variables whose names are in READ. `resource` is the one of RESOURCES that the container
    requests, or empty.
    """
    if OFF in env and env[OFF].value == "true":
        return ""
    if resource:
        return resource
    limit = next((name for name in LIMITS if name in env and (env[name].value or "0").strip("0") != ""), "")
    preload = env.get(PRELOAD)
    loaded = preload is not None and LIBRARY in (preload.value or "")
    return limit if limit and (loaded or _mounted(container)) else ""


def _mounted(container: Container) -> bool:
    at = (*container.path, "volumeMounts")
    places = (
        text(mount, "mountPath", (*at, index))
        for index, mount in entries(container.spec, "volumeMounts", container.path)
    )
    return any(place == PRELOADED or place.endswith(f"/{LIBRARY}") for place in places)
