"""A world for the webhook to run in: how wrong the clock is, whether names resolve, how old facts may be at least."""

import json
from pathlib import Path

WORLD = str(Path(__file__).with_name("elsewhere.py"))
"""The program that runs the webhook there."""


class World:
    """The file in which it stands: `seconds` that the clock is wrong, `names` that resolve or not, `age` at least."""

    def __init__(self, file: Path, age: int = 360) -> None:
        self.file = file
        self._way: dict[str, float] = {"seconds": 0, "names": True, "age": age}
        self.is_so()

    def is_so(self, **ways: float) -> None:
        """Have it be so from now on."""
        self._way |= ways
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self._way), "ascii")
        new.rename(self.file)
