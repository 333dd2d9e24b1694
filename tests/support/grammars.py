"""Reads the frameworks' variables a second time, independently of the product, from what runs of them showed.

Each function takes an environment and returns the limit that its framework applies, as a fraction of the card or in
bytes, None for no limit. It raises Fails if the framework would not run.
"""

import re
from collections.abc import Iterator, Mapping

Env = Mapping[str, str | None]
Version = tuple[int, int]


class Fails(Exception):
    """The process would end, with an error or by a signal."""


# The first release that takes each setting, and the last one where it was taken away again.
TORCH_KEYS: dict[str, tuple[Version, Version | None]] = {
    "max_split_size_mb": ((1, 10), None),
    "garbage_collection_threshold": ((1, 12), None),
    "roundup_power2_divisions": ((1, 12), None),
    "roundup_bypass_threshold_mb": ((1, 13), (1, 13)),
    "backend": ((2, 0), None),
    "expandable_segments": ((2, 1), None),
    "pinned_num_register_threads": ((2, 2), None),
    "graph_capture_record_stream_reuse": ((2, 9), None),
    "per_process_memory_fraction": ((2, 10), None),
    "large_segment_size_mb": ((2, 11), None),
    "throw_on_cudamalloc_oom": ((2, 12), None),
}


def tokens(text: str) -> Iterator[str]:
    word = ""
    for character in text:
        if character in ",:[]":
            if word:
                yield word
            yield character
            word = ""
        elif character != " ":
            word += character
    if word:
        yield word


def torch_list(text: str) -> list[tuple[str, list[str]]]:
    """Return each key with the words of its value. Raises Fails for a list that the allocator cannot parse."""
    found = []
    rest = list(tokens(text))
    while rest:
        key = rest.pop(0)
        if key in ",:[]" or not rest or rest.pop(0) != ":" or not rest:
            raise Fails(text)
        first = rest.pop(0)
        value = [first]
        if first == "[":
            while rest and rest[0] != "]":
                value.append(rest.pop(0))
            if not rest:
                raise Fails(text)
            value.append(rest.pop(0))
        elif first in ",:]":
            raise Fails(text)
        found.append((key, value))
        if rest and rest.pop(0) != ",":
            raise Fails(text)
    return found


def torch(version: Version, env: Env) -> float | None:
    """Return the limit of PyTorch's allocator on CUDA."""
    names = ["PYTORCH_CUDA_ALLOC_CONF"]
    if version >= (2, 10):
        names += ["PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]
    name = next((name for name in names if name in env), None)
    if name is None:
        return None
    limit, backend = None, "native"
    for key, value in torch_list(env[name] or ""):
        since, until = TORCH_KEYS.get(key, ((99, 0), None))
        if version < since or (until is not None and version > until):
            raise Fails(f"unrecognized key {key}")
        if key == "per_process_memory_fraction":
            number = re.match(r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+\.", value[0])
            if number is None or not 0 <= float(number[0]) <= 1:
                raise Fails(value[0])
            limit = float(number[0])
        elif key == "expandable_segments" and value[0] not in ("True", "False"):
            raise Fails(value[0])
        elif key == "backend":
            backend = value[0]
        elif key == "max_split_size_mb" and not (value[0].isdigit() and int(value[0]) > 20):
            raise Fails(value[0])
    if backend == "cudaMallocAsync" or "PYTORCH_NO_CUDA_MEMORY_CACHING" in env or name == "PYTORCH_HIP_ALLOC_CONF":
        return None
    return limit


def jax(env: Env) -> float | None:
    """Return the limit of JAX's BFC pool."""
    old, new = env.get("XLA_PYTHON_CLIENT_MEM_FRACTION"), env.get("XLA_CLIENT_MEM_FRACTION")
    if old and new:
        raise Fails("both names")
    text = old or new
    try:
        number = float(text) if text else 0.75
    except ValueError:
        raise Fails(text) from None
    allocator = (env.get("XLA_PYTHON_CLIENT_ALLOCATOR") or "default").lower()
    for pair in filter(None, (env.get("JAX_PJRT_CLIENT_CREATE_OPTIONS") or "").split(";")):
        if pair.count(":") != 1 or pair.startswith("memory_fraction:"):  # the plugin wants a number there, not text
            raise Fails(pair)
        key, chosen = pair.split(":")
        allocator = chosen if key == "allocator" else allocator
    flags = env.get("XLA_FLAGS") or ""
    separate = ("--xla_gpu_temp_buffer_use_separate_color", "--xla_gpu_temp_buffer_use_separate_color=true")
    unified = (env.get("TF_FORCE_UNIFIED_MEMORY") or "0").lower() not in ("0", "false")
    if number < 0 or unified or allocator not in ("default", "bfc") or any(f in separate for f in flags.split()):
        return None
    return number


def cupy(env: Env, card: int) -> int | None:
    """Return the limit of CuPy's pool in bytes, on a card with this many bytes."""
    text = env.get("CUPY_GPU_MEMORY_LIMIT")
    if text is None:
        return None
    try:
        limit = int(card * float(text[:-1]) / 100) if text.endswith("%") else int(text)
    except (ValueError, OverflowError):
        raise Fails(text) from None
    if limit < 0 or (limit > card and text.endswith("%")):
        raise Fails(text)
    return limit or None


VIRTUAL_MEMORY = (
    "FLAGS_use_virtual_memory_auto_growth",
    "FLAGS_use_multi_scale_virtual_memory_auto_growth",
    "FLAGS_use_vmm_auto_growth_best_fit_allocator_v2",
)


def paddle(env: Env) -> int | None:
    """Return PaddlePaddle's limit in MiB. A text that cannot be read is no limit.

    Virtual memory is not compared with it.
    """
    if any((env.get(name) or "").lower() in ("true", "1", "yes", "y", "t") for name in VIRTUAL_MEMORY):
        return None
    text = env.get("FLAGS_gpu_memory_limit_mb") or ""
    return (int(text) or None) if text.isascii() and text.isdigit() else None


def tensorflow_grows(env: Env) -> bool:
    """Return whether TensorFlow takes memory only when it needs it."""
    return env.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true"


def xla_flags(text: str) -> list[str]:
    """Return the words that XLA reads from XLA_FLAGS, one character after the other."""
    left, words = list(text), list[str]()
    while True:
        while left and left[0] in " \t\r\n":
            left.pop(0)
        if not left or left[0] != "-":
            return words
        word = ""
        while left and left[0].isascii() and (left[0].isalnum() or left[0] in "-_"):
            word += left.pop(0)
        quote = left[1] if left[:1] == ["="] and len(left) > 1 and left[1] in ("'", '"') else ""
        if quote:
            word += left.pop(0)
            left.pop(0)
            while left and left[0] != quote:
                if quote == '"' and left[0] == "\\" and len(left) > 1:
                    left.pop(0)
                word += left.pop(0)
            del left[:1]
        else:
            while left and left[0] not in " \t\r\n":
                word += left.pop(0)
        words.append(word)
