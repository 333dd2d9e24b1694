"""Guesses which word a misspelt one was meant to be."""

from collections.abc import Iterable

LONGEST = 100
"""The most characters of a word that are compared: the cost of a guess grows with their square."""

HANDFUL = 10
"""Words of one object for which a guess is made."""


def nearest(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Return the known word nearest to a word, or nothing if none is so much `alike` (1 is the same). Ignores case."""
    import difflib  # for the few who err

    plain = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word[:LONGEST].casefold(), plain, n=1, cutoff=alike)
    return plain[near[0]] if near else ""


class Guesses:
    """Guesses what a handful of words were meant to be, the same for the same word; of more it says nothing.

    A guess costs thousands of times what it takes to send a word.
    """

    def __init__(self, most: int = HANDFUL) -> None:
        self._most = most
        self._words: set[str] = set()
        self._made: dict[tuple[str, float, tuple[str, ...]], str] = {}

    def nearest(self, word: str, known: Iterable[str], alike: float = 0.6) -> str:
        """Guess as `nearest` does, for the first words that are asked about, however often."""
        if word not in self._words:
            if len(self._words) == self._most:
                return ""
            self._words.add(word)
        asked = word, alike, tuple(known)
        if asked not in self._made:
            self._made[asked] = nearest(word, asked[2], alike)
        return self._made[asked]


def hint(word: str, known: Iterable[str], guesses: Guesses | None = None) -> str:
    """Return the end of a message about an unknown word: the nearest known one, or all of them."""
    known = list(known)
    near = (guesses or Guesses()).nearest(word, known)
    return f", did you mean {near}?" if near else f"; known are {', '.join(known)}"
