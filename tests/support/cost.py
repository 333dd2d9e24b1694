"""Counts the cost of work in function calls and bytes and not in seconds, so that it is the same on every machine."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any


def calls(work: Callable[[], object]) -> int:
    """Count the function calls of some work, except those of garbage collection."""
    count = 0

    def counted(_: Any, event: str, __: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    gc.disable()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def peak(work: Callable[[], object]) -> int:
    """Return the most bytes that some work has at once, next to those that were there before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
