"""A container on a time-sliced GPU has no limit on the GPU memory it takes.

Time-slicing divides time and not memory: one process can take the whole card, and its neighbours fail. What can be
had without touching images is each framework's own limit, set by environment and sized so that all slices of the
pool's smallest card fit. It is cooperative: it binds a framework's own allocator in one process, and a program can
lift it, or choose another allocator. PyTorch is capped from 2.10 on, JAX in all versions; TensorFlow has no such
limit and is only kept from taking the whole card at its start. `envFrom` is not looked into.

A limit of the tenant's own stands if it is no larger than the slice.

Way out: leave the variables to Slicewarden, or set a limit no larger than the message names.
"""

from collections.abc import Iterable, Iterator, Mapping

from webhook.budget import Budget, smallest, variables
from webhook.facts import Facts
from webhook.frameworks import FRACTION_KEY, Form, Variable, fraction
from webhook.gpus import asks
from webhook.model import Finding, Fix, shown
from webhook.placement import place
from webhook.policy import Policy
from webhook.targets import Container, EnvVar, Pod


def check(pod: Pod, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag containers that ask for a time-sliced GPU and are not capped at their slice of it."""
    placement = place(pod, policy, facts)
    if placement is None or placement.pool is None or placement.pool.sharing != "time-slicing":
        return
    pool = placement.pool
    cap = smallest(pool, policy, facts)
    if cap is None:
        yield Finding(
            pod.at("spec"),
            f"no cap can be sized: no node of pool {pool.name} has the labels nvidia.com/gpu.memory and "
            "nvidia.com/gpu.replicas; wait for GPU Feature Discovery, or give the pool `assume` in the policy",
        )
        return
    if not cap.enough:
        yield Finding(
            pod.at("spec"),
            f"a slice of pool {pool.name} is too small for a framework: {cap.arithmetic}; "
            "the pool needs fewer replicas, or the pod another pool",
        )
        return
    for container in {ask.container.path: ask.container for ask in asks(pod, policy)}.values():
        yield from _uncapped(container, variables(policy, cap), cap, pool.name)


def _uncapped(
    container: Container, wanted: Iterable[tuple[Variable, str]], cap: Budget, pool: str
) -> Iterator[Finding]:
    env = container.env
    missing: list[tuple[str, str]] = []
    for variable, text in wanted:
        rivals = [rival for name in variable.rivals if (rival := _set(env, name, variable)) is not None]
        own = env.get(variable.name)
        if own is None and not rivals:
            missing.append((variable.name, text))
        for name, entry in rivals or ([(variable.name, own)] if own is not None else []):
            yield from _judged(variable, name, entry, cap, pool)
    if missing:
        names = ", ".join(name for name, _ in missing)
        yield Finding(
            (*container.path, "env"),
            f"no {names}, so a process may take more than its {cap.budget} MiB of a GPU of pool {pool}; create it "
            "where Slicewarden's mutating webhook is in force, and undo none of its changes",
            (Fix((*container.path, "env"), [{"name": name, "value": value} for name, value in missing]),),
            parts=tuple(f"{pool}: {name}" for name, _ in missing),
        )


def _set(env: Mapping[str, EnvVar], name: str, variable: Variable) -> tuple[str, EnvVar] | None:
    """Return a rival's entry if the framework would read it instead of the variable."""
    entry = env.get(name)
    if entry is None or (entry.value == "" and not variable.empty_rival_wins):
        return None
    return name, entry


def _judged(variable: Variable, name: str, entry: EnvVar, cap: Budget, pool: str) -> Iterator[Finding]:
    """Judge a value that the tenant chose for a variable or its rival."""
    if variable.default:
        return
    path, value = (*entry.path, "value"), entry.value
    limit = f"the slice of pool {pool} is {cap.fraction} of the card"
    if value is None or "$(" in value:
        yield Finding(entry.path, f"{name} is not known before the pod runs, so no cap is sure; {limit}", advice=True)
    elif variable.form is Form.TEXT:
        if value != variable.text:
            yield Finding(path, f"{name} is {shown(value)}; use {shown(variable.text)} exactly, or remove it")
    elif variable.form is Form.FRACTION:
        if not _within(value, cap):
            yield Finding(path, f"{name} is {shown(value)}, and {limit}; use that or less, or remove it")
    else:
        yield from _judged_settings(variable, name, entry, cap, limit)


def _judged_settings(variable: Variable, name: str, entry: EnvVar, cap: Budget, limit: str) -> Iterator[Finding]:
    value, path = entry.value or "", (*entry.path, "value")
    ours = f"{FRACTION_KEY}:{cap.fraction}"
    settings = _settings(value)
    if settings is None:
        yield Finding(path, f"{shown(value)} is no list of key:value, which torch refuses; mend or remove {name}")
    elif not settings and name != variable.name:
        yield Finding(
            entry.path, f"{name} is empty and hides {variable.name} from torch, so there is no cap; remove it"
        )
    elif FRACTION_KEY in settings:
        if not _within(settings[FRACTION_KEY], cap):
            yield Finding(path, f"{FRACTION_KEY} is {shown(settings[FRACTION_KEY])}, and {limit}; use that or less")
    elif name == variable.name:
        completed = ",".join(filter(None, (value.rstrip(", "), ours)))
        yield Finding(path, f"{name} has no {FRACTION_KEY}; {limit}", (Fix(path, completed),))
    else:
        # Torch before 2.10 fails on a key it does not know, and which torch this is cannot be seen from here.
        yield Finding(
            path,
            f"{name} hides {variable.name} from torch, so there is no cap; with torch 2.10 or newer add {ours} to it",
            advice=True,
        )


def _settings(value: str) -> dict[str, str] | None:
    """Split PyTorch's allocator settings; None for what torch would not take (its c10/core/AllocatorConfig.cpp)."""
    settings: dict[str, str] = {}
    if not value.strip(" "):
        return settings
    depth, item = 0, ""
    for character in (*value.rstrip(", "), ","):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character != "," or depth > 0:
            item += character
            continue
        key, colon, setting = item.strip().partition(":")
        key, setting, item = key.strip(), setting.strip(), ""
        if not colon or not setting or not key.replace("_", "").isalnum() or any(c in setting for c in " ;="):
            return None
        settings[key] = setting
    return settings if depth == 0 else None


def _within(text: str, cap: Budget) -> bool:
    value = fraction(text)
    return value is not None and 0 < value <= cap.permille / 1000
