"""Describes how each framework in each container of a pod is capped, and how to get a missing cap."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from webhook.memory import frameworks
from webhook.memory.command_line import ARGS
from webhook.memory.frameworks import Framework
from webhook.memory.plan import CapPlan, ContainerPlan
from webhook.memory.shim.delivery import CHOICE, IMAGE_PATH
from webhook.memory.steps import Step, StepKind, describe, noted
from webhook.text.words import listed


class By(StrEnum):
    """The means by which a framework is capped."""

    DRIVER = "driver"
    HOOK = "hook"
    HAMI = "HAMi-core"
    VARIABLE = "variable"
    SHIM = "shim"
    ARGUMENT = "argument"
    NONE = "none"


class Capped(NamedTuple):
    """The way in which one framework or program is capped in one container.

    If nothing caps it, `why` is the reason. `way` is the line of YAML that turns a cap on, or empty if there is none.
    """

    container: str
    framework: str
    by: By
    why: str = ""
    way: str = ""


ALL = "all frameworks"
"""The framework of a cap that reaches every process."""

NOT_DRIVEN = "the driver limits no claim, no MIG device, and no GPU that uses the host's memory"
"""Why nothing limits a container in a pool whose driver limits others."""

REST = "other CUDA programs"
"""The name for memory outside these frameworks' allocators: C++ programs, raw allocations of other libraries."""

_ONNX = "onnxruntime"
PER_SESSION = f"{_ONNX} by session"


def coverage(plan: CapPlan) -> Iterator[Capped]:
    """Yield, for each container, how every framework that can be capped and every recognised program is capped."""
    for part in plan.containers:
        if part.hooked:
            unsure = "" if part.image_limit is None else ", unless its image sets another limit"
            yield Capped(part.shown, ALL, By.HOOK, f"the driver allows {part.limit} MiB from its start on{unsure}")
        elif part.driven:
            late = plan.late or (part.image_limit.why.partition(";")[0] if part.image_limit is not None else "")
            yield Capped(part.shown, ALL, By.DRIVER, f"the agent limits it after its start: {late}")
        elif plan.cap.driver:
            yield Capped(part.shown, ALL, By.NONE, NOT_DRIVEN)
        if part.hami:
            yield Capped(part.shown, ALL, By.HAMI, f"it requests {part.hami}")
        if not plan.cap.driver:
            yield from _by_variable(part, plan)
            yield from _by_shim(part, plan)
        yield from _by_argument(part, plan)
        if not plan.cap.driver and not part.hami:
            yield Capped(part.shown, REST, By.NONE, "no variable and no argument limits them")


def _by_variable(part: ContainerPlan, plan: CapPlan) -> Iterator[Capped]:
    for framework in frameworks.walk():
        if not framework.capped or framework.image not in ("", part.image):
            continue
        if not plan.cap.policy.caps(framework.name):
            why = "the policy leaves it out"
            yield Capped(part.shown, framework.capped, By.NONE, why, f"memory.frameworks: [..., {framework.name}]")
        elif plan.budget.unified and framework.fractions_only:
            yield Capped(part.shown, framework.capped, By.NONE, "the GPU's memory is the host's")
        elif lost := next((step for step in part.steps if _takes_away(step, framework)), None):
            yield Capped(part.shown, framework.capped, By.NONE, describe(lost, plan.budget))
        else:
            yield Capped(part.shown, framework.capped, By.VARIABLE)


def _takes_away(step: Step, framework: Framework) -> bool:
    if step.kind not in (StepKind.DEFEAT, StepKind.REFUSE):
        return False
    own = {variable.name for variable in framework.variables} | {defeat.name for defeat in framework.defeats}
    return step.name in own or step.name in framework.hiding


def _by_shim(part: ContainerPlan, plan: CapPlan) -> Iterator[Capped]:
    cap = plan.cap
    wanted = [f.shimmed for f in frameworks.walk() if f.shimmed and cap.policy.caps(f.name)]
    lacking = {name for f in frameworks.walk() for name in f.uncapped(cap._replace(shim=False))}
    given = part.shim is not None and part.shim.caps
    why, way = ("", "") if given else _no_shim(part, plan)
    for name in wanted:
        if name in lacking:
            yield Capped(part.shown, name, By.SHIM if given else By.NONE, why, way)
    yield Capped(part.shown, PER_SESSION, By.SHIM) if given else Capped(part.shown, _ONNX, By.NONE, why, way)


def _no_shim(part: ContainerPlan, plan: CapPlan) -> tuple[str, str]:
    """Say why a container has no shim, and which line turns it on."""
    if part.shim is not None and part.shim.unread:
        return f"no shim: {part.shim.unread} does not read it", f"remove {part.shim.unread.rpartition(' ')[2]}"
    if part.shim is not None:
        return f"no shim: {part.shim.note.partition(f'; say {IMAGE_PATH}')[0]}", f'{IMAGE_PATH}: "PATH"'
    if plan.budget.unified:
        return "no shim: the GPU's memory is the host's", ""
    if not plan.cap.policy.shim:
        return "no shim: the policy has none", "memory.shim: Inject"
    if CHOICE in plan.pod.annotations:
        return "no shim: the pod does without", f"remove {CHOICE}"
    return "no shim: the pod was created without", "create the pod again"


def _by_argument(part: ContainerPlan, plan: CapPlan) -> Iterator[Capped]:
    if part.limited:
        yield Capped(part.shown, part.limited, By.ARGUMENT)
    elif part.argument is not None:
        step, details = part.argument, dict(part.argument.details)
        why = noted(step, plan.budget).removeprefix(f"{step.name}: ")
        way = _argument(details) if "ours" in details else details["advice"]
        yield Capped(part.shown, step.name, By.NONE, why, way)


def _argument(details: Mapping[str, str]) -> str:
    """Say where an argument must be added."""
    ours, where = details["ours"], details["where"]
    return f"args: [{ours}]" if where == ARGS else f"add {ours} {where}"


def lines(some: Iterable[Capped]) -> Iterator[str]:
    """Write how a pod is capped. Frameworks of a container with the same cap, or the same reason, share a line."""
    for (container, by, why, way), group in groupby(some, lambda one: (one.container, one.by, one.why, one.way)):
        names = listed([one.framework for one in group], _NAMED)
        if by is By.NONE:
            yield f"{container}: {names}: not capped: {why}{f'; {way}' if way else ''}"
        else:
            yield f"{container}: {names}: by {by}{f' ({why})' if why else ''}"


_NAMED = 12
