"""Take GPU memory with one framework until it gives no more: `greedy.py FRAMEWORK [--chunks N] [--hold]`.

Run as a file by an interpreter that has the framework; imports nothing of ours. Prints one JSON object: the framework's
version, MiB taken in chunks, MiB that the framework says it took from the card (0 where it does not say), and the
error that stopped it, null if it got all it asked for. With --hold the memory is kept until standard input ends.
"""

import argparse
import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

CHUNK = 16 * 2**20


class Source(NamedTuple):
    """How to allocate memory in a framework: `take` allocates bytes until it raises `full` with `text`.

    `reserved` returns the bytes that the framework has taken from the card.
    """

    version: str
    take: Callable[[int], object]
    full: type[Exception]
    text: str
    reserved: Callable[[], int]


def pytorch() -> Source:
    """Return how PyTorch allocates. With cudaMallocAsync its error is only `Allocation on device`."""
    torch = import_module("torch")
    return Source(
        torch.__version__,
        lambda size: torch.empty(size, dtype=torch.uint8, device="cuda"),
        torch.cuda.OutOfMemoryError,
        "",
        torch.cuda.memory_reserved,
    )


def jax() -> Source:
    """Return how JAX allocates. A device array from a host array compiles nothing."""
    numpy, library = import_module("numpy"), import_module("jax")
    (device, *_) = library.devices("cuda")
    host = numpy.zeros(CHUNK, numpy.uint8)
    return Source(
        library.__version__,
        lambda size: library.device_put(host[:size], device).block_until_ready(),
        RuntimeError,
        "RESOURCE_EXHAUSTED",
        lambda: (device.memory_stats() or {}).get("pool_bytes") or 0,
    )


def tensorflow() -> Source:
    """Return how TensorFlow allocates."""
    library = import_module("tensorflow")
    if not library.config.list_physical_devices("GPU"):
        raise RuntimeError("TensorFlow finds no GPU")

    def take(size: int) -> object:
        with library.device("GPU:0"):
            return library.raw_ops.Empty(shape=[size], dtype=library.uint8)

    return Source(library.__version__, take, library.errors.ResourceExhaustedError, "OOM", lambda: 0)


def cupy() -> Source:
    """Return how CuPy allocates from its default pool."""
    library = import_module("cupy")
    return Source(
        library.__version__,
        lambda size: library.empty(size, dtype=library.uint8),
        library.cuda.memory.OutOfMemoryError,
        "Out of memory",
        library.get_default_memory_pool().total_bytes,
    )


FRAMEWORKS = {each.__name__: each for each in (pytorch, jax, tensorflow, cupy)}


def main() -> None:
    """Allocate, report, and keep the memory if requested."""
    parser = argparse.ArgumentParser(description="Take GPU memory until there is no more.")
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("--chunks", type=int, default=sys.maxsize, help="stop after so many of 16 MiB")
    parser.add_argument("--hold", action="store_true", help="keep the memory until standard input ends")
    arguments = parser.parse_args()
    source = FRAMEWORKS[arguments.framework]()
    held: list[object] = []
    stopped = None
    while len(held) < arguments.chunks and stopped is None:
        try:
            held.append(source.take(CHUNK))
        except source.full as error:
            if source.text not in str(error):
                raise
            stopped = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    report = {
        "version": source.version,
        "taken": len(held) * CHUNK // 2**20,
        "reserved": source.reserved() / 2**20,
        "stopped": stopped,
    }
    print(json.dumps(report), flush=True)
    if arguments.hold:
        sys.stdin.read()


if __name__ == "__main__":
    main()
