"""Every variable that HAMi-core and vgpu-manager read has been reviewed."""

import pytest

from webhook.catalog.device_variables import LIMIT_VARIABLES

LIFTING = (
    "ACTIVE_OOM_KILLER",
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_MEMORY_LIMIT_0",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    "CUDA_DEVICE_SM_LIMIT",
    "CUDA_DEVICE_SM_LIMIT_0",
    "CUDA_REDIRECT",
    "CUDA_TASK_PRIORITY",
    "GPU_CORE_UTILIZATION_POLICY",
)
"""The variables in HAMi-core's src at 8f3a89c6 on which its limits depend."""

OF_VGPU_MANAGER = (
    "CUDA_CORE_LIMIT_0",
    "CUDA_CORE_SOFT_LIMIT_0",
    "CUDA_MEM_LIMIT_0",
    "CUDA_MEM_OVERSOLD_0",
    "CUDA_MEM_RATIO_0",
    "CUDA_MEM_UVA_ADVISE",
    "CUDA_SM_AIMD_AI_BASE_DIV",
    "CUDA_SM_AUTO_DEBOUNCE_CYCLES",
    "CUDA_SM_CONTROLLER",
    "CUDA_SM_DELTA_RAMP_FLOOR_DIVISOR",
    "CUDA_SM_SHARED_BUCKET",
    "CUDA_SM_USAGE_THRESHOLD",
    "EXTERNAL_SM_WATCHER_ENABLED",
    "LD_PRELOAD",
    "MANAGER_CLIENT_REGISTER_UUID",
    "MANAGER_COMPATIBILITY_MODE",
    "MANAGER_VISIBLE_DEVICES",
    "MANAGER_VISIBLE_DEVICE_0",
    "VGPU_CONTAINER_NAME",
    "VGPU_POD_NAME",
    "VGPU_POD_NAMESPACE",
    "VGPU_POD_UID",
    "VMEMORY_NODE_ENABLED",
)
"""All that vgpu-manager's library reads at 3d7f66d7, except NVIDIA_VISIBLE_DEVICES and LOGGER_LEVEL."""

HARMLESS = (
    "CUDA_VISIBLE_DEVICES",  # the driver reads it too, and it can only hide devices
    "LIBCUDA_LOG_LEVEL",
    "RECORD_KERNEL_INTERVAL",  # how often the time of a kernel is written for the monitor
)
"""The others of HAMi-core."""


@pytest.mark.parametrize("name", [*LIFTING, *OF_VGPU_MANAGER])
def test_a_variable_on_which_a_limit_depends_is_refused(name: str) -> None:
    assert name in LIMIT_VARIABLES


@pytest.mark.parametrize("name", HARMLESS)
def test_a_variable_that_lifts_no_limit_passes(name: str) -> None:
    assert name not in LIMIT_VARIABLES
