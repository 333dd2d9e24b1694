"""Finds the files that a source of Flux leaves out of what it fetches.

Flux builds a folder whose kustomization is left out from all of its files, without patches. Sources: fluxcd/pkg
sourceignore/sourceignore.go; go-git plumbing/format/gitignore/matcher.go.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from webhook.documents.gitignore import IgnorePattern, patterns
from webhook.rendering.tree import Tree, Unseen

FILE = ".sourceignore"
"""The name of the files with patterns, which count below their folders."""

MOST_LINES = 10_000
"""Maximum lines with patterns in a file."""


def left_out(tree: Tree, names: Iterable[str], more: str) -> str:
    """Return the first file that a source leaves out by files with patterns or by `more` of them; empty if none is.

    If it cannot be told, because a file is not readable or there are too many patterns, that file counts too.
    """
    for name in names:
        try:
            path = tree.checked(name).split("/")
            found = [*_above(tree, name, path), *_read(more, ())]
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
            yield from _read(tree.data(file).decode("utf-8", "replace"), tuple(path[:depth]))


@lru_cache(256)
def _read(text: str, folder: tuple[str, ...]) -> tuple[IgnorePattern, ...]:
    """Return the patterns in a text. Raises Unseen."""
    if text.count("\n") > MOST_LINES:
        raise Unseen(f"more than {MOST_LINES:,} patterns")
    return tuple(patterns(text, folder))
