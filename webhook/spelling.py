"""What a misspelt word was likely meant to be."""

from collections.abc import Iterable

LONGEST = 100
"""Characters of a word that are looked at: what a guess costs grows with their square."""


def nearest(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Guess which of the known words was meant; empty when none is so much `alike`, of which 1 is the same.

    Case does not count.
    """
    import difflib  # for the few who err

    plain = {each.casefold(): each for each in known}
    found = difflib.get_close_matches(word[:LONGEST].casefold(), plain, n=1, cutoff=alike)
    return plain[found[0]] if found else ""


def hint(word: str, known: Iterable[str]) -> str:
    """End a message on an unknown word: by what was meant, or, if that is not to be guessed, by all that is known."""
    known = list(known)
    near = nearest(word, known)
    return f", did you mean {near}?" if near else f"; known are {', '.join(known)}"
