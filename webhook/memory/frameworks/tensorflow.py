"""TensorFlow: no variable caps it. A variable only keeps it from taking the whole card at its start."""

from collections.abc import Iterator

from webhook.memory.steps import Cap, Environment, Step, StepKind, Words, not_known, unknown
from webhook.memory.tables import ALONE, Defeat, Form, Variable, VariableEffect, word

TITLE = "TensorFlow"
ORDER = 2
CAPPED, SHIMMED = "", "tensorflow"

GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
GROWS = "true"

VARIABLES = (
    Variable(
        GROWTH,
        Form.TEXT,
        VariableEffect.GROWTH,
        since="tensorflow 1.14 or before",
        bad="all but `true` and `false` is logged and ignored, `True` and `1` too",
        merge="set to `true`",
        source="tensorflow/docs#558",
        text=GROWS,
    ),
    Variable(
        "TF_PER_DEVICE_MEMORY_LIMIT_MB",
        Form.MIB,
        VariableEffect.NONE,
        since="a hook for tests; a limit up to 2.16.2, none from 2.17 on",
        bad="text aborts the process",
        merge=ALONE,
        source="xla xla/stream_executor/stream_executor_common.cc",
        written=False,
    ),
    Variable(
        "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
        Form.MIB,
        VariableEffect.PLAN,
        since="2.15 or before; what is free at the start less this, dropped where that is too little",
        bad="logged and ignored",
        merge=ALONE,
        source="seen in the wheels 2.15.1 to 2.21.0",
        written=False,
    ),
)

_UNLIMITED = "chooses an allocator without a limit"

DEFEATS = (
    Defeat(
        "TF_GPU_ALLOCATOR",
        (("`cuda_malloc`, `cuda_malloc_async`", _UNLIMITED),),
        lambda value: _UNLIMITED if word(value) in ("cuda_malloc", "cuda_malloc_async") else "",
        source="seen in the wheels 2.15.1 to 2.21.0",
    ),
)

GROWS_NOT = Words("{name} is {old}, so TensorFlow takes the whole GPU when it starts; set it to {value}")


def merge(env: Environment, cap: Cap) -> Iterator[Step]:
    """Make TensorFlow take memory only when it needs it."""
    if GROWTH not in env:
        yield Step(StepKind.ADD, GROWTH, value=GROWS)
        return
    value = env[GROWTH]
    if value is None or unknown(value):
        yield not_known("tensorflow", GROWTH)._replace(kind=StepKind.UNSURE)
    elif value != GROWS:
        yield Step(StepKind.LOWER, GROWTH, GROWS_NOT, GROWS, value)


def uncapped(cap: Cap) -> Iterator[str]:
    """Yield that no cap limits any release of TensorFlow without the shim."""
    if not cap.shim:
        yield SHIMMED
