"""Sets of names. A name that ends in `*` stands for every name with that prefix."""

from collections.abc import Iterable, Iterator


class Names:
    """A set of names and prefixes (`NAME*`), less those of `other_than`."""

    def __init__(self, patterns: Iterable[str], *, other_than: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        self.names = frozenset(p for p in self.patterns if not p.endswith("*"))
        self.prefixes = tuple(p[:-1] for p in self.patterns if p.endswith("*"))
        self.other_than = Names(other_than) if other_than else None

    def __contains__(self, name: str) -> bool:
        if name not in self.names and not name.startswith(self.prefixes):
            return False
        return self.other_than is None or name not in self.other_than

    def among(self, names: Iterable[str]) -> list[str]:
        """Return the names that are in the set, in their order."""
        own, prefixes, other = self.names, self.prefixes, self.other_than
        found = [name for name in names if name in own or name.startswith(prefixes)]
        return found if other is None else [name for name in found if name not in other]

    def __iter__(self) -> Iterator[str]:
        return iter(self.patterns)

    def any_begins(self, start: str) -> bool:
        """Tell whether a name with this prefix can be in the set."""
        return start.startswith(self.prefixes) or any(p.rstrip("*").startswith(start) for p in self.patterns)
