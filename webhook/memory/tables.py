"""Defines the types of a framework's tables: its variables, and the variables that take its cap away."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class Form(StrEnum):
    """The form of a variable's value, with its unit."""

    SETTINGS = "`key:value` settings with commas between them; the cap is one of them, a fraction of the card"
    FRACTION = "a fraction of the card"
    PERCENT = "a percentage of the card with `%`, or bytes"
    MIB = "MiB"
    BYTES = "bytes"
    TEXT = "text"


class VariableEffect(StrEnum):
    """The effect of a variable on a process."""

    HARD = "hard: its own allocator gives no more"
    GROWTH = "growth only: memory is taken when it is needed, without a limit"
    FRAGMENTATION = "fragmentation only: where memory is taken, not how much"
    PLAN = "plan only: a size is computed from free or total memory, and not kept to"
    NONE = "none: it limits nothing"


class Variable(NamedTuple):
    """A variable that a framework reads.

    `text` is its value if that is always the same. If it is not `written`, it is never added where it is absent. A
    `default` is no cap: its text is added if the variable is absent, and any other value is kept.
    """

    name: str
    form: Form
    effect: VariableEffect
    since: str
    bad: str
    merge: str
    source: str
    text: str = ""
    written: bool = True
    default: bool = False


STRICTER = "set where absent; of two limits the smaller one stands"
ABSENT = "set where absent"
ALONE = "left unchanged"
"""How most variables are merged."""


class Defeat(NamedTuple):
    """A variable that can take a framework's cap away.

    `ways` are the values that do, in words, each with its effect. `effect` returns the effect of a value, or an empty
    text if the value leaves the cap in force.
    """

    name: str
    ways: tuple[tuple[str, str], ...]
    effect: Callable[[str], str]
    source: str


class ExtraTable(NamedTuple):
    """Another table for the page on frameworks, with the text above it."""

    title: str
    text: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def word(text: str) -> str:
    """Return a value in lower case, without spaces around it."""
    return text.strip().lower()
