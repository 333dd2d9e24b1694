"""What machine-learning frameworks know of limits to their GPU memory, as tables.

Most of it was seen by running the frameworks' own wheels on a stub CUDA driver that counts allocations; where a row
names a file or a thread, that says the same.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple


class Form(StrEnum):
    """What a variable holds, and in which unit."""

    SETTINGS = "`key:value` settings with commas between them; the cap is one of them, a fraction of the card"
    FRACTION = "a fraction of the card"
    PERCENT = "a percentage of the card with `%`, or bytes"
    MIB = "MiB"
    BYTES = "bytes"
    TEXT = "text"


class Effect(StrEnum):
    """What a variable does to a process."""

    HARD = "hard: its own allocator gives no more"
    GROWTH = "growth only: memory is taken when it is needed, without a limit"
    FRAGMENTATION = "fragmentation only: where memory is taken, not how much"
    PLAN = "plan only: a size is reckoned from free or total memory, and not kept to"
    NONE = "none: it limits nothing"


class Variable(NamedTuple):
    """One variable: what it does and how it is merged with what a tenant wrote.

    `text` is the value where the form is fixed. A variable that is not `written` is never set where it is absent.
    """

    framework: str
    name: str
    form: Form
    effect: Effect
    since: str
    bad: str
    merge: str
    source: str
    text: str = ""
    written: bool = True


FRACTION_KEY = "per_process_memory_fraction"
"""The PyTorch allocator setting that is a cap."""

ALLOC, CUDA_ALLOC, HIP_ALLOC = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
XLA_OLD, XLA_NEW = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
CUPY_LIMIT = "CUPY_GPU_MEMORY_LIMIT"
PADDLE_LIMIT = "FLAGS_gpu_memory_limit_mb"
TGI_FRACTION = "CUDA_MEMORY_FRACTION"
MODULE_LOADING = "CUDA_MODULE_LOADING"

_STRICTER = "set where absent; of two limits the smaller one stands"
_ALONE = "left alone"
_JAX = "jax jaxlib/xla_client.py generate_pjrt_gpu_plugin_options"

TABLE = (
    Variable(
        "pytorch",
        ALLOC,
        Form.SETTINGS,
        Effect.HARD,
        since="torch 2.10.0; not read for device memory before",
        bad="a malformed list aborts `import torch`, an unknown key fails at the first use of CUDA",
        merge="set where no torch variable is; else completed, the other settings kept as they are; "
        "of two fractions the smaller one stands",
        source="pytorch c10/cuda/CUDAAllocatorConfig.h; pytorch#161035, pytorch#183387, pytorch#186453",
    ),
    Variable(
        "pytorch",
        CUDA_ALLOC,
        Form.SETTINGS,
        Effect.HARD,
        since="1.10 or before, the fraction 2.10.0; from there on it hides PYTORCH_ALLOC_CONF, even empty",
        bad="torch before 2.10 fails at the first use of CUDA on the fraction, which it does not know; else as above",
        merge="completed, or set with what PYTORCH_ALLOC_CONF says, where torch is known to be 2.10 or newer; "
        "left alone elsewhere, with a warning",
        source="pytorch c10/cuda/CUDAAllocatorConfig.h; pytorch#166802",
        written=False,
    ),
    Variable(
        "pytorch",
        HIP_ALLOC,
        Form.SETTINGS,
        Effect.NONE,
        since="torch 2.9 or before; read on CUDA from 2.10.0 on where PYTORCH_CUDA_ALLOC_CONF is not set, "
        "but not for the fraction",
        bad="an unknown key fails at the first use of CUDA",
        merge="left alone, with a warning; where torch is known to be 2.10 or newer PYTORCH_CUDA_ALLOC_CONF is "
        "written with its settings and a fraction",
        source="pytorch c10/cuda/CUDAAllocatorConfig.h",
        written=False,
    ),
    Variable(
        "tensorflow",
        GROWTH,
        Form.TEXT,
        Effect.GROWTH,
        since="tensorflow 1.14 or before",
        bad="all but `true` and `false` is logged and ignored, `True` and `1` too",
        merge="set to `true`",
        source="tensorflow/docs#558",
        text="true",
    ),
    Variable(
        "tensorflow",
        "TF_PER_DEVICE_MEMORY_LIMIT_MB",
        Form.MIB,
        Effect.NONE,
        since="a hook for tests; a limit up to 2.16.2, none from 2.17 on",
        bad="text aborts the process",
        merge=_ALONE,
        source="xla xla/stream_executor/stream_executor_common.cc",
        written=False,
    ),
    Variable(
        "tensorflow",
        "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
        Form.MIB,
        Effect.PLAN,
        since="2.15 or before; what is free at the start less this, dropped where that is too little",
        bad="logged and ignored",
        merge=_ALONE,
        source="seen in the wheels 2.15.1 to 2.21.0",
        written=False,
    ),
    Variable(
        "jax",
        XLA_OLD,
        Form.FRACTION,
        Effect.HARD,
        since="jaxlib 0.4.1; of free memory before",
        bad="percent is refused, more than 1 may exceed the card, less than 0 is no limit",
        merge=_STRICTER,
        source=_JAX,
    ),
    Variable(
        "jax",
        XLA_NEW,
        Form.FRACTION,
        Effect.HARD,
        since="jaxlib 0.4.33; jax refuses to start where both names are set",
        bad="as above",
        merge="of two limits the smaller one stands; where it is absent it is set to nothing, "
        "so that an image cannot set it beside the older name",
        source=_JAX,
    ),
    Variable(
        "jax",
        PREALLOCATE,
        Form.TEXT,
        Effect.GROWTH,
        since="all",
        bad="all but `false`, `False` and `0` is true",
        merge="set where absent",
        source=_JAX,
        text="false",
    ),
    Variable(
        "cupy",
        CUPY_LIMIT,
        Form.PERCENT,
        Effect.HARD,
        since="cupy 7.0",
        bad="fails at the first allocation; so does the empty text",
        merge=f"{_STRICTER}, 0 being none",
        source="cupy cupy/cuda/memory.pyx",
    ),
    Variable(
        "paddlepaddle",
        PADDLE_LIMIT,
        Form.MIB,
        Effect.HARD,
        since="paddle 2.6.2 or before",
        bad="read as 0, which is no limit; less than 0 is none either",
        merge=_STRICTER,
        source="Paddle paddle/common/flags.cc",
    ),
    Variable(
        "tgi",
        TGI_FRACTION,
        Form.FRACTION,
        Effect.HARD,
        since="text-generation-inference 0.9.4",
        bad="the launcher does not start",
        merge=f"{_STRICTER}, for images named text-generation-inference; it replaces torch's own fraction",
        source="text-generation-inference server/text_generation_server/utils/dist.py",
    ),
    Variable(
        "cuda",
        MODULE_LOADING,
        Form.TEXT,
        Effect.NONE,
        since="CUDA 11.7, and the default from 12.2 on; contexts take less memory, which is all it does",
        bad="taken for the default",
        merge="set where absent",
        source="CUDA C++ Programming Guide, lazy loading; pytorch#86509",
        text="LAZY",
    ),
    Variable(
        "jax",
        "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB",
        Form.MIB,
        Effect.NONE,
        since="jaxlib 0.4.36 or before; a pool for collectives beside the fraction",
        bad="fails at the start",
        merge=f"{_ALONE}, with a warning",
        source=_JAX,
        written=False,
    ),
    Variable(
        "paddlepaddle",
        "FLAGS_fraction_of_gpu_memory_to_use",
        Form.FRACTION,
        Effect.GROWTH,
        since="paddle 1.2; the size of a chunk, after which more chunks follow",
        bad="taken as it is, `2` too",
        merge=_ALONE,
        source="Paddle paddle/common/flags.cc",
        written=False,
    ),
    Variable(
        "ollama",
        "OLLAMA_GPU_OVERHEAD",
        Form.BYTES,
        Effect.PLAN,
        since="ollama 0.3.10; from 0.30 on hardly that",
        bad="taken for 0; more than the card wraps around",
        merge=_ALONE,
        source="ollama envconfig/config.go, server/sched.go",
        written=False,
    ),
    Variable(
        "llama.cpp",
        "LLAMA_ARG_FIT_TARGET",
        Form.MIB,
        Effect.PLAN,
        since="end of 2025; what is left free at the start",
        bad="the default",
        merge=_ALONE,
        source="llama.cpp#18390, tools/fit-params/README.md",
        written=False,
    ),
    Variable(
        "mps",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        Form.TEXT,
        Effect.HARD,
        since="with an MPS daemon alone, for each client; the device plugin sets it there",
        bad="not tried",
        merge=_ALONE,
        source="k8s-device-plugin cmd/mps-control-daemon/mps/daemon.go",
        written=False,
    ),
    Variable(
        "hami",
        "CUDA_DEVICE_MEMORY_LIMIT",
        Form.TEXT,
        Effect.NONE,
        since="HAMi-core; hard where its library is preloaded, and nothing elsewhere",
        bad="no limit",
        merge=_ALONE,
        source="HAMi-core src/multiprocess/multiprocess_memory_limit.c",
        written=False,
    ),
)
"""Every variable, in the order in which they are written."""

FRAMEWORKS = tuple(dict.fromkeys(variable.framework for variable in TABLE if variable.written))
"""Those that a policy may name."""


class Defeat(NamedTuple):
    """A variable that can take a framework's cap away.

    `ways` are the values that do, in words, each with its effect. `effect` returns the effect of one value, or
    nothing where the value leaves the cap as it is.
    """

    framework: str
    name: str
    ways: tuple[tuple[str, str], ...]
    effect: Callable[[str], str]
    source: str


def _word(text: str) -> str:
    return text.strip().lower()


_TRUE = frozenset({"1", "t", "true", "y", "yes"})
"""What gflags reads as true; Paddle's own parser (paddle/common/flags_native.cc) takes only some of it."""


