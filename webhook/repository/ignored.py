"""Finds the files that a source of Flux leaves out of what it fetches.

Flux builds a folder whose kustomization is left out from all of its files, without patches. Sources: fluxcd/pkg
sourceignore/sourceignore.go and artifact/storage/archive.go; go-git plumbing/format/gitignore/matcher.go.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from webhook.documents.gitignore import IgnorePattern, patterns
from webhook.repository.tree import Tree, Unseen

FILE = ".sourceignore"
"""The name of the files with patterns, which count below their folders."""

MOST_LINES = 10_000
"""Maximum lines with patterns in a file."""

_LONGEST_LINE = 16_000
"""Maximum characters of a line: Go's bufio.Scanner stops at one of 64 KiB, and a character has at most 4 bytes."""

_DEFAULTS = """\
.git/ .gitignore .gitmodules .gitattributes *.jpg *.jpeg *.gif *.png *.wmv *.flv *.tar.gz *.zip .github/ .circleci/
.travis.yml .gitlab-ci.yml appveyor.yml .drone.yml cloudbuild.yaml codeship-services.yml codeship-steps.yml
**/.goreleaser.yml **/.sops.yaml **/.flux.yaml"""
"""The patterns of Flux itself. Those after .gitattributes count for Flux only if a source has no others."""


def left_out(tree: Tree, names: Iterable[str], more: str) -> str:
    """Return the first file that a source leaves out by files with patterns or by `more` of them; empty if none is.

    If it cannot be told, because a file is not readable or there are too many patterns, that file counts too. So does
    one behind a link, or in a submodule: Flux fetches neither.
    """
    known = dict[str, list[IgnorePattern]]()
    for name in names:
        try:
            path, above = tree.checked(name, hidden=True).split("/"), os.path.dirname(name)
            if above not in known:
                known[above] = [*_read("\n".join(_DEFAULTS.split()), ()), *_above(tree, name, path), *_read(more, ())]
            tree.look(sum(len(each.steps) + len(each.folder) for each in known[above]) * len(path))
        except Unseen:
            return name
        last = next((each for each in reversed(known[above]) if each.fits(path)), None)
        if os.path.islink(name) or (last is not None and not last.includes):
            return name
    return ""


def _above(tree: Tree, name: str, path: Sequence[str]) -> Iterator[IgnorePattern]:
    """Yield the patterns of the files in all folders above a file, from the top of the repository.

    Raises Unseen, also if one of the folders is a link or a repository of its own.
    """
    above = os.path.dirname(name)
    while above and os.path.realpath(above) != tree.root:
        if os.path.islink(above) or os.path.lexists(os.path.join(above, ".git")):
            raise Unseen(f"{above} is a link or another repository")
        above = os.path.dirname(above)
    for depth in range(len(path)):
        folder = os.path.normpath(os.path.join(os.path.dirname(name), *[".."] * (len(path) - 1 - depth)))
        file = os.path.normpath(os.path.join(folder, FILE))
        if os.path.lexists(file):
            yield from _read(tree.data(file).decode("utf-8", "surrogateescape"), tuple(path[:depth]))


@lru_cache(256)
def _read(text: str, folder: tuple[str, ...]) -> tuple[IgnorePattern, ...]:
    """Return the patterns in a text. Raises Unseen."""
    if text.count("\n") > MOST_LINES or max(map(len, text.split("\n"))) > _LONGEST_LINE:
        raise Unseen(f"more than {MOST_LINES:,} patterns, or one of more than {_LONGEST_LINE:,} characters")
    return tuple(patterns(text, folder))
