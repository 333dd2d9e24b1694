"""Records the answers of programs in Go to generated cases, for runs without Go."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from tests.support.go_programs import Missing, say

SAME = bool(os.environ.get("CI"))
"""Whether the cases are the same in each run. `make nightly` tries others; a case that it finds becomes a test."""


def trying(examples: int) -> settings:
    """Return the settings of a test that asks a program about this many generated cases."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=SAME,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


def record(file: Path, ask: Callable[[], Any], *, indent: int) -> int:
    """Write the answers to a file of JSON. Return 0, or 2 after a line that names the missing tool."""
    try:
        answers = ask()
    except Missing as missing:
        say(str(missing))
        return 2
    file.write_text(json.dumps(answers, indent=indent) + "\n", "utf-8")
    return 0
