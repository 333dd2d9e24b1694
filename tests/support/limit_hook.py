"""Imitates NVIDIA's hook for memory limits, and makes values for its variables."""

import re

from hypothesis import strategies as st

from webhook.catalog.device_variables import MEMORY_LIMIT, MEMORY_LIMITS, MEMORY_REQUEST, MEMORY_REQUESTS
from webhook.memory.steps import Environment

SLICE = 3712
"""MiB of a slice of a T4 shared by four, around which values are drawn."""

MOST = 2**64 - 1

Limits = tuple[int, int] | str | None
"""The soft and the hard limit in MiB, why the container is not created, or None for none."""


def hooked(env: Environment) -> Limits:
    """Return what `apply-cuda-memory-limits` does (nvidia-container-toolkit v1.20.1, and runs of it by containerd)."""
    return _set(env.get(MEMORY_REQUEST), env.get(MEMORY_LIMIT))


def hooked_later(env: Environment) -> Limits:
    """Return what newer sources of the hook do: plural names go first, and without limit and request nothing is set."""
    request, limit = env.get(MEMORY_REQUESTS, env.get(MEMORY_REQUEST)), env.get(MEMORY_LIMITS, env.get(MEMORY_LIMIT))
    return None if request is None or limit is None else _set(request, limit)


def _set(request: str | None, limit: str | None) -> Limits:
    if request is None and limit is None:
        return None
    if any(each is not None and not re.fullmatch(r"[0-9]+", each, re.ASCII) for each in (request, limit)):
        return "no number"
    soft, hard = (None if each is None else int(each) for each in (request, limit))
    if any(each is not None and each * 2**20 > MOST for each in (soft, hard)):
        return "too large"
    if soft is not None and hard is not None and soft > hard:
        return "above"
    return (soft if soft is not None else hard or 0, MOST if hard is None else hard)


NUMBERS = st.one_of(st.integers(0, 2 * SLICE), st.sampled_from((0, 1, SLICE, SLICE + 1, 2**44, 2**64)))
TEXTS = st.one_of(
    NUMBERS.map(str),
    st.sampled_from(("", " 1", "1 ", "8Gi", "+1", "1_0", "1.5", "1e3", "-1", "007", "\u0661", "$(N)")),
    st.text(max_size=3),
)
