"""Compares paths with patterns of files such as .gitignore, as go-git does (plumbing/format/gitignore, pattern.go).

Go's filepath.Match compares a part of a pattern byte by byte, and never fits one that it cannot read. Parts with `?`, a
backslash or a class of other characters than letters and digits are not compared here: such a pattern leaves out all
files below its folder, or brings none back.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

Matcher = Callable[[str], object]
"""Returns None for a name that does not fit."""


class PatternStep(NamedTuple):
    """A part of a pattern. After `**` the first name that fits is taken: go-git does not look for another one."""

    after_any: bool
    test: Matcher


class IgnorePattern(NamedTuple):
    """A pattern below a folder, whose `steps` are compared with parts of a path.

    If it is not `anchored`, its only step may fit any part of the path. One `of_folders` leaves out what is below a
    folder, and one that `includes` brings files back.
    """

    folder: Sequence[str]
    steps: Sequence[PatternStep]
    anchored: bool
    of_folders: bool
    includes: bool

    def fits(self, path: Sequence[str]) -> bool:
        """Whether the pattern fits a file."""
        if len(path) <= len(self.folder) or [*path[: len(self.folder)]] != [*self.folder]:
            return False
        own = path[len(self.folder) :]
        if not self.anchored:
            return any(self.steps[0].test(name) for name in (own[:-1] if self.of_folders else own))
        return self._leads(own)

    def _leads(self, path: Sequence[str]) -> bool:
        """Whether the steps fit the first parts of a path."""
        end = 0
        for step in self.steps:
            names = path[end:] if step.after_any else path[end : end + 1]
            found = next((number for number, name in enumerate(names, 1) if step.test(name)), None)
            if found is None:
                return False
            end += found
        return end > 0 and not (self.of_folders and end == len(path))


def patterns(text: str, folder: Sequence[str] = ()) -> Iterator[IgnorePattern]:
    """Yield the patterns in a text that counts below a folder."""
    for line in (each.removesuffix("\r") for each in text.split("\n")):
        if line.startswith("#") or not line:
            continue
        pattern = (line if line.endswith("\\ ") else line.rstrip(" ")).removeprefix("!")
        bare = pattern.removesuffix("/")
        of_folders, includes = bare != pattern, line.startswith("!")
        parts = bare.split("/")
        if len(parts) > 1 and any("**" in part and part != "**" for part in parts):
            continue  # go-git never fits it
        if all(len(part) <= _LONGEST and PLAIN.fullmatch(part) for part in parts):
            steps = _steps(parts) if len(parts) > 1 else (PatternStep(False, _test(bare)),)
            yield IgnorePattern(folder, steps, len(parts) > 1, of_folders, includes)
        elif not includes:
            yield IgnorePattern(folder, (PatternStep(False, _test("*")),), False, False, False)


_LONGEST = 255
"""Maximum characters of a part that is compared: no name has more."""

PLAIN = re.compile(r"(?:[^\[\\?]|\[(?:[A-Za-z0-9](?:-[A-Za-z0-9])?)+\])*")
"""A part that fits the same names in Go and in Python."""


def _steps(parts: Sequence[str]) -> Sequence[PatternStep]:
    """Return the steps of an anchored pattern. An empty part cancels `**`."""
    found, after_any = list[PatternStep](), False
    for part in parts:
        if part in ("", "**"):
            after_any = bool(part)
        else:
            found.append(PatternStep(after_any, _test(part)))
            after_any = False
    return tuple(found)


def _test(part: str) -> Matcher:
    return re.compile(fnmatch.translate(part)).match
