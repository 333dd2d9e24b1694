"""Guesses which word a misspelt one was meant to be."""

from collections.abc import Iterable

LONGEST = 100
"""The most characters of a word that are compared: the cost of a guess grows with their square."""


def nearest(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Return the known word nearest to a word, or nothing if none is so much `alike` (1 is the same). Ignores case."""
    import difflib  # for the few who err

    plain = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word[:LONGEST].casefold(), plain, n=1, cutoff=alike)
    return plain[near[0]] if near else ""


def hint(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the nearest known one, or all of them."""
    known = list(known)
    near = nearest(word, known)
    return f", did you mean {near}?" if near else f"; known are {', '.join(known)}"