def _paddle_flag(name: str, effect: str, source: str) -> Defeat:
    values = ", ".join(f"`{value}`" for value in sorted(_TRUE))
    return Defeat(
        "paddlepaddle", name, ((values, effect),), lambda value: effect if _word(value) in _TRUE else "", source
    )


_OTHER_ALLOCATOR = "chooses an allocator that keeps no cap"
_OTHER_FRACTION = "sets a fraction that counts over jax's variables"
_KEEPS_CAP = frozenset({"", "default", "bfc"})


def _create_options(value: str) -> str:
    """Read `key:value` pairs with semicolons between them, as jax does (jax/_src/xla_bridge.py)."""
    for pair in value.split(";"):
        key, _, chosen = pair.partition(":")
        if _word(key) == "allocator" and _word(chosen) not in _KEEPS_CAP:
            return _OTHER_ALLOCATOR
        if _word(key) == "memory_fraction":
            return _OTHER_FRACTION
    return ""


_FLAGS_FILE = "names a file of flags that is not read here"
_TEMPORARY_BUFFERS = "gives temporary buffers an allocator that keeps no cap"
_TEMPORARY_FLAG = "xla_gpu_temp_buffer_use_separate_color"


def _xla_flags(value: str) -> str:
    """Read XLA's flags: with a hyphen first they are flags, else the name of a file (xla/parse_flags_from_env.cc)."""
    flags = value.strip()
    if not flags.startswith("-"):
        return _FLAGS_FILE if flags else ""
    for flag in flags.replace('"', "").replace("'", "").split():
        name, _, chosen = flag.lstrip("-").partition("=")
        if name == _TEMPORARY_FLAG and _word(chosen) not in ("0", "false"):
            return _TEMPORARY_BUFFERS
    return ""


