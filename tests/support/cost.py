"""Counts the cost of work in function calls and not in seconds, so that it is the same on every machine."""

import gc
import sys
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
