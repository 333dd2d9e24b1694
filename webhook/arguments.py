"""Finds programs that are limited by an argument alone in what a container starts."""

from collections.abc import Sequence

from webhook.budget import Budget
from webhook.caps import Kind, Step
from webhook.frameworks import PROGRAMS, Program, fraction
from webhook.model import shown

_COMMANDS = {command: program for program in PROGRAMS for command in program.commands}
_IMAGES = {program.image: program for program in PROGRAMS if program.image}


def started(words: Sequence[str]) -> Program | None:
    """Return the program that a command clearly starts: by its name, or as a Python module. A shell hides it."""
    if not words:
        return None
    command = words[0].rpartition("/")[2]
    program = _COMMANDS.get(command)
    if program is not None:
        return program if not program.verb or program.verb in words[1:2] else None
    if command.startswith("python") and "-m" in words[:-1]:
        module = words[words.index("-m") + 1]
        return next((p for p in PROGRAMS if p.module and f"{module}.".startswith(f"{p.module}.")), None)
    return None


def merge(image: str, words: Sequence[str], cap: Budget, *, append: bool) -> Step | None:
    """Say what limits the program of a container, or nothing.

    A step of kind ADD has the argument to append as its value; `append` allows it where the command clearly
    starts the program and does not have it.
    """
    program = clearly = started(words)
    if program is None:
        program = _IMAGES.get(image)
    if program is None or cap.unified:
        return None
    if not program.flag:
        message = f"{program.name} has no limit that the pod could set; {program.advice}"
        return Step(Kind.UNSURE, program.name, message, f"{program.name}: has no limit to set")
    value = _given(program.flag, words)
    ours = f"{program.flag}={cap.fraction}"
    if value is None and append and clearly:
        return Step(Kind.ADD, program.name, f"{program.name} is started without {program.flag}", value=ours)
    if value is None:
        message = (
            f"no variable limits {program.name}; start it with {ours} in args, for the text of a shell is not read"
        )
        return Step(Kind.UNSURE, program.name, message, f"{program.name}: started without {program.flag}")
    number = fraction(value)
    if number is None or not 0 < number <= cap.permille / 1000:
        message = f"{program.flag} of {program.name} is {shown(value)}, more than its slice; use {ours}"
        return Step(Kind.UNSURE, program.name, message, f"{program.name}: {program.flag} is above the slice")
    return None


def _given(flag: str, words: Sequence[str]) -> str | None:
    """Return the value of an argument, written as one word or two; the last one counts."""
    value = None
    for word, after in zip(words, [*words[1:], ""], strict=False):
        name, equals, text = word.partition("=")
        if name.replace("_", "-") == flag:
            value = text if equals else after
    return value
