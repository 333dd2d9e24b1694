"""Every variable that HAMi-core reads has been reviewed."""

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

HARMLESS = (
    "CUDA_VISIBLE_DEVICES",  # the driver reads it too, and it can only hide devices
    "LIBCUDA_LOG_LEVEL",
    "RECORD_KERNEL_INTERVAL",  # how often the time of a kernel is written for the monitor
)
"""The others there."""


@pytest.mark.parametrize("name", LIFTING)
def test_a_variable_on_which_a_limit_depends_is_refused(name: str) -> None:
    assert name in LIMIT_VARIABLES


@pytest.mark.parametrize("name", HARMLESS)
def test_a_variable_that_lifts_no_limit_passes(name: str) -> None:
    assert name not in LIMIT_VARIABLES
