"""A card that frameworks run on: one of tests/support/card, as they want to see it."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.frameworks.cache import Missing
from tests.support.card.library import CannotCompile, library
from tests.support.card.state import MIB, State

PRETEND = Path(__file__).resolve().parent / "pretend"


@dataclass(frozen=True, slots=True)
class Card:
    """A card of so many MiB, whose state lies in a file; none at 0."""

    mib: int
    file: Path
    _state: State = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_state", State(self.file, cards=int(self.mib > 0), mib=self.mib))

    def environment(self) -> dict[str, str]:
        """The variables that a process needs in its environment to find this card and no other. Raises Missing."""
        return {
            "LD_LIBRARY_PATH": str(compiled().parent),
            "PYTHONPATH": str(PRETEND),
            "CARD_STATE": str(self.file),
            # JAX compares the versions of NVIDIA's libraries, which are not there.
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        }

    @property
    def peak(self) -> float:
        """The most MiB that were ever taken at once, by all processes together."""
        return self._state.get("peak") / MIB

    @property
    def refused(self) -> int:
        """How often the card itself, rather than a framework, had no more memory to give."""
        return self._state.get("refused")


def compiled() -> Path:
    """Return the card's library. Raises Missing."""
    try:
        return library()
    except CannotCompile as error:
        raise Missing(str(error)) from error
