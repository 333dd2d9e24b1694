"""A set type for names. `NAME*` stands for every name with that prefix, and `*NAME` for every name with that suffix."""

from collections.abc import Collection, Iterable, Iterator


class Names:
    """A set of names, prefixes and suffixes, without those of `other_than`."""

    def __init__(self, patterns: Iterable[str], *, other_than: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        self.prefixes = tuple(p[:-1] for p in self.patterns if p.endswith("*"))
        self.suffixes = tuple(p[1:] for p in self.patterns if p.startswith("*") and not p.endswith("*"))
        self.names = frozenset(p for p in self.patterns if "*" not in (p[-1:], p[:1]))
        self.other_than = Names(other_than) if other_than else None
        self.length = min(map(len, (*self.names, *self.prefixes)), default=0)
        self.starts = frozenset(name[: self.length] for name in (*self.names, *self.prefixes))
        """The first `length` characters of its names, as many as the shortest has. Most names of tenants differ."""

    def __contains__(self, name: str) -> bool:
        if name in self.names or name.startswith(self.prefixes) or (self.suffixes and name.endswith(self.suffixes)):
            return self.other_than is None or name not in self.other_than
        return False

    def among(self, names: Collection[str]) -> list[str]:
        """Return those of the given names that are in the set, in their order."""
        length, starts = self.length, self.starts
        if suffixes := self.suffixes:
            return [name for name in names if (name[:length] in starts or name.endswith(suffixes)) and name in self]
        return [name for name in names if name[:length] in starts and name in self]

    def __iter__(self) -> Iterator[str]:
        return iter(self.patterns)

    def any_begins(self, start: str) -> bool:
        """Return whether a name with this prefix can be in the set."""
        return (
            bool(self.suffixes)
            or start.startswith(self.prefixes)
            or any(p.rstrip("*").startswith(start) for p in self.patterns)
        )
