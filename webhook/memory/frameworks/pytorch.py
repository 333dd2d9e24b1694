"""PyTorch: a list of allocator settings in one of three variables; the fraction in it is a cap from 2.10 on."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from webhook.memory.budget import Budget, InvalidAnnotation, quoted
from webhook.memory.steps import (
    EMPTY,
    SLICE,
    WRITES,
    Cap,
    Environment,
    Step,
    StepKind,
    Torch,
    Words,
    fraction,
    not_known,
    unknown,
)
from webhook.memory.tables import Defeat, ExtraTable, Form, Variable, VariableEffect
from webhook.text.words import shown

TITLE = "PyTorch"
ORDER = 1
FRACTIONS_ONLY = True
CAPPED, SHIMMED = "pytorch 2.10 and newer", "pytorch before 2.10"

ALLOC, CUDA_ALLOC, HIP_ALLOC = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"
"""The variables. Every release accepts the first; the second overrides the others; the third overrides the first."""

FRACTION_KEY = "per_process_memory_fraction"
"""The setting that is a cap."""

VARIABLES = (
    Variable(
        ALLOC,
        Form.SETTINGS,
        VariableEffect.HARD,
        since="torch 2.10.0; not read for device memory before",
        bad="a malformed list aborts `import torch`, an unknown key fails at the first use of CUDA",
        merge="set where no torch variable is; else completed, the other settings kept as they are; "
        "of two fractions the smaller one stands",
        source="pytorch c10/cuda/CUDAAllocatorConfig.h; pytorch#161035, pytorch#183387, pytorch#186453",
    ),
    Variable(
        CUDA_ALLOC,
        Form.SETTINGS,
        VariableEffect.HARD,
        since="1.10 or before, the fraction 2.10.0; from there on it hides PYTORCH_ALLOC_CONF, even empty",
        bad="torch before 2.10 fails at the first use of CUDA on the fraction, which it does not know; else as above",
        merge="completed, or set with what PYTORCH_ALLOC_CONF says, where torch is known to be 2.10 or newer; "
        "left unchanged elsewhere, with a warning",
        source="pytorch c10/cuda/CUDAAllocatorConfig.h; pytorch#166802",
        written=False,
    ),
    Variable(
        HIP_ALLOC,
        Form.SETTINGS,
        VariableEffect.NONE,
        since="torch 2.9 or before; read on CUDA from 2.10.0 on where PYTORCH_CUDA_ALLOC_CONF is not set, "
        "but not for the fraction",
        bad="an unknown key fails at the first use of CUDA",
        merge="left unchanged, with a warning; where torch is known to be 2.10 or newer PYTORCH_CUDA_ALLOC_CONF is "
        "written with its settings and a fraction",
        source="pytorch c10/cuda/CUDAAllocatorConfig.h",
        written=False,
    ),
)

HIDING = (CUDA_ALLOC, HIP_ALLOC)

_UNCACHED = "switches off the allocator that keeps the cap"
_FORCED = "pytorch c10/cuda/CUDACachingAllocator.cpp forceUncachedAllocator"

DEFEATS = (
    Defeat("PYTORCH_NO_CUDA_MEMORY_CACHING", (("any", _UNCACHED),), lambda _: _UNCACHED, _FORCED),
    Defeat(
        "PYTORCH_NO_HIP_MEMORY_CACHING",
        (("any", _UNCACHED),),
        lambda _: _UNCACHED,
        f"{_FORCED}, which reads both names",
    ),
)

DEFEATING_BACKEND = "cudaMallocAsync"
"""The value of `backend` with which torch accepts the fraction but ignores it (2.10 to 2.15)."""

CAPPED_SINCE = (2, 10)
"""The first release that takes a cap from its environment."""

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
"""The settings that only 2.10 and later accept, with the first release that accepts each."""

OLDER_SETTINGS: Mapping[str, tuple[int, int]] = {"max_split_size_mb": (1, 10), "expandable_segments": (2, 1)}
"""The settings that a policy may choose for a release without a cap, with the first release that accepts each."""


def _dotted(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"


def _settings(since: Mapping[str, tuple[int, int]]) -> tuple[tuple[str, ...], ...]:
    return tuple((f"`{key}`", _dotted(release)) for key, release in since.items())


SECTIONS = (
    ExtraTable(
        "A setting that takes PyTorch's cap away",
        "Slicewarden warns of it in each of PyTorch's variables, or refuses it with `memory.defeats: Deny`.",
        ("setting", "what it does", "source"),
        (
            (
                f"`backend:{DEFEATING_BACKEND}`",
                "takes the fraction and does not keep it",
                "seen in the wheels 2.10 to 2.15",
            ),
        ),
    ),
    ExtraTable(
        "Settings that prove their PyTorch",
        f"No release before {_dotted(CAPPED_SINCE)} takes these in `{CUDA_ALLOC}`; the cap joins them there.",
        ("setting", "since torch"),
        _settings(SETTING_SINCE),
    ),
    ExtraTable(
        "Settings for an older PyTorch",
        f"Effect: {VariableEffect.FRAGMENTATION}. Written into `{CUDA_ALLOC}` where the policy chooses them\n"
        f"(`memory.torch.older`) and torch is known to be older than {_dotted(CAPPED_SINCE)}.",
        ("setting", "since torch"),
        _settings(OLDER_SETTINGS),
    ),
)


# Which PyTorch a pod runs

TORCH_VERSION = "slicewarden.dev/torch-version"
"""The pod annotation that names the PyTorch of its containers."""

_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?:\.[0-9]{1,3})?(a|b|rc|\.?dev)?[0-9A-Za-z.+-]*", re.ASCII)


def version(text: str) -> Torch:
    """Read the release of a PyTorch version; None for other text. A pre-release counts as the release before it.

    Snapshots of 2.10 and 2.11 before their release may not know their settings.
    """
    match = _VERSION.fullmatch(text) if len(text) <= 40 else None
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2])
    return (major, minor - 1) if match[3] and minor else (major, minor)


def release(annotations: Mapping[str, object], stated: Torch, *, strict: bool) -> tuple[Torch, bool]:
    """Return the release that a pod runs, and whether it is in doubt. Raises Refused.

    The pod's annotation takes precedence over the release that the policy `stated`. Under a `strict` policy, which
    refuses settings that take a cap away, an older release that only the pod names is in doubt.
    """
    named = annotations.get(TORCH_VERSION)
    if named is None:
        return stated, False
    torch = version(named) if isinstance(named, str) else None
    if torch is None:
        raise InvalidAnnotation(TORCH_VERSION, f"{shown(named)} is no version such as {quoted(named, '2.11')}")
    return torch, strict and (stated is None or stated >= CAPPED_SINCE)


def uncapped(cap: Cap) -> Iterator[str]:
    """Yield the releases of PyTorch that no cap limits, unless the pod is known not to run them."""
    if not cap.shim and not cap.budget.unified and (cap.torch is None or cap.torch < CAPPED_SINCE):
        yield SHIMMED


# Merging

TAKES_NONE = Words(
    "PyTorch {release} cannot be capped by its environment; use 2.10 or newer", "pytorch: {release} takes no cap"
)
HIDES = Words(f"{{name}} makes torch ignore {ALLOC}, so there is no cap; {{way}}", "pytorch: {name} hides the cap")
EMPTY_HIDES = Words(f"{{name}} is empty and makes torch ignore {ALLOC}, so there is no cap; remove it, or {{way}}")
NO_LIST = Words("{name} is {old}, which torch refuses: it is not a list of key:value; correct it, or remove it")
LACKS = Words("{name} lacks {settings}")
NO_CAP = Words(f"{{name}} sets no {FRACTION_KEY}; add it with {SLICE} or less")
OTHER_FRACTION = Words(f"{FRACTION_KEY} is {{old}}; use {SLICE} or less")
BACKEND = Words(
    "backend:{backend} takes the cap away: torch does not keep the fraction with it; remove it",
    "pytorch: backend:{backend} keeps no cap",
)

_ANNOTATE = f"set the annotation {TORCH_VERSION}"
_ASK = "ask an administrator to add your torch to memory.torch.versions in the policy"


def merge(env: Environment, cap: Cap) -> Iterator[Step]:
    """Write the cap into the variable that the pod's PyTorch reads, and keep a smaller fraction there."""
    torch, way = cap.torch, _ANNOTATE
    if torch is not None and torch < CAPPED_SINCE:
        yield Step(StepKind.UNSURE, ALLOC, TAKES_NONE, details=(("release", _dotted(torch)),))
        if not cap.doubted:
            yield from _older(env, cap.policy.older_settings, torch)
            yield from _alloc(env, cap.budget, hidden=True)
            return
        torch, way = None, _ASK  # the claimed release would excuse it
    known = torch is not None
    if CUDA_ALLOC in env:
        yield from _cuda_alloc(env, cap.budget, way, known=known)
        if known:
            yield from _alloc(env, cap.budget, hidden=True)
    elif HIP_ALLOC in env and not known:
        yield Step(StepKind.DEFEAT, HIP_ALLOC, HIDES, details=(("way", "remove it"),))
    else:
        yield from _alloc(env, cap.budget, hidden=HIP_ALLOC in env)
        if known:
            yield from _new_cuda_alloc(env, cap.budget)