_UNCACHED = "switches off the allocator that keeps the cap"
_MANAGED = "lets jax take the host's memory as the card's"
_COLLECTIVE = "gives collectives a pool beside the cap"
_PLUGIN = "loads a plugin whose options are not read here"
_UNLIMITED = "chooses an allocator without a limit"
_VIRTUAL = "chooses an allocator that does not compare with the limit"
_PADDLE = (
    "Paddle paddle/phi/core/memory/allocation/allocator_facade.cc, paddle/phi/core/platform/device/gpu/gpu_info.cc"
)

DEFEATS = (
    Defeat(
        "pytorch",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        (("any", _UNCACHED),),
        lambda _: _UNCACHED,
        "pytorch c10/cuda/CUDACachingAllocator.cpp forceUncachedAllocator",
    ),
    Defeat(
        "pytorch",
        "PYTORCH_NO_HIP_MEMORY_CACHING",
        (("any", _UNCACHED),),
        lambda _: _UNCACHED,
        "pytorch c10/cuda/CUDACachingAllocator.cpp forceUncachedAllocator, which reads both names",
    ),
    Defeat(
        "tensorflow",
        "TF_GPU_ALLOCATOR",
        (("`cuda_malloc`, `cuda_malloc_async`", _UNLIMITED),),
        lambda value: _UNLIMITED if _word(value) in ("cuda_malloc", "cuda_malloc_async") else "",
        "seen in the wheels 2.15.1 to 2.21.0",
    ),
    Defeat(
        "jax",
        "XLA_PYTHON_CLIENT_ALLOCATOR",
        (("all but nothing, `bfc`, `default`", _OTHER_ALLOCATOR),),
        lambda value: "" if _word(value) in _KEEPS_CAP else _OTHER_ALLOCATOR,
        _JAX,
    ),
    Defeat(
        "jax",
        "JAX_PJRT_CLIENT_CREATE_OPTIONS",
        (
            ("`allocator:` with all but `bfc`, `default`", _OTHER_ALLOCATOR),
            ("`memory_fraction:`", _OTHER_FRACTION),
        ),
        _create_options,
        "jax jax/_src/xla_bridge.py; xla xla/pjrt/c/pjrt_c_api_gpu_internal.cc",
    ),
    Defeat(
        "jax",
        "TF_FORCE_UNIFIED_MEMORY",
        (("all but nothing, `0`, `false`", _MANAGED),),
        lambda value: "" if _word(value) in ("", "0", "false") else _MANAGED,
        "xla xla/pjrt/gpu/gpu_helpers.cc",
    ),
    Defeat(
        "jax",
        "XLA_FLAGS",
        (
            (f"`--{_TEMPORARY_FLAG}`, unless it is `=0` or `=false`", _TEMPORARY_BUFFERS),
            ("all that begin with no hyphen", _FLAGS_FILE),
        ),
        _xla_flags,
        "xla xla/pjrt/gpu/se_gpu_pjrt_client.cc, xla/parse_flags_from_env.cc",
    ),
    Defeat(
        "jax",
        "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB",
        (("all but nothing, `0`", _COLLECTIVE),),
        lambda value: _COLLECTIVE if value.strip().strip("0") else "",
        _JAX,
    ),
    Defeat(
        "jax",
        "PJRT_NAMES_AND_LIBRARY_PATHS",
        (("all but nothing", _PLUGIN),),
        lambda value: _PLUGIN if value else "",
        "jax jax/_src/xla_bridge.py register_pjrt_plugin_factories_from_env",
    ),
    _paddle_flag("FLAGS_use_virtual_memory_auto_growth", _VIRTUAL, _PADDLE),
    _paddle_flag("FLAGS_use_multi_scale_virtual_memory_auto_growth", _VIRTUAL, _PADDLE),
    _paddle_flag("FLAGS_use_vmm_auto_growth_best_fit_allocator_v2", _VIRTUAL, "Paddle test/legacy_test"),
)
"""All that take a cap away. A value that no file here knows before the pod runs may do so too."""

