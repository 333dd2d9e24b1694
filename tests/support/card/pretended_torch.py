"""A module `torch` for the simulated card: only what bench/gpu/greedy.py and the memory shim use of PyTorch 2.11.

It allocates through the driver, in no pool, and keeps to the fraction of `PYTORCH_ALLOC_CONF` and of the shim.
"""

import ctypes
import os
import sys
import types
from typing import Any

__version__ = "2.11.0"
uint8 = "uint8"

_driver = ctypes.CDLL("libcuda.so.1")
_calls: list[Any] = []
_fraction = [float(os.environ.get("PYTORCH_ALLOC_CONF", ":1").rpartition(":")[2])]
_taken = [0]


class OutOfMemoryError(RuntimeError):
    """Stands for PyTorch's error of this name."""


def empty(size: int, dtype: str, device: str) -> ctypes.c_size_t:
    """Allocate this many bytes. Raises OutOfMemoryError."""
    del dtype, device
    if not _taken[0]:
        for call in _calls:  # CUDA is initialised at the first use
            call()
    total, address = ctypes.c_size_t(), ctypes.c_size_t()
    _driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    full = _taken[0] + size > _fraction[0] * total.value
    if full or _driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)):
        raise OutOfMemoryError("CUDA out of memory")
    _taken[0] += size
    return address


def _set(fraction: float, device: int = 0) -> None:
    del device
    _fraction[0] = fraction


_C = types.SimpleNamespace(
    _cuda_setMemoryFraction=_set,
    _cuda_getMemoryFraction=lambda _: _fraction[0],
    _cuda_getDeviceCount=lambda: 1,
)
cuda: Any = types.ModuleType("torch.cuda")
cuda.OutOfMemoryError = OutOfMemoryError
cuda.memory_reserved = lambda: _taken[0]
cuda.set_per_process_memory_fraction = _set
cuda._lazy_call = _calls.append
cuda.memory = types.SimpleNamespace(set_per_process_memory_fraction=_set)
sys.modules["torch.cuda"] = cuda
_driver.cuInit(0)
