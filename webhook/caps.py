"""Merges a cap with the environment that a container's author wrote: values in, steps out.

Nothing here knows of pods. An environment is a map from name to value, None where the value is not known before the pod
runs. `merge` says what is to be done, `applied` does it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from webhook.budget import Budget, spelt, variables
from webhook.frameworks import (
    ALLOC,
    CAPPED_SINCE,
    CUDA_ALLOC,
    CUPY_LIMIT,
    DEFEATING_BACKEND,
    DEFEATS,
    FRACTION_KEY,
    HIDING,
    HIP_ALLOC,
    OLDER_SETTINGS,
    PADDLE_LIMIT,
    SETTING_SINCE,
    TABLE,
    TGI_FRACTION,
    XLA_NEW,
    XLA_OLD,
    Effect,
    Form,
    Variable,
    fraction,
)
from webhook.model import shown
from webhook.policy import Policy

Environment = Mapping[str, str | None]
Torch = tuple[int, int] | None
"""A release of PyTorch, None where nothing is known of it."""


class Kind(StrEnum):
    """What a step is: the first three write a value, the others only say something."""

    ADD = "a variable that is missing"
    SET = "a value without a cap is completed, the rest of it kept"
    LOWER = "a value that allows more is exchanged"
    REFUSE = "a value that its framework would not take, or that is no cap and cannot be made one"
    DEFEAT = "something that takes the cap away"
    UNSURE = "something that may be without a cap"


class Step(NamedTuple):
    """What is to be done about one variable.

    `message` says what was found and the way out, `short` the same for a record, `value` is what is written,
    `old` what stood there.
    """

    kind: Kind
    name: str
    message: str = ""
    short: str = ""
    value: str = ""
    old: str = ""


WRITES = frozenset({Kind.ADD, Kind.SET, Kind.LOWER})

KNOWN = frozenset({*(variable.name for variable in TABLE if variable.written), *HIDING})
"""Every name that is looked at."""


def merge(
    env: Environment, cap: Budget, policy: Policy, torch: Torch = None, *, tgi: bool = False, doubted: bool = False
) -> tuple[Step, ...]:
    """Return the steps that bring a container's environment under a cap.

    The stricter of the tenant's limit and ours stands, and what else the tenant wrote is kept. Applying the steps
    and merging again yields none that write. A torch before 2.10 that is `doubted` excuses nothing.
    """
    if not tgi:  # most containers say nothing, and what was added to them is what they say the next time
        steps, after, notes = _nothing_set(policy, cap, torch, doubted)
        if not env:
            return steps
        if env == after:
            return notes
    return tuple(_merge(env, cap, policy, torch, tgi=tgi, doubted=doubted))


@lru_cache(maxsize=64)
def _nothing_set(
    policy: Policy, cap: Budget, torch: Torch, doubted: bool
) -> tuple[tuple[Step, ...], Environment, tuple[Step, ...]]:
    """The steps for a container that says nothing, what they make of it, and those that write nothing."""
    steps = tuple(_merge({}, cap, policy, torch, tgi=False, doubted=doubted))
    return steps, applied({}, steps), tuple(step for step in steps if step.kind not in WRITES)


def applied(env: Environment, steps: Iterable[Step]) -> dict[str, str | None]:
    """Return the environment as the steps leave it: what they add comes last."""
    return {**env, **{step.name: step.value for step in steps if step.kind in WRITES}}


def _merge(env: Environment, cap: Budget, policy: Policy, torch: Torch, *, tgi: bool, doubted: bool) -> Iterator[Step]:
    seen = set()
    for variable, ours in variables(policy, cap):
        framework = variable.framework
        if framework not in seen:
            seen.add(framework)
            if framework == "pytorch" and not cap.unified:
                yield from _pytorch(env, cap, policy, torch, doubted=doubted)
            elif framework == "jax" and not cap.unified:
                yield from _jax(env, cap)
        if variable.name not in _TOGETHER:
            yield from _single(env, variable, ours, cap)
    if tgi and "tgi" in policy.frameworks and not cap.unified:
        yield from _single(env, _TGI, cap.fraction, cap)
    yield from _defeats(env, policy)


_TOGETHER = frozenset({ALLOC, CUDA_ALLOC, HIP_ALLOC, XLA_OLD, XLA_NEW})
_TGI = next(variable for variable in TABLE if variable.name == TGI_FRACTION)


def unknown(value: str | None) -> bool:
    """Tell whether a value is not known before the pod runs: from elsewhere, or with a reference to another."""
    return value is None or "$(" in value


# One variable on its own


def _single(env: Environment, variable: Variable, ours: str, cap: Budget) -> Iterator[Step]:
    """Merge a variable that no other one hides."""
    name = variable.name
    if name not in env:
        yield Step(Kind.ADD, name, value=ours)
        return
    if variable.form is Form.TEXT and variable.framework != "tensorflow":
        return  # a default of ours, and the author's affair
    value = env[name]
    if value is None or unknown(value):
        step = _not_known(name, variable.framework)
        yield step if variable.effect is Effect.HARD else step._replace(kind=Kind.UNSURE)
    elif variable.form is Form.TEXT:
        if value != ours:
            message = (
                f"{name} is {shown(value)}, and only {ours} keeps TensorFlow from taking the whole card at its start"
            )
            yield _lowered(name, ours, value, message)
    elif variable.form is Form.FRACTION:
        yield from _fraction(name, value, cap)
    elif name == CUPY_LIMIT:
        yield from _percent(name, value, cap)
    elif name == PADDLE_LIMIT and not (_natural(value) and 0 < int(value) <= cap.mib):
        yield _lowered(name, ours, value, f"{name} is {shown(value)}, and the slice is {cap.mib} MiB")


def _fraction(name: str, value: str, cap: Budget) -> Iterator[Step]:
    number = fraction(value)
    if not value.strip():
        yield Step(Kind.SET, name, f"{name} is empty; {_slice(cap)}", value=cap.fraction)
    elif not number:
        yield Step(Kind.REFUSE, name, f"{name} is {shown(value)}, and {_slice(cap)}; use that or less, or remove it")
    elif number > cap.permille / 1000:
        yield _lowered(name, cap.fraction, value, f"{name} is {shown(value)}, and {_slice(cap)}; use that or less")


def _percent(name: str, value: str, cap: Budget) -> Iterator[Step]:
    """Merge CuPy's limit: a percentage with `%`, or bytes. 0 is no limit."""
    number = fraction(value[:-1]) if value.endswith("%") else None
    if number is not None:
        if cap.unified or not 0 < number <= cap.permille / 10:
            ours = cap.bytes if cap.unified else cap.percent
            yield _lowered(name, ours, value, f"{name} is {shown(value)}, and {_slice(cap)}; use {ours} or less")
    elif _natural(value):
        if not 0 < int(value) <= int(cap.bytes):
            yield _lowered(name, cap.bytes, value, f"{name} is {shown(value)}, and the slice is {cap.bytes} bytes")
    elif not value:
        yield Step(Kind.SET, name, f"{name} is empty; {_slice(cap)}", value=spelt(_CUPY, cap) or "")
    else:
        yield Step(
            Kind.REFUSE, name, f"{name} is {shown(value)}, neither bytes nor a percentage; use {cap.percent} or less"
        )


