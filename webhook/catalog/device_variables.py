"""Tables of variables that give a container GPUs without a request, or lift the limits of a shared GPU.

Sources are given as repository and file.
"""

from typing import NamedTuple

from webhook.catalog.names import Names

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
VOID = "void"
NONE = "none"
"""Neither value gives a container a GPU. `none` still gives it the driver, with the devices that come with it."""


class DeviceVariable(NamedTuple):
    """A variable that a vendor's container toolkit reads.

    `harmless` are the values that give access to nothing; None if no value does while VISIBLE is void. `asking` is
    whether a container that requests a GPU may set any value.
    """

    name: str
    opens: str
    harmless: frozenset[str] | None
    asking: bool = False


_OFF = frozenset(("", "disabled"))
_EMPTY = frozenset(("",))

# nvidia-container-toolkit internal/config/image/cuda_image.go, internal/modifier/cdi.go
DEVICE_VARIABLES = {
    variable.name: variable
    for variable in (
        DeviceVariable(VISIBLE, "GPUs", frozenset(("", VOID, NONE))),
        DeviceVariable("NVIDIA_MIG_CONFIG_DEVICES", "the MIG configuration of GPUs", _EMPTY),
        DeviceVariable("NVIDIA_MIG_MONITOR_DEVICES", "the monitoring of MIG devices", _EMPTY),
        DeviceVariable("NVIDIA_IMEX_CHANNELS", "the memory of other nodes' GPUs", _EMPTY),
        DeviceVariable("NVIDIA_NVSWITCH", "the switches between GPUs", _OFF),
        DeviceVariable("NVIDIA_GDS", "GPUDirect Storage", _OFF, asking=True),
        DeviceVariable("NVIDIA_GDRCOPY", "GPUDirect RDMA copies", _OFF, asking=True),
        DeviceVariable("NVIDIA_MOFED", "InfiniBand devices", _OFF, asking=True),
        # ROCm/container-toolkit, for containers of AMD's own runtime
        DeviceVariable("AMD_VISIBLE_DEVICES", "AMD's GPUs", frozenset(("", "none"))),
        # Ascend/ascend-docker-runtime, in mind-cluster component/ascend-docker-runtime/runtime/process
        DeviceVariable("ASCEND_VISIBLE_DEVICES", "Ascend's NPUs", frozenset(("", VOID))),
        # Alibaba's cGPU, by its documents (lvmxh/cgpu): the cards of a container. No value is known to be harmless.
        DeviceVariable("ALIYUN_COM_GPU_VISIBLE_DEVICES", "Alibaba's shared GPUs", _EMPTY),
        # By the documents of Moore Threads (torch_musa); its toolkit is not public, so no value is known to be harmless
        DeviceVariable("MTHREADS_VISIBLE_DEVICES", "Moore Threads' GPUs", _EMPTY),
        # An image with this and without NVIDIA_REQUIRE_CUDA counts as a legacy image, which sees all GPUs.
        DeviceVariable("CUDA_VERSION", "all GPUs, as an old image has", None),
    )
}

CLOSED = {"NVIDIA_NVSWITCH": "", "NVIDIA_IMEX_CHANNELS": ""}
"""The harmless values that override the image's environment in a container with a GPU.

The device plugin sets neither variable, except for channels that it allocates (k8s-device-plugin
internal/plugin/server.go), so the image's value would count. For an empty value the toolkit adds no switch
(nvidia-container-toolkit internal/modifier/cdi.go) and no channel (internal/config/image/cuda_image.go). For `none` it
adds a channel without a number, which means all channels.
"""

CLOSED_WITHOUT_GPU = CLOSED | {variable.name: "" for variable in DEVICE_VARIABLES.values() if variable.asking}
"""The same for a container without a GPU in which VISIBLE is NONE.

The toolkit adds the other devices of a node, such as its InfiniBand devices, next to any visible device, and NONE
counts as one (nvidia-container-toolkit internal/modifier/gated.go). A container with a GPU may use them.
"""

