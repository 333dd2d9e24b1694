"""A program on a card: takes memory and works as it is told on its standard input, and answers each line with one.

`take MIB` answers with CUDA's error (0, or 2 for out of memory), `give` frees what was taken last, `work MICROSECONDS`
answers when that much work is done. Run as a file by any Python; it imports nothing of ours.
"""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
taken: list[ctypes.c_size_t] = []
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
        error = cuda.cuLaunchKernel(None, int(numbers[0]), 1, 1) or cuda.cuCtxSynchronize()
    print(error, flush=True)
