"""Says which files and folders have changed, also where a link on the way to them has."""

import os
from collections.abc import Iterable
from pathlib import PurePath

from webhook.repository import chart_folders
from webhook.repository.tree import Tree, Unseen

_MOST_LINKS = 40
"""Maximum number of links on the way to a file, as for the kernel."""

_Way = tuple[str, frozenset[str]]
"""The real path of a file, and the links on the way to it."""


class Touched:
    """The names that have changed. A name that no longer exists may have been any file below the folders around it."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {step for name in names for step in (os.path.realpath(name), _own(name))}
        self._gone = {
            str(folder) for name in self._names if not os.path.lexists(name) for folder in PurePath(name).parents
        }
        self._ways = dict[str, _Way]()

    def has(self, name: str) -> bool:
        """Whether a file or folder has changed, or a link on the way to it."""
        real, links = self._way(os.path.abspath(name))
        return real in self._names or not links.isdisjoint(self._names)

    def any(self, names: Iterable[str]) -> bool:
        """Whether one of some files has changed."""
        return bool(self._names) and any(map(self.has, names))

    def had(self, folder: str) -> bool:
        """Whether a file below a folder no longer exists."""
        return os.path.realpath(folder) in self._gone

    def has_chart(self, tree: Tree, folder: str) -> bool:
        """Whether a file of a chart has changed, or one of a chart that it depends on by a path."""
        return any(self._has_below(tree, each) for each in chart_folders.folders(tree, folder))

    def _has_below(self, tree: Tree, folder: str) -> bool:
        folders = {os.path.realpath(folder)}
        try:
            for path in chart_folders.paths(tree, folder):
                real, links = self._way(os.path.abspath(path))
                if real in self._names or not links.isdisjoint(self._names):
                    return True
                folders |= {os.path.dirname(real)} if path != folder else set()
        except Unseen:  # a link may lead to a file that is gone
            if self._gone:
                return True
        below = tuple(f"{each}/" for each in folders)
        return any(name.startswith(below) for name in self._names)

    def _way(self, path: str) -> _Way:
        """Return the real path of an absolute one, and the links on the way to it."""
        above, own = os.path.split(path)
        if above not in self._ways:
            self._ways[above] = _followed(above)
        real, links = self._ways[above]
        here = os.path.join(real, own)
        return _followed(path) if os.path.islink(here) else (here, links)


def _followed(path: str) -> _Way:
    here, links, left = "/", list[str](), path.split("/")[::-1]
    while left:
        part = left.pop()
        step = os.path.dirname(here) if part == ".." else os.path.normpath(os.path.join(here, part))
        if os.path.islink(step) and len(links) < _MOST_LINKS:
            links.append(step)
            target = os.readlink(step)
            here = "/" if os.path.isabs(target) else here
            left += target.split("/")[::-1]
        else:
            here = step
    return here, frozenset(links)


def _own(name: str) -> str:
    """Return the path of a name in the real folder around it, where it may be a link."""
    above, own = os.path.split(os.path.normpath(os.path.abspath(name)))
    return os.path.join(os.path.realpath(above), own)
