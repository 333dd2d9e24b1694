"""PaddlePaddle: one flag limits what its allocators take, in MiB, unless they reserve virtual memory."""

from collections.abc import Iterator

from webhook.memory.steps import Cap, Environment, Step, StepKind, Words, natural, not_known, unknown
from webhook.memory.tables import ALONE, STRICTER, Defeat, Form, Variable, VariableEffect, word

TITLE = "PaddlePaddle"
ORDER = 5

LIMIT = "FLAGS_gpu_memory_limit_mb"

VARIABLES = (
    Variable(
        LIMIT,
        Form.MIB,
        VariableEffect.HARD,
        since="paddle 2.6.2 or before",
        bad="read as 0, which is no limit; less than 0 is none either",
        merge=STRICTER,
        source="Paddle paddle/common/flags.cc",
    ),
    Variable(
        "FLAGS_fraction_of_gpu_memory_to_use",
        Form.FRACTION,
        VariableEffect.GROWTH,
        since="paddle 1.2; the size of a chunk, after which more chunks follow",
        bad="taken as it is, `2` too",
        merge=ALONE,
        source="Paddle paddle/common/flags.cc",
        written=False,
    ),
)

_TRUE = ("1", "t", "true", "y", "yes")
"""The values that gflags reads as true; Paddle's own parser (paddle/common/flags_native.cc) takes some of them."""
_UNCHECKED = "chooses an allocator that does not compare with the limit"
_FACADE = "Paddle paddle/phi/core: memory/allocation/allocator_facade.cc, platform/device/gpu/gpu_info.cc"


def _unchecked(value: str) -> str:
    return _UNCHECKED if word(value) in _TRUE else ""


_WAYS = ((", ".join(f"`{value}`" for value in _TRUE), _UNCHECKED),)

DEFEATS = (
    Defeat("FLAGS_use_virtual_memory_auto_growth", _WAYS, _unchecked, _FACADE),
    Defeat("FLAGS_use_multi_scale_virtual_memory_auto_growth", _WAYS, _unchecked, _FACADE),
    Defeat("FLAGS_use_vmm_auto_growth_best_fit_allocator_v2", _WAYS, _unchecked, "Paddle test/legacy_test"),
)

LARGER = Words("{name} is {old}, more than the slice or no limit; use {mib} (MiB) or less")


def merge(env: Environment, cap: Cap) -> Iterator[Step]:
    """Keep a limit that is no larger than the cap. A limit of 0, and text that is no number, mean no limit."""
    ours = str(cap.budget.mib)
    if LIMIT not in env:
        yield Step(StepKind.ADD, LIMIT, value=ours)
        return
    value = env[LIMIT]
    if value is None or unknown(value):
        yield not_known("paddlepaddle", LIMIT)
    elif not (natural(value) and 0 < int(value) <= cap.budget.mib):
        yield Step(StepKind.LOWER, LIMIT, LARGER, ours, value)