def _alloc(env: Environment, budget: Budget, *, hidden: bool) -> Iterator[Step]:
    """Merge the variable that every release accepts. If another variable overrides it, its faults do not matter."""
    if ALLOC not in env:
        yield Step(StepKind.ADD, ALLOC, value=_cap(budget))
        return
    value = env[ALLOC]
    if value is None or unknown(value):
        if not hidden:
            yield not_known("pytorch", ALLOC)
        return
    steps = _completed(ALLOC, value, budget)
    yield from (step for step in steps if step.kind in WRITES) if hidden else steps


def _cuda_alloc(env: Environment, budget: Budget, way: str, *, known: bool) -> Iterator[Step]:
    """Merge the variable that overrides the others, if its author wrote it."""
    value = env[CUDA_ALLOC]
    if value is None or unknown(value):
        yield not_known("pytorch", CUDA_ALLOC)
        return
    settings = parse(value)
    if settings is None:
        yield Step(StepKind.REFUSE, CUDA_ALLOC, NO_LIST, old=value)
    elif known and not settings:
        yield Step(StepKind.SET, CUDA_ALLOC, EMPTY, _cap(budget))
    elif known or any(setting.key in SETTING_SINCE for setting in settings):
        yield from _completed(CUDA_ALLOC, value, budget)
    elif not settings:
        yield Step(StepKind.REFUSE, CUDA_ALLOC, EMPTY_HIDES, details=(("way", way),))
    else:
        way = f"with torch 2.10 or newer add {_cap(budget)} to it, or {way}"
        yield Step(StepKind.DEFEAT, CUDA_ALLOC, HIDES, details=(("way", way),))


