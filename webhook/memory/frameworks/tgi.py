"""text-generation-inference: its own variable replaces PyTorch's fraction in images of its name."""

from collections.abc import Iterator

from webhook.memory.steps import Cap, Environment, Step, StepKind, stricter_fraction
from webhook.memory.tables import STRICTER, Form, Variable, VariableEffect

TITLE = "text-generation-inference"
ORDER = 7
IMAGE = "text-generation-inference"
FRACTIONS_ONLY = True

FRACTION = "CUDA_MEMORY_FRACTION"

VARIABLES = (
    Variable(
        FRACTION,
        Form.FRACTION,
        VariableEffect.HARD,
        since="text-generation-inference 0.9.4",
        bad="the launcher does not start",
        merge=f"{STRICTER}, for images named text-generation-inference; it replaces torch's own fraction",
        source="text-generation-inference server/text_generation_server/utils/dist.py",
    ),
)


def merge(env: Environment, cap: Cap) -> Iterator[Step]:
    """Keep a fraction that is no larger than the cap."""
    if FRACTION in env:
        yield from stricter_fraction("tgi", FRACTION, env[FRACTION], cap.budget)
    else:
        yield Step(StepKind.ADD, FRACTION, value=cap.budget.fraction)