DEFEATING_BACKEND = "cudaMallocAsync"
"""The value of PyTorch's setting `backend` under which the fraction is accepted and not kept (2.10 to 2.15)."""

HIDING = (CUDA_ALLOC, HIP_ALLOC, *(defeat.name for defeat in DEFEATS))
"""Names that take a cap away when they come from where nobody looks."""

SETTING_SINCE: Mapping[str, tuple[int, int]] = {
    FRACTION_KEY: (2, 10),
    "pinned_reserve_segment_size_mb": (2, 10),
    "large_segment_size_mb": (2, 11),
    "throw_on_cudamalloc_oom": (2, 12),
    "pinned_free_catch_all": (2, 12),
    "pinned_max_round_threshold_mb": (2, 13),
    "pinned_max_cached_size_mb": (2, 13),
    "expandable_segments_reserve": (2, 15),
    "expandable_segments_reserve_by_class": (2, 15),
}
"""PyTorch's allocator settings that no release before 2.10 takes, and the first that does."""

CAPPED_SINCE = (2, 10)
"""The first PyTorch that takes a cap from its environment."""

OLDER_SETTINGS: Mapping[str, tuple[int, int]] = {"max_split_size_mb": (1, 10), "expandable_segments": (2, 1)}
"""Settings that a policy may choose for a PyTorch without a cap, and the first that takes each. Fragmentation only."""