def _new_cuda_alloc(env: Environment, budget: Budget) -> Iterator[Step]:
    """Add the variable that overrides the others, with the settings of the one that torch would have read."""
    name = HIP_ALLOC if HIP_ALLOC in env else ALLOC
    base = env.get(name, "")
    if base is None or unknown(base):
        if name == HIP_ALLOC:  # `_alloc` reports the other
            yield not_known("pytorch", name)
        return
    steps = tuple(_completed(name, base, budget))
    if any(step.kind is StepKind.REFUSE for step in steps):
        yield from steps if name == HIP_ALLOC else ()
        return
    if name == HIP_ALLOC:
        yield from (step for step in steps if step.kind is StepKind.DEFEAT)
    yield Step(StepKind.ADD, CUDA_ALLOC, value=next((step.value for step in steps if step.kind in WRITES), base))


def _older(env: Environment, chosen: Mapping[str, str], torch: tuple[int, int]) -> Iterator[Step]:
    """Give a release without a cap those settings of the policy that it accepts."""
    value = env.get(CUDA_ALLOC, "")
    settings = None if value is None or unknown(value) else parse(value)
    if settings is None or value is None:
        return
    own = {setting.key for setting in settings}
    more = [f"{key}:{text}" for key, text in chosen.items() if key not in own and torch >= OLDER_SETTINGS[key]]
    if more:
        kind = StepKind.SET if CUDA_ALLOC in env else StepKind.ADD
        details = (("settings", ", ".join(more)),)
        yield Step(kind, CUDA_ALLOC, LACKS, _joined(value, ",".join(more)), details=details)


def _completed(name: str, value: str, budget: Budget) -> Iterator[Step]:
    """Add the cap to a list of settings, or lower the fraction in it."""
    settings = parse(value)
    if settings is None:
        yield Step(StepKind.REFUSE, name, NO_LIST, old=value)
        return
    last = next((setting for setting in reversed(settings) if setting.key == FRACTION_KEY), None)
    if last is None:
        yield Step(StepKind.SET, name, NO_CAP, _joined(value, _cap(budget)))
    elif not (number := fraction(last.value)):
        yield Step(StepKind.REFUSE, name, OTHER_FRACTION, old=last.value)
    elif number > budget.permille / 1000:
        kept = [setting for setting in settings if setting.key != FRACTION_KEY or setting is last]
        whole = ",".join(_cap(budget) if setting is last else setting.text for setting in kept)
        yield Step(StepKind.LOWER, name, OTHER_FRACTION, whole, last.value)
    backend = next((setting.value for setting in reversed(settings) if setting.key == "backend"), "")
    if backend == DEFEATING_BACKEND:
        yield Step(StepKind.DEFEAT, name, BACKEND, details=(("backend", backend),))


def _joined(settings: str, more: str) -> str:
    return ",".join(filter(None, (settings.rstrip(", "), more)))


def _cap(budget: Budget) -> str:
    return f"{FRACTION_KEY}:{budget.fraction}"


# The list of settings


class Setting(NamedTuple):
    """One of PyTorch's allocator settings, with its text as it was written."""

    key: str
    value: str
    text: str


_WORD = r"[!#$%&*+./0-9<>?@A-Z^_a-z|~-]+"
_PAIR = rf"{_WORD} *(?:: *{_WORD} *)?"
_SETTING = re.compile(rf" *([A-Za-z0-9_]+) *: *({_WORD}|\[ *{_PAIR}(?:, *{_PAIR})*\]) *(?:,|\Z)")

MAX_SETTINGS = 4096
"""The longest list of settings that is read, in characters. No honest list is longer."""


def parse(text: str) -> tuple[Setting, ...] | None:
    """Split PyTorch's allocator settings; None for a text that torch would not take (c10/core/AllocatorConfig.h).

    Spaces around words and commas at the end are accepted, as by torch; an empty string has no settings.
    """
    if len(text) > MAX_SETTINGS:
        return None
    text = text.rstrip(", ")
    settings, start = [], 0
    while start < len(text):
        match = _SETTING.match(text, start)
        if match is None:
            return None
        settings.append(Setting(match[1], match[2], text[match.start() : match.end()].removesuffix(",")))
        start = match.end()
    return tuple(settings)
