"""Finds the files by which Git writes other bytes than it keeps."""

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from functools import cache
from typing import NamedTuple

from webhook.documents import files
from webhook.documents.gitignore import PLAIN
from webhook.repository.tree import LONGEST_PATTERN, fits, matcher
from webhook.scan import folders


def converted(given: Iterable[str], names: Iterable[str], texts: Iterable[str]) -> list[str]:
    """Return those of some `.gitattributes` by which Git writes other files than it keeps.

    Flux reads what Git keeps. Git converts the encoding of a file, and fills in `$Id$`. Line ends matter only in the
    files `texts`, because YAML reads all of them in one way. A filter matters in those and in the files `names` if one
    of all these has an object of Flux. On Linux no other attribute changes a file (gitattributes(5)).
    """
    changing = [*_changing([line for name in given for line in _lines(name)])]
    if not changing:
        return []
    as_text = {*map(os.path.realpath, texts)}
    every = {*map(os.path.realpath, names), *as_text}
    has_flux = cache(lambda: any(map(_has_flux, every)))

    def counts(line: _Line, kinds: Set[str]) -> bool:
        if _ALWAYS in kinds or len(changing) * len(every) > MOST_PAIRS:
            return True
        if _ENDS in kinds and any(_fitting(line, as_text)):
            return True
        return _FILTER in kinds and not all(map(folders.is_pointer, _fitting(line, every))) and has_flux()

    return [*dict.fromkeys(line.file for line, kinds in changing if counts(line, kinds))]


MOST_PAIRS = 1_000_000
"""Maximum of lines that change files, times the names that each is compared with; of more, each line counts."""


def _has_flux(name: str) -> bool:
    try:
        return b"toolkit.fluxcd.io" in files.contents(name)
    except (OSError, files.Unfit):
        return False


class _Line(NamedTuple):
    """A line of a `.gitattributes`: a pattern for files below its folder, and their attributes.

    It defines a macro if the pattern is `[attr]` and a name.
    """

    file: str
    pattern: str
    words: Set[str]


_MACRO = "[attr]"


def _lines(name: str) -> Iterator[_Line]:
    try:
        text = files.contents(name).decode("utf-8-sig", "replace")
    except (OSError, files.Unfit):
        return
    for line in text.split("\n"):
        pattern, *words = _SPACE.split(line.strip(" \t\r"))
        if words and not pattern.startswith("#"):
            yield _Line(name, pattern, frozenset(words))


_SPACE = re.compile(r"[ \t\r]+")


def _changing(lines: Collection[_Line]) -> Iterator[tuple[_Line, Set[str]]]:
    """Yield the lines that may change files, and the kinds of their attributes."""
    kinds = _kinds(lines)
    for line in lines:
        if found := {kind for word in line.words for kind in kinds[word]}:
            yield line, found


def _kinds(lines: Iterable[_Line]) -> Mapping[str, Set[str]]:
    """Return the kinds of each attribute, and of each macro by the attributes in it."""
    macros, found, left = defaultdict[str, list[str]](list), defaultdict[str, set[str]](set), list[tuple[str, str]]()
    for line in lines:
        for word in line.words:
            if line.pattern.startswith(_MACRO):
                macros[word].append(line.pattern.removeprefix(_MACRO))
            if kind := _kind(word):
                left.append((word, kind))
    while left:
        word, kind = left.pop()
        if kind not in found[word]:
            found[word].add(kind)
            left += ((macro, kind) for macro in macros[word])
    return found


_ALWAYS, _ENDS, _FILTER = "always", "ends", "filter"


def _kind(word: str) -> str:
    """Return in which files an attribute may change bytes: always, for line ends or by a filter; empty for others."""
    if word == "ident" or word.startswith("working-tree-encoding="):
        return _ALWAYS
    return _ENDS if word == "eol=crlf" else _FILTER if word.startswith("filter=") else ""


def _fitting(line: _Line, reals: Iterable[str]) -> Iterator[str]:
    """Yield those files, by their real paths, that fit the pattern of a line, or that may fit it.

    A pattern without a slash fits names. Git may read one that is quoted, or not plain, otherwise than Python.
    """
    steps = line.pattern.removeprefix("/").split("/") if "/" in line.pattern else ["**", line.pattern]
    is_plain = PLAIN.fullmatch(line.pattern) and not line.pattern.startswith('"')
    if not is_plain or len(line.pattern) > LONGEST_PATTERN or len(steps) > _MOST_STEPS:
        steps = ["**"]
    tests = [None if step == "**" else matcher(step) for step in steps]
    top = os.path.join(os.path.realpath(os.path.dirname(line.file)), "")  # noqa: PTH118, PTH120
    return (real for real in reals if real.startswith(top) and fits(real.removeprefix(top).split("/"), tests))


_MOST_STEPS = 20
"""Maximum parts of a pattern that are compared."""
