"""Runs on a card: allocates memory and computes as its standard input commands, and answers each command with a line.

`take MIB` answers with CUDA's error (0, or 2 for out of memory), `give` frees what was taken last, `work ROUNDS` queues
a kernel of ROUNDS rounds, and `wait` answers when all queued kernels are done. `steps COUNT ROUNDS [MICROSECONDS]` does
both COUNT times, like a training that reads its loss, and waits MICROSECONDS on the host after each. `upload`,
`upload-paged`, `download`, `move` and `fill MILLISECONDS` do one thing in a loop for so long: copy to the card from
pinned or from pageable memory, copy from the card, copy on the card, or set memory. They use the first PART bytes of
what was taken last, and `move` also the next ones. Run as a file by any Python, on a machine with NVIDIA's driver; it
imports nothing of ours, and needs no CUDA toolkit.
"""

import ctypes
import sys
import time

KERNEL = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry work(.param .u64 rounds, .param .u64 out)
{
    .reg .u64 %n, %i, %at;
    .reg .f32 %x;
    .reg .pred %more;
    ld.param.u64 %n, [rounds];
    ld.param.u64 %at, [out];
    mov.u64 %i, 0;
    mov.f32 %x, 0f3F800000;
again:
    fma.rn.f32 %x, %x, 0f3F7FFFFF, 0f33800000;
    add.u64 %i, %i, 1;
    setp.lt.u64 %more, %i, %n;
    @%more bra again;
    st.global.f32 [%at], %x;
    ret;
}
"""


PART = 64 << 20
"""Bytes of each copy."""


def done(error: int) -> None:
    """End this program after an unexpected error."""
    if error:
        sys.exit(f"CUDA error {error}")


cuda = ctypes.CDLL("libcuda.so.1")
device, context, module, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
out = ctypes.c_size_t()
done(cuda.cuInit(0))
done(cuda.cuDeviceGet(ctypes.byref(device), 0))
done(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
done(cuda.cuCtxSetCurrent(context))
taken: list[ctypes.c_size_t] = []


def launch(number: int) -> int:
    """Queue a kernel of a given number of rounds."""
    if kernel.value is None:
        done(cuda.cuModuleLoadData(ctypes.byref(module), KERNEL))
        done(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"work"))
        done(cuda.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(4)))
    rounds = ctypes.c_uint64(number)
    given = (ctypes.c_void_p * 2)(ctypes.addressof(rounds), ctypes.addressof(out))
    return int(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, given, None))


def repeat(word: str, milliseconds: int) -> int:
    """Copy or set memory in a loop, one call after the other."""
    at, size = taken[-1], ctypes.c_size_t(PART)
    pinned, paged = ctypes.c_void_p(), ctypes.create_string_buffer(PART if word == "upload-paged" else 1)
    done(cuda.cuMemHostAlloc(ctypes.byref(pinned), size, 0))
    ctypes.memset(pinned, 1, PART)
    ctypes.memset(paged, 1, len(paged))
    after, end, error = ctypes.c_size_t(at.value + PART), time.monotonic() + milliseconds / 1000, 0
    while not error:
        if word == "upload":
            error = cuda.cuMemcpyHtoD_v2(at, pinned, size)
        elif word == "upload-paged":
            error = cuda.cuMemcpyHtoD_v2(at, paged, size)
        elif word == "download":
            error = cuda.cuMemcpyDtoH_v2(pinned, at, size)
        elif word == "move":
            error = cuda.cuMemcpyDtoD_v2(after, at, size)
        else:
            error = cuda.cuMemsetD8_v2(at, ctypes.c_ubyte(1), size)
        error = error or cuda.cuCtxSynchronize()
        if time.monotonic() >= end:
            break
    return int(error or cuda.cuMemFreeHost(pinned))


print("ready", flush=True)
for line in sys.stdin:
    word, *numbers = line.split()
    error = 0
    if word == "take":
        address = ctypes.c_size_t()
        error = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(numbers[0]) << 20))
        if not error:
            taken.append(address)
    elif word == "give":
        error = cuda.cuMemFree_v2(taken.pop())
    elif word == "work":
        error = launch(int(numbers[0]))
    elif word == "steps":
        for _ in range(int(numbers[0])):
            error = error or launch(int(numbers[1])) or cuda.cuCtxSynchronize()
            time.sleep(int(numbers[2]) / 1e6 if numbers[2:] else 0)
    elif word in ("upload", "upload-paged", "download", "move", "fill"):
        error = repeat(word, int(numbers[0]))
    elif word == "wait":
        error = cuda.cuCtxSynchronize()
    print(error, flush=True)
