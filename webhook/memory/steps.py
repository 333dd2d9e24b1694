"""Defines the steps: the changes that cap a container, and the sentences that describe them."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from webhook.memory.budget import Budget
from webhook.policy.model import Policy
from webhook.text.words import shown

Environment = Mapping[str, str | None]
"""A container's variables. A value is None if it is unknown before the pod runs."""

Torch = tuple[int, int] | None
"""A release of PyTorch; None if it is unknown."""


class Cap(NamedTuple):
    """The cap of a pod, and the release of PyTorch that the pod runs.

    `doubted` is true if only the pod claims to run an older PyTorch. The claim then excuses nothing. `shim` is true if
    every container of the pod has the shim. `driver` is true if the driver limits the pod to its slice; then the
    frameworks' variables only make errors easier to read. `limit` is the MiB to which NVIDIA's hook limits the
    container by variables; 0 if no such variables are written.
    """

    budget: Budget
    policy: Policy
    torch: Torch = None
    doubted: bool = False
    shim: bool = False
    driver: bool = False
    limit: int = 0


class StepKind(StrEnum):
    """The kinds of steps: the first three write a value, the others only describe one."""

    ADD = "a variable that is missing"
    SET = "a value without a cap is completed, and the rest of it is kept"
    LOWER = "a value that allows more is replaced"
    REFUSE = "a value that its framework would not take, or that is no cap and cannot be made one"
    DEFEAT = "something that takes the cap away"
    UNSURE = "something that may be without a cap"


ADD, LOWER = StepKind.ADD, StepKind.LOWER  # Python 3.11 takes long for a member of an enumeration

WRITES = frozenset({ADD, StepKind.SET, LOWER})


class Words(NamedTuple):
    """The message about a step, and a short `note` for the annotation. A step without a note is not recorded there.

    Fields in braces are `name`, `old`, `plain` (`old` without quotes) and `value` of the step, its details, and
    `fraction`, `percent`, `mib` and `bytes` of the budget.
    """

    message: str
    note: str = ""


class Step(NamedTuple):
    """One step of capping a container. `name` is the variable or the program; `value` replaces `old`."""

    kind: StepKind
    name: str
    words: Words = Words("")
    value: str = ""
    old: str = ""
    details: tuple[tuple[str, str], ...] = ()


def describe(step: Step, budget: Budget) -> str:
    """Return the message about a step."""
    return _filled(step.words.message, step, budget)


def noted(step: Step, budget: Budget) -> str:
    """Return the short note about a step for the annotation; empty if it has none."""
    return _filled(step.words.note, step, budget) if step.words.note else ""


def _filled(template: str, step: Step, budget: Budget) -> str:
    return template.format(
        name=step.name,
        old=shown(step.old),
        plain=shown(step.old, quotes=False),
        value=step.value,
        fraction=budget.fraction,
        percent=budget.percent,
        mib=budget.mib,
        bytes=budget.bytes,
        **dict(step.details),
    )


# Reading values


def unknown(value: str | None) -> bool:
    """Return whether a value is unknown before the pod runs: it comes from elsewhere, or refers to another variable."""
    return value is None or "$(" in value


def natural(text: str) -> bool:
    """Return whether a text is a whole number of at most 19 digits."""
    return text.isascii() and text.isdigit() and len(text) <= 19


_FRACTION = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)


def fraction(text: str) -> float | None:
    """Read a number of at least 0 that every framework's parser reads alike; None for other text.

    Python's `float` takes underscores and other scripts' digits; C++'s `stod` stops at them.
    """
    return float(text) if len(text) <= 40 and _FRACTION.fullmatch(text) else None


# Steps that several frameworks take

SLICE = "{fraction} (the slice)"

NOT_KNOWN = Words(
    "{name} is not known before the pod runs, so the cap is not sure; write its value into the pod, or remove it",
    "{framework}: {name} is not known",
)
EMPTY = Words(f"{{name}} is empty and caps nothing; set {SLICE} or less")
NO_FRACTION = Words(f"{{name}} is {{old}}, not a fraction above 0; use {SLICE} or less, or remove it")
LARGER_FRACTION = Words("{name} is {old}, more than the slice; use {fraction} or less")


def not_known(framework: str, name: str) -> Step:
    """Return the step for a variable that decides on the cap and is unknown before the pod runs."""
    return Step(StepKind.DEFEAT, name, NOT_KNOWN, details=(("framework", framework),))


def stricter_fraction(framework: str, name: str, value: str | None, budget: Budget) -> Iterator[Step]:
    """Keep a fraction that is no larger than the budget's. Fill an empty one, lower a larger one, refuse other text."""
    if value is None or unknown(value):
        yield not_known(framework, name)
    elif not value.strip():
        yield Step(StepKind.SET, name, EMPTY, budget.fraction)
    elif not (number := fraction(value)):
        yield Step(StepKind.REFUSE, name, NO_FRACTION, old=value)
    elif number > budget.permille / 1000:
        yield Step(StepKind.LOWER, name, LARGER_FRACTION, budget.fraction, value)