class Program(NamedTuple):
    """A program that has no variable to cap it.

    It is started by one of `commands` (with `verb` as the next word, where there is one), as a module that begins
    with `module`, or by images named `image`. `flag` is the argument that takes a fraction of the card;
    without one there is `advice`.
    """

    name: str
    commands: frozenset[str]
    flag: str = ""
    verb: str = ""
    module: str = ""
    image: str = ""
    advice: str = ""
    source: str = ""


PROGRAMS = (
    Program(
        "vLLM",
        frozenset({"vllm"}),
        "--gpu-memory-utilization",
        verb="serve",
        module="vllm.entrypoints",
        image="vllm-openai",
        source="vllm vllm/config/cache.py, vllm/envs.py",
    ),
    Program(
        "SGLang",
        frozenset({"sglang"}),
        "--mem-fraction-static",
        verb="serve",
        module="sglang.launch_server",
        image="sglang",
        source="sglang python/sglang/srt/server_args.py",
    ),
    Program(
        "Triton",
        frozenset({"tritonserver"}),
        image="tritonserver",
        advice="limit each backend in its model's configuration; its PyTorch backend keeps torch's cap",
        source="triton-inference-server/server src/command_line_parser.cc",
    ),
    Program(
        "Ollama",
        frozenset({"ollama"}),
        verb="serve",
        image="ollama",
        advice="choose a model and OLLAMA_CONTEXT_LENGTH that fit; OLLAMA_GPU_OVERHEAD only plans",
        source="ollama envconfig/config.go, llm/llama_server.go",
    ),
    Program(
        "llama.cpp",
        frozenset({"llama-server"}),
        advice="choose --n-gpu-layers and --ctx-size that fit; LLAMA_ARG_FIT_TARGET only plans",
        source="llama.cpp tools/fit-params/README.md",
    ),
)

ELSEWHERE = (
    ("RAPIDS RMM, cuDF", "`maximum_pool_size` of the memory resource", "rmm, every getenv in it"),
    ("Dask-CUDA", "`--rmm-maximum-pool-size`; `--device-memory-limit` only spills", "dask-cuda documentation"),
    ("ONNX Runtime", "the provider option `gpu_mem_limit`, for its arena", "onnxruntime documentation"),
    ("TensorRT", "`setMemoryPoolLimit`, for the builder's workspace", "TensorRT documentation"),
    ("XGBoost, LightGBM", "nothing", "no such name in the wheels"),
    ("Transformers, Accelerate", "PyTorch's variables; `device_map` plans with the whole card", "their code"),
    ("Ray", "nothing: a fractional `num_gpus` is bookkeeping", "docs.ray.io, resources"),
)
"""What else is met on GPUs, and where its limit is set: name, place, source."""

_FRACTION = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)


def fraction(text: str) -> float | None:
    """Read a number of at least 0 where every framework's parser reads the same; None for other text.

    Python's `float` takes underscores and other scripts' digits; C++'s `stod` stops at them.
    """
    return float(text) if len(text) <= 40 and _FRACTION.fullmatch(text) else None


_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?:\.[0-9]{1,3})?(a|b|rc|\.?dev)?[0-9A-Za-z.+-]*", re.ASCII)


def version(text: str) -> tuple[int, int] | None:
    """Read the release of a PyTorch version; None for other text. A pre-release counts as the release before it.

    Snapshots of 2.10 and 2.11 before their release may not know their settings.
    """
    match = _VERSION.fullmatch(text) if len(text) <= 40 else None
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2])
    return (major, minor - 1) if match[3] and minor else (major, minor)
