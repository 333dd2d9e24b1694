"""Answers of programs that are written in Go: asked for generated cases, and recorded for runs without Go."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from tests.support.go_programs import Missing, say


def generated(examples: int) -> settings:
    """Return the settings of a test that asks a program about so many generated cases, which differ in every run."""
    return settings(
        max_examples=examples,
        derandomize=False,  # what is found is added to the recorded cases
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


def record(file: Path, ask: Callable[[], Any], *, indent: int) -> int:
    """Write the answers to a file of JSON. Return 0, or 2 after one line on what is missing."""
    try:
        answers = ask()
    except Missing as missing:
        say(str(missing))
        return 2
    file.write_text(json.dumps(answers, indent=indent) + "\n", "utf-8")
    return 0
