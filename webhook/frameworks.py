"""The environment variables by which machine-learning frameworks limit their GPU memory, as a table."""

import re
from dataclasses import dataclass
from enum import StrEnum


class Form(StrEnum):
    """What a variable holds."""

    FRACTION = "a fraction of the card"
    SETTINGS = "comma-separated key:value settings with a fraction of the card among them"
    TEXT = "a fixed text"


class Effect(StrEnum):
    """What a variable does to a process."""

    HARD = "allocation beyond it fails"
    GROWTH = "memory is taken when it is needed, with no limit"
    GUARD = "keeps another variable in force"


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable.

    `text` is the value where the form is fixed. `rivals` are variables that are read instead of this one
    when a container sets them; `empty_rival_wins` tells whether an empty rival is. A `default` may be
    replaced by the tenant.
    """

    framework: str
    name: str
    form: Form
    effect: Effect
    since: str
    source: str
    text: str = ""
    rivals: tuple[str, ...] = ()
    empty_rival_wins: bool = False
    default: bool = False


_FRACTION = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)


def fraction(text: str) -> float | None:
    """Read a fraction of the card where every framework's parser reads the same; None for other text.

    Python's `float` takes underscores and other scripts' digits; C++'s `stod` stops at them.
    """
    return float(text) if len(text) <= 40 and _FRACTION.fullmatch(text) else None


FRACTION_KEY = "per_process_memory_fraction"
"""The PyTorch allocator setting that is a cap."""

TABLE = (
    Variable(
        "pytorch",
        "PYTORCH_ALLOC_CONF",
        Form.SETTINGS,
        Effect.HARD,
        since="torch 2.10.0; not read for device memory before",
        source="pytorch c10/cuda/CUDAAllocatorConfig.h; pytorch#161035, pytorch#183387",
        rivals=("PYTORCH_CUDA_ALLOC_CONF",),
        empty_rival_wins=True,
    ),
    Variable(
        "tensorflow",
        "TF_FORCE_GPU_ALLOW_GROWTH",
        Form.TEXT,
        Effect.GROWTH,
        since="tensorflow 1.14; exactly true, other spellings are ignored",
        source="tensorflow/docs#558",
        text="true",
    ),
    Variable(
        "jax",
        "XLA_PYTHON_CLIENT_MEM_FRACTION",
        Form.FRACTION,
        Effect.HARD,
        since="jaxlib 0.4.1; of free memory before",
        source="jax jaxlib/xla_client.py generate_pjrt_gpu_plugin_options",
        rivals=("XLA_CLIENT_MEM_FRACTION",),
    ),
    Variable(
        "jax",
        "XLA_CLIENT_MEM_FRACTION",
        Form.TEXT,
        Effect.GUARD,
        since="jaxlib 0.4.33; jax refuses to start when an image sets it beside the older name",
        source="jax jaxlib/xla_client.py generate_pjrt_gpu_plugin_options",
        default=True,
    ),
    Variable(
        "jax",
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        Form.TEXT,
        Effect.GROWTH,
        since="all",
        source="jax jaxlib/xla_client.py generate_pjrt_gpu_plugin_options",
        text="false",
        default=True,
    ),
)
