"""CuPy: one variable limits its default memory pool, by a percentage of the card or in bytes."""

from collections.abc import Iterator

from webhook.memory.budget import Budget
from webhook.memory.steps import (
    EMPTY,
    Cap,
    Environment,
    Step,
    StepKind,
    Words,
    fraction,
    natural,
    not_known,
    unknown,
)
from webhook.memory.tables import STRICTER, Form, Variable, VariableEffect

TITLE = "CuPy"
ORDER = 4

LIMIT = "CUPY_GPU_MEMORY_LIMIT"

VARIABLES = (
    Variable(
        LIMIT,
        Form.PERCENT,
        VariableEffect.HARD,
        since="cupy 7.0",
        bad="fails at the first allocation; so does the empty text",
        merge=f"{STRICTER}, 0 being none",
        source="cupy cupy/cuda/memory.pyx",
    ),
)

LARGER_PERCENTAGE = Words("{name} is {old}, more than the slice or no limit; use {value} or less")
LARGER_AMOUNT = Words("{name} is {old}, more than the slice or no limit; use {bytes} bytes or less")
NO_LIMIT = Words("{name} is {old}, which is neither bytes nor a percentage; use {percent} or less")


def merge(env: Environment, cap: Cap) -> Iterator[Step]:
    """Keep a limit that is no larger than the cap. A limit of 0 means no limit."""
    budget = cap.budget
    ours = _limit(budget)
    if LIMIT not in env:
        yield Step(StepKind.ADD, LIMIT, value=ours)
        return
    value = env[LIMIT]
    if value is None or unknown(value):
        yield not_known("cupy", LIMIT)
    elif value.endswith("%") and (number := fraction(value[:-1])) is not None:
        if budget.unified or not 0 < number <= budget.permille / 10:
            yield Step(StepKind.LOWER, LIMIT, LARGER_PERCENTAGE, ours, value)
    elif natural(value):
        if not 0 < int(value) <= int(budget.bytes):
            yield Step(StepKind.LOWER, LIMIT, LARGER_AMOUNT, budget.bytes, value)
    elif not value:
        yield Step(StepKind.SET, LIMIT, EMPTY, ours)
    else:
        yield Step(StepKind.REFUSE, LIMIT, NO_LIMIT, old=value)


def _limit(budget: Budget) -> str:
    """The cap in percent; in bytes where the GPU's memory is the host's."""
    return budget.bytes if budget.unified else budget.percent
