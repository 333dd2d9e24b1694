"""Compares paths with patterns of files such as .gitignore, as go-git does (plumbing/format/gitignore, pattern.go)."""

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

Matcher = Callable[[str], object]
"""Returns None for a name that does not fit."""


class IgnorePattern(NamedTuple):
    """A pattern below a folder. Its `parts` are compared with parts of a path; None is any number of folders.

    If it is not `anchored`, its only part may be any part of the path. One `of_folders` leaves out what is below a
    folder, and one that `includes` brings files back.
    """

    folder: Sequence[str]
    parts: Sequence[Matcher | None]
    anchored: bool
    of_folders: bool
    includes: bool

    def fits(self, path: Sequence[str]) -> bool:
        """Whether the pattern fits a file."""
        if len(path) <= len(self.folder) or [*path[: len(self.folder)]] != [*self.folder]:
            return False
        own = path[len(self.folder) :]
        names = own[:-1] if self.of_folders else own
        if not self.anchored:
            test = self.parts[0]
            return test is None or any(test(name) for name in names)
        return self._leads(own)

    def _leads(self, path: Sequence[str]) -> bool:
        """Whether the parts fit the first parts of a path; in steps by both lengths."""
        ends = {0}
        for test in self.parts:
            if test is None:
                ends = {*range(min(ends), len(path) + 1)} if ends else set()
            else:
                ends = {end + 1 for end in ends if end < len(path) and test(path[end])}
        return any(end < len(path) or not self.of_folders for end in ends)


def patterns(text: str, folder: Sequence[str] = ()) -> Iterator[IgnorePattern]:
    """Yield the patterns in a text that counts below a folder."""
    for line in (each.removesuffix("\r") for each in text.split("\n")):
        if line.startswith("#") or not line.strip():
            continue
        pattern = (line if line.endswith("\\ ") else line.rstrip(" ")).removeprefix("!")
        bare = pattern.removesuffix("/")
        parts = [None if part == "**" else _test(part) for part in bare.split("/") if part]
        if parts:
            yield IgnorePattern(folder, parts, "/" in bare, bare != pattern, line.startswith("!"))


def _test(part: str) -> Matcher:
    """Return the test of a part, which Go's filepath.Match reads: it writes `^` where Python writes `!`."""
    return re.compile(fnmatch.translate(re.sub(r"\\(.)", r"\1", part.replace("[^", "[!")))).match
