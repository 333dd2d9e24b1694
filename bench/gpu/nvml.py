"""Asks NVIDIA's management library (NVML) about the cards of this machine."""

import ctypes
from dataclasses import dataclass
from typing import Any

MIB = 2**20
PRETENDED = "slicewarden_pretended_card"
"""A symbol that the pretended card's library has (tests/support/card/nvml.c), and NVIDIA's has not."""


class NoCard(Exception):
    """There is no NVIDIA card here, or no driver for it."""


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


@dataclass(frozen=True, slots=True)
class Card:
    """A card as NVML reports it. Memory is in MiB.

    `cuda` is the newest version of CUDA that its driver supports: `13.0`.
    """

    name: str
    driver: str
    total: int
    cuda: str
    pretended: bool
    _library: Any
    _handle: ctypes.c_void_p

    @property
    def used(self) -> float:
        """MiB that all processes on the card use now, with their contexts."""
        return float(_memory(self._library, self._handle).used / MIB)


def first() -> Card:
    """Return the first card. Raises NoCard."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise NoCard("no NVIDIA driver") from error
    count, handle = ctypes.c_uint(), ctypes.c_void_p()
    if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) or not count.value:
        raise NoCard("an NVIDIA driver, but no card")
    _check(library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)))
    name, driver = ctypes.create_string_buffer(96), ctypes.create_string_buffer(80)
    _check(library.nvmlDeviceGetName(handle, name, len(name)))
    _check(library.nvmlSystemGetDriverVersion(driver, len(driver)))
    total = _memory(library, handle).total // MIB
    cuda = ctypes.c_int()
    _check(library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda)))
    release = f"{cuda.value // 1000}.{cuda.value % 1000 // 10}"
    pretended = hasattr(library, PRETENDED)
    return Card(name.value.decode(), driver.value.decode(), total, release, pretended, library, handle)


def _memory(library: Any, handle: ctypes.c_void_p) -> _Memory:
    memory = _Memory()
    _check(library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)))
    return memory


def _check(status: int) -> None:
    if status:
        raise NoCard(f"NVML answers with error {status}")