_CUPY = next(variable for variable in TABLE if variable.name == CUPY_LIMIT)


def _natural(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def _slice(cap: Budget) -> str:
    return f"the slice is {cap.fraction} of the card"


def _lowered(name: str, ours: str, old: str, message: str) -> Step:
    return Step(Kind.LOWER, name, message, value=ours, old=old)


def _not_known(name: str, framework: str) -> Step:
    return Step(
        Kind.DEFEAT,
        name,
        f"{name} is not known before the pod runs, so no cap is sure; write its value into the pod, or remove it",
        f"{framework}: {name} is not known",
    )


# PyTorch: one of three variables is read


def _pytorch(env: Environment, cap: Budget, policy: Policy, torch: Torch, *, doubted: bool) -> Iterator[Step]:
    way = f"name your torch in {TORCH_VERSION}"
    if torch is not None and torch < CAPPED_SINCE:
        yield _takes_none(torch)
        if not doubted:
            yield from _older(env, policy, torch)
            yield from _alloc(env, cap, hidden=True)
            return
        torch = None  # a word that would excuse the pod which gives it
        way = "have an administrator name your torch in the policy's memory.torch.versions"
    known = torch is not None
    if CUDA_ALLOC in env:
        yield from _cuda_alloc(env, cap, way, known=known)
        if known:
            yield from _alloc(env, cap, hidden=True)
    elif HIP_ALLOC in env and not known:
        yield _hides(HIP_ALLOC, "remove it")
    else:
        yield from _alloc(env, cap, hidden=HIP_ALLOC in env)
        if known:
            yield from _new_cuda_alloc(env, cap)


def _alloc(env: Environment, cap: Budget, *, hidden: bool) -> Iterator[Step]:
    """Merge the variable that every PyTorch can stand. What is wrong with it is no matter where another is read."""
    if ALLOC not in env:
        yield Step(Kind.ADD, ALLOC, value=_cap_setting(cap))
        return
    value = env[ALLOC]
    if value is None or unknown(value):
        if not hidden:
            yield _not_known(ALLOC, "pytorch")
        return
    steps = _completed(ALLOC, value, cap)
    yield from (step for step in steps if step.kind in WRITES) if hidden else steps


def _cuda_alloc(env: Environment, cap: Budget, way: str, *, known: bool) -> Iterator[Step]:
    """Merge the variable that hides the others, where its author wrote it."""
    value = env[CUDA_ALLOC]
    if value is None or unknown(value):
        yield _not_known(CUDA_ALLOC, "pytorch")
        return
    settings = parse(value)
    if settings is None:
        yield _no_settings(CUDA_ALLOC, value)
    elif known and not settings:
        yield Step(Kind.SET, CUDA_ALLOC, f"{CUDA_ALLOC} is empty; {_slice(cap)}", value=_cap_setting(cap))
    elif known or any(setting.key in SETTING_SINCE for setting in settings):
        yield from _completed(CUDA_ALLOC, value, cap)
    elif not settings:
        yield Step(
            Kind.REFUSE,
            CUDA_ALLOC,
            f"{CUDA_ALLOC} is empty and hides {ALLOC} from torch, so there is no cap; remove it, or {way}",
        )
    else:
        yield _hides(CUDA_ALLOC, f"with torch 2.10 or newer add {_cap_setting(cap)} to it, or {way}")


def _new_cuda_alloc(env: Environment, cap: Budget) -> Iterator[Step]:
    """Write the variable that hides the others, with the settings of the one that torch would have read."""
    name = HIP_ALLOC if HIP_ALLOC in env else ALLOC
    base = env.get(name, "")
    if base is None or unknown(base):
        if name == HIP_ALLOC:  # of the other it was said
            yield _not_known(name, "pytorch")
        return
    steps = tuple(_completed(name, base, cap))
    if any(step.kind is Kind.REFUSE for step in steps):
        yield from steps if name == HIP_ALLOC else ()
        return
    if name == HIP_ALLOC:
        yield from (step for step in steps if step.kind is Kind.DEFEAT)
    yield Step(Kind.ADD, CUDA_ALLOC, value=next((step.value for step in steps if step.kind in WRITES), base))


def _takes_none(torch: tuple[int, int]) -> Step:
    release = f"{torch[0]}.{torch[1]}"
    return Step(
        Kind.UNSURE,
        ALLOC,
        f"PyTorch {release} takes no cap from its environment; use 2.10 or newer",
        f"pytorch: {release} takes no cap",
    )


def _older(env: Environment, policy: Policy, torch: tuple[int, int]) -> Iterator[Step]:
    """Give a PyTorch that takes no cap the settings that the policy chose and that it takes."""
    value = env.get(CUDA_ALLOC, "")
    settings = None if value is None or unknown(value) else parse(value)
    if settings is None or value is None:
        return
    own = {setting.key for setting in settings}
    more = [
        f"{key}:{text}"
        for key, text in policy.older_settings.items()
        if key not in own and torch >= OLDER_SETTINGS[key]
    ]
    if more:
        kind = Kind.SET if CUDA_ALLOC in env else Kind.ADD
        yield Step(kind, CUDA_ALLOC, f"{CUDA_ALLOC} lacks {', '.join(more)}", value=_joined(value, ",".join(more)))


def _completed(name: str, value: str, cap: Budget) -> Iterator[Step]:
    """Give a list of settings the cap, or its own fraction the smaller value."""
    settings = parse(value)
    if settings is None:
        yield _no_settings(name, value)
        return
    last = next((setting for setting in reversed(settings) if setting.key == FRACTION_KEY), None)
    if last is None:
        whole = _joined(value, _cap_setting(cap))
        yield Step(Kind.SET, name, f"{name} has no {FRACTION_KEY}; {_slice(cap)}", value=whole)
    elif not (number := fraction(last.value)):
        yield Step(Kind.REFUSE, name, f"{FRACTION_KEY} is {shown(last.value)}, and {_slice(cap)}; use that or less")
    elif number > cap.permille / 1000:
        kept = [setting for setting in settings if setting.key != FRACTION_KEY or setting is last]
        whole = ",".join(_cap_setting(cap) if setting is last else setting.text for setting in kept)
        message = f"{FRACTION_KEY} is {shown(last.value)}, and {_slice(cap)}; use that or less"
        yield Step(Kind.LOWER, name, message, value=whole, old=last.value)
    backend = next((setting.value for setting in reversed(settings) if setting.key == "backend"), "")
    if backend == DEFEATING_BACKEND:
        yield Step(
            Kind.DEFEAT,
            name,
            f"backend:{backend} takes the cap away: torch does not keep the fraction with it; remove it",
            f"pytorch: backend:{backend} keeps no cap",
        )


def _joined(settings: str, more: str) -> str:
    return ",".join(filter(None, (settings.rstrip(", "), more)))


def _cap_setting(cap: Budget) -> str:
    return f"{FRACTION_KEY}:{cap.fraction}"


def _no_settings(name: str, value: str) -> Step:
    message = f"{shown(value)} is no list of key:value, which torch refuses; mend or remove {name}"
    return Step(Kind.REFUSE, name, message)


def _hides(name: str, way: str) -> Step:
    return Step(
        Kind.DEFEAT,
        name,
        f"{name} hides {ALLOC} from torch, so there is no cap; {way}",
        f"pytorch: {name} hides the cap",
    )


TORCH_VERSION = "slicewarden.dev/torch-version"
"""The pod annotation that says which PyTorch its containers run."""


class Setting(NamedTuple):
    """One of PyTorch's allocator settings, with its text as it was written."""

    key: str
    value: str
    text: str


_WORD = r"[!#$%&*+./0-9<>?@A-Z^_a-z|~-]+"
_PAIR = rf"{_WORD} *(?:: *{_WORD} *)?"
_SETTING = re.compile(rf" *([A-Za-z0-9_]+) *: *({_WORD}|\[ *{_PAIR}(?:, *{_PAIR})*\]) *(?:,|\Z)")

MAX_SETTINGS = 4096
"""Characters of a list of settings that are read; a longer one is for nobody."""


def parse(text: str) -> tuple[Setting, ...] | None:
    """Split PyTorch's allocator settings; None for what torch would not take (its c10/core/AllocatorConfig.h).

    Spaces around words and commas at the end are let through, as torch does; the empty text has no settings.
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


# JAX: one of two names is read, and both together stop it


def _jax(env: Environment, cap: Budget) -> Iterator[Step]:
    old, new = env.get(XLA_OLD, ""), env.get(XLA_NEW, "")
    if old != "" and new != "":
        if unknown(old) or unknown(new):
            yield _not_known(XLA_OLD if unknown(old) else XLA_NEW, "jax")
        else:
            yield Step(
                Kind.UNSURE,
                XLA_OLD,
                f"jax does not start with both {XLA_OLD} and {XLA_NEW}; remove one",
                "jax: does not start with both its names set",
            )
        return
    if new != "":
        yield from (_not_known(XLA_NEW, "jax"),) if unknown(new) else _fraction(XLA_NEW, new or "", cap)
        return
    if XLA_OLD not in env:
        yield Step(Kind.ADD, XLA_OLD, value=cap.fraction)
    elif unknown(old):
        yield _not_known(XLA_OLD, "jax")
    else:
        yield from _fraction(XLA_OLD, old or "", cap)
    if XLA_NEW not in env:
        yield Step(Kind.ADD, XLA_NEW, value="")


# What takes a cap away


def from_elsewhere(env: Environment, prefixes: Iterable[str]) -> Iterator[Step]:
    """Say which names `envFrom` may set that take a cap away; what the container's own `env` names it cannot set.

    A prefix with which such a name begins serves nothing else, so it takes the cap away. Without one that is only not
    known, and the rule unread-variables speaks of it.
    """
    names = [name for name in HIDING if name not in env]
    prefixes = sorted(prefixes, reverse=True)
    if found := [name for prefix in prefixes for name in names if name.startswith(prefix)]:
        yield Step(
            Kind.DEFEAT if any(map(found[0].startswith, filter(None, prefixes))) else Kind.UNSURE,
            found[0],
            f"envFrom is not looked into, and {found[0]} in it would take the cap away; name variables one by one",
            "envFrom is not looked into",
        )


def _defeats(env: Environment, policy: Policy) -> Iterator[Step]:
    for defeat in DEFEATS:
        if defeat.name not in env or defeat.framework not in policy.frameworks:
            continue
        value = env[defeat.name]
        if value is None or unknown(value):
            yield Step(
                Kind.DEFEAT,
                defeat.name,
                f"{defeat.name} is not known before the pod runs, and may take the cap away; "
                "write its value into the pod, or remove it",
                f"{defeat.framework}: {defeat.name} is not known",
            )
        elif effect := defeat.effect(value):
            yield Step(
                Kind.DEFEAT,
                defeat.name,
                f"{defeat.name}={shown(value, quotes=False)} {effect}; remove it",
                f"{defeat.framework}: {defeat.name} takes the cap away",
            )
