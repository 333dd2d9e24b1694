"""A world for the webhook to run in: how wrong the clock is, whether names resolve, how old facts may be at least."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

WORLD = str(Path(__file__).with_name("elsewhere.py"))
"""The program that runs the webhook there."""


@dataclass(frozen=True)
class Way:
    """How it is."""

    seconds: float = 0
    names: bool = True
    age: int = 360


class World:
    """The file in which it stands."""

    def __init__(self, file: Path, age: int = 360) -> None:
        self.file = file
        self._way = Way(age=age)
        self.is_so()

    def is_so(self, *, seconds: float | None = None, names: bool | None = None) -> None:
        """Have it be so from now on."""
        said = {"seconds": seconds, "names": names}
        self._way = replace(self._way, **{key: value for key, value in said.items() if value is not None})
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self._way)), "ascii")
        new.rename(self.file)
