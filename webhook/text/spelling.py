"""Guesses the known word that a misspelt word was meant to be."""

from collections.abc import Iterable

LONGEST = 100
"""Characters of a word that are compared. The cost of a guess grows with the square of the length."""

HANDFUL = 10
"""Words per object for which a guess is made."""


def nearest(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Return the nearest known word, ignoring case; empty if its similarity (1 is equality) is below `alike`."""
    import difflib  # only for misspelt words

    plain = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word[:LONGEST].casefold(), plain, n=1, cutoff=alike)
    return plain[near[0]] if near else ""


class Guesses:
    """Guesses the words that misspelt words were meant to be, for at most `most` different words.

    Equal words get equal guesses. Making a guess costs thousands of times as much as sending a word.
    """

    def __init__(self, most: int = HANDFUL) -> None:
        self._most = most
        self._words: set[str] = set()
        self._made: dict[tuple[str, float, tuple[str, ...]], str] = {}

    def nearest(self, word: str, known: Iterable[str], alike: float = 0.6) -> str:
        """Guess as `nearest` does. Returns nothing for new words after the first `most`."""
        if word not in self._words:
            if len(self._words) == self._most:
                return ""
            self._words.add(word)
        asked = word, alike, tuple(known)
        if asked not in self._made:
            self._made[asked] = nearest(word, asked[2], alike)
        return self._made[asked]


def hint(word: str, known: Iterable[str], guesses: Guesses | None = None) -> str:
    """Return the end of a message about an unknown word, with suggestions.

    It names the known words that contain the unknown one, else the nearest known word, else all of them.
    """
    known = list(known)
    meant = _containing(word, known) or (guesses or Guesses()).nearest(word, known)
    return f", did you mean {meant}?" if meant else f"; known are {', '.join(known)}"


def _containing(word: str, known: Iterable[str]) -> str:
    """Name the known words that contain a part of a word; empty if there are none, or too many to help."""
    part = word[:LONGEST].casefold()
    longer = [name for name in known if part in name.casefold()] if len(part) >= _PART else []
    return " or ".join(longer) if len(longer) <= _FEW else ""


_PART = 3
"""Characters of a word that is looked for in longer words."""
_FEW = 5
"""Words that a guess may name."""
