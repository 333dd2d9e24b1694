"""Finds the files that a source of Flux leaves out of what it fetches.

Flux builds a folder whose kustomization is left out from all of its files, without patches. Sources: fluxcd/pkg
sourceignore/sourceignore.go; go-git plumbing/format/gitignore (pattern.go and matcher.go).
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from webhook.rendering.tree import Matcher, Tree, Unseen, matcher

FILE = ".sourceignore"
"""The name of the files with patterns, which count below their folders."""


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
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        pattern = (line if line.endswith("\\ ") else line.rstrip(" ")).removeprefix("!")
        bare = pattern.removesuffix("/")
        parts = [None if part == "**" else _test(part) for part in bare.split("/") if part]
        if parts:
            yield IgnorePattern(folder, parts, "/" in bare, bare != pattern, line.startswith("!"))


def _test(part: str) -> Matcher:
    """Return the test of a part, which Go's filepath.Match reads: it writes `^` where Python writes `!`."""
    return matcher(re.sub(r"\\(.)", r"\1", part.replace("[^", "[!")))


def left_out(tree: Tree, names: Iterable[str], more: str) -> str:
    """Return the first file that a source leaves out by files with patterns or by `more` of them; empty if none is.

    If it cannot be told, because a file is not readable or there are too many patterns, that file counts too.
    """
    listed: list[IgnorePattern] | None = None
    for name in names:
        try:
            if listed is None:
                tree.look(len(more))
                listed = [*patterns(more)]
            path = tree.checked(name).split("/")
            found = [*_above(tree, name, path), *listed]
            tree.look(sum(len(each.parts) + len(each.folder) for each in found) * len(path))
        except Unseen:
            return name
        last = next((each for each in reversed(found) if each.fits(path)), None)
        if last is not None and not last.includes:
            return name
    return ""


def _above(tree: Tree, name: str, path: Sequence[str]) -> Iterator[IgnorePattern]:
    """Yield the patterns of the files in all folders above a file, from the top of the repository. Raises Unseen."""
    for depth in range(len(path)):
        folder = os.path.normpath(os.path.join(os.path.dirname(name), *[".."] * (len(path) - 1 - depth)))
        file = os.path.normpath(os.path.join(folder, FILE))
        if os.path.lexists(file):
            data = tree.data(file)
            tree.look(len(data))
            yield from patterns(data.decode("utf-8", "replace"), path[:depth])