IMEX = "NVIDIA_IMEX_CHANNELS"

LINKER = ("LD_PRELOAD", "LD_AUDIT")
"""Variables of the dynamic linker. They can lift every limit that a library enforces."""

LIMIT_VARIABLES = Names(
    (
        *LINKER,
        # The address of the MPS daemon (k8s-device-plugin internal/plugin/mps.go). MPS's percentage and memory limit
        # are left out: a container can only lower them.
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_MPS_LOG_DIRECTORY",
        "CUDA_MPS_CLIENT_PRIORITY",
        "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
        # HAMi-core, vgpu-manager (library/src/loader.c), gpu-manager, cGPU
        "CUDA_DISABLE_CONTROL",
        "CUDA_REDIRECT",  # the library that HAMi-core loads in its own place (src/libvgpu.c)
        "DISABLE_VGPU_CONTROL",
        "CUDA_DEVICE_MEMORY_LIMIT*",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE",
        "CUDA_DEVICE_SM_LIMIT*",
        "CUDA_OVERSUBSCRIBE",
        "CUDA_MEM_LIMIT*",
        "CUDA_TASK_PRIORITY",
        "GPU_CORE_UTILIZATION_POLICY",
        "ACTIVE_OOM_KILLER",
        "CUDA_CORE_LIMIT*",
        "CUDA_CORE_SOFT_LIMIT*",
        "CUDA_MEM_OVERSOLD*",
        "CUDA_MEM_RATIO*",
        "CUDA_MEM_UVA_ADVISE",
        "CUDA_SM_*",
        "EXTERNAL_SM_WATCHER_ENABLED",
        "MANAGER_CLIENT_REGISTER_UUID",
        "MANAGER_COMPATIBILITY_MODE",
        "MANAGER_VISIBLE_DEVICE*",
        "VGPU_CONTAINER_NAME",
        "VGPU_POD_*",
        "VMEMORY_NODE_ENABLED",
        "ALIYUN_COM_GPU_MEM_*",  # the memory of a container and of the card
        "CGPU_DISABLE",
        "NVSHARE_*",
    )
)
"""Variables that let a container on a shared GPU lift the limits of a library or a daemon."""

LIBRARY_PATH = "LD_LIBRARY_PATH"
"""A variable that may put another driver library before the real one. It is too common to refuse."""

MEMORY_LIMIT, MEMORY_REQUEST = "NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST"
MEMORY_LIMITS, MEMORY_REQUESTS = f"{MEMORY_LIMIT}S", f"{MEMORY_REQUEST}S"
"""The driver's limits in MiB, a hard one and a soft one (nvidia-container-toolkit cmd/nvidia-cdi-hook).

Newer sources of the hook read the names in the plural, and those in the singular where these are missing
(apply-cuda-memory-limits). kai-gpu-fractioning writes those in the singular; its first releases wrote the plural.
"""

DRIVER_LIMITS = (MEMORY_LIMIT, MEMORY_REQUEST, MEMORY_LIMITS, MEMORY_REQUESTS)
"""All of these names."""

SINGLE_NAMES = (*DEVICE_VARIABLES, LIBRARY_PATH, *DRIVER_LIMITS, *sorted(LIMIT_VARIABLES.names))
"""The variables of the tables that are complete names: all but the prefixes of LIMIT_VARIABLES."""

NAMED_VARIABLES = Names((*DEVICE_VARIABLES, LIBRARY_PATH, *LIMIT_VARIABLES))
"""All variables of the tables, so that each variable of a pod needs one lookup."""


def may_open(prefix: str) -> bool:
    """Return whether some variable with this prefix can give access to a GPU or lift a limit."""
    return any(name.startswith(prefix) for name in SINGLE_NAMES) or LIMIT_VARIABLES.any_begins(prefix)
