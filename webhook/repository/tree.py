"""Reads the files that renderings may read: those of the repository, without its hidden folders."""

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain

from webhook.documents import files
from webhook.documents.documents import Document
from webhook.documents.gitignore import Matcher
from webhook.model import Problem
from webhook.repository import kustomizations
from webhook.text.words import shown

MAX_READ = 256 * 2**20
"""Bytes of all files of one rendering: more are refused."""


LONGEST_PATTERN = 4096
"""Maximum characters of a pattern of a generator, as of a path: a longer one is refused."""

MAX_LOOKS = 20_000_000
"""How often the patterns of all generators may compare one of their parts with a part of a path."""

_SEEN = (".", ".helmignore", ".sourceignore")
"""Parts of paths that are not hidden, though they begin with a dot: most charts have the second (helm create)."""


class Unseen(Exception):
    """A part of a rendering cannot be read.

    It is `remote` if no file of the repository has it, `outside` if it is a file or folder outside the repository, and
    `absent` if it does not exist.
    """

    def __init__(self, reason: str, *, remote: bool = False, outside: bool = False, absent: bool = False) -> None:
        super().__init__(reason)
        self.remote, self.outside, self.absent = remote, outside, absent


def root_of(path: str) -> str:
    """Return the real path of the repository around a path; without Git, of the working folder or the path's own."""
    real = os.path.realpath(path)
    folder = real if os.path.isdir(real) else os.path.dirname(real)
    here, at = os.path.realpath("."), folder
    while True:
        if os.path.lexists(os.path.join(at, ".git")):
            return at
        above = os.path.dirname(at)
        if above == at:
            break
        at = above
    return here if folder == here or folder.startswith(here.rstrip("/") + "/") else folder


class Tree:
    """Reads files of the repository by their names, and remembers the names.

    A file outside the repository is refused, also if a link leads to it. `followed` counts the objects and files of all
    kustomizations, each as often as it is included.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.read: dict[tuple[str, bool], bytes] = {}
        self.followed = 0
        self._bytes = 0
        self._documents: dict[str, list[Document] | Unseen] = {}
        self._firsts: dict[str, Document | Problem | None] = {}
        self._matching: dict[tuple[str, bool], list[str]] = {}
        self._folders: dict[tuple[str, bool], str | None] = {}
        self._hidden: dict[tuple[str, bool], str] = {}
        self._plain: dict[tuple[str, bool], list[str]] = {}
        self._jsonnet: dict[tuple[str, bool], str] = {}
        self._overrides: dict[str, list[str]] = {}
        self._submodules: dict[tuple[str, bool], str] = {}
        self._looked = 0
        self._noted = set[str]()

    @contextmanager
    def noting(self) -> Iterator[set[str]]:
        """Collect the names of the files that are asked for meanwhile, also if they are known already or absent."""
        before, self._noted = self._noted, set()
        try:
            yield self._noted
        finally:
            self._noted = before

    def checked(self, name: str, *, hidden: bool = False) -> str:
        """Return the name of a readable file or folder, relative to the root. Raises Unseen.

        With `hidden`, it may be a hidden one, but none of Git's own.
        """
        if "\0" in name:
            raise Unseen(f"{shown(name)} is no path", outside=True)
        above, own = os.path.split(name)
        folder = self._folder(above, hidden=hidden)
        if own in ("", ".", "..") or os.path.islink(name):
            real = os.path.relpath(os.path.realpath(name), self.root)
        else:
            real = own
        if folder is None or _is_refused(real, hidden=hidden):
            raise Unseen(f"{name} leads out of the repository, or into a hidden folder", outside=True)
        return os.path.normpath(os.path.join(folder, own))

    def _folder(self, name: str, *, hidden: bool) -> str | None:
        """Return the real path of a folder from the root; None if it is refused."""
        if (name, hidden) not in self._folders:
            real = os.path.relpath(os.path.realpath(name), self.root)
            self._folders[name, hidden] = None if _is_refused(real, hidden=hidden) else real
        return self._folders[name, hidden]

    def data(self, name: str, *, hidden: bool = False) -> bytes:
        """Return the contents of a file; with `hidden`, also of a hidden one. Raises Unseen."""
        name = os.path.normpath(name)
        self._noted.add(name)
        if (name, hidden) not in self.read:
            self.checked(name, hidden=hidden)
            try:
                self.read[name, hidden] = files.contents(name)
            except (OSError, files.Unfit) as error:
                absent = isinstance(error, FileNotFoundError)
                raise Unseen(f"{name} {'does not exist' if absent else error}", absent=absent) from error
            self._bytes += len(self.read[name, hidden])
            if self._bytes > MAX_READ:
                raise Unseen(f"more than {MAX_READ // 2**20} MiB are read")
        return self.read[name, hidden]

    def documents(self, name: str) -> list[Document]:
        """Return the documents of a file. Raises Unseen."""
        name = os.path.normpath(name)
        self._noted.add(name)
        if name not in self._documents:
            self.data(name)
            self._documents[name] = _read(name)
        found = self._documents[name]
        if isinstance(found, Unseen):
            raise found
        return found

    def first(self, name: str) -> Document:
        """Return the first document of a file: of a kustomization, as kustomize reads it. Raises Unseen."""
        name = os.path.normpath(name)
        if name not in self._firsts:
            data, is_kustomization = self.data(name), os.path.basename(name) in files.KUSTOMIZATIONS
            self._firsts[name] = kustomizations.first(data, name) if is_kustomization else next(files.read(name), None)
        found = self._firsts[name]
        if isinstance(found, Problem):
            raise Unseen(f"{found.file}:{found.line}: {found.message}")
        if found is None:
            raise Unseen(f"{name} is empty", absent=True)
        return found

    def is_folder(self, name: str) -> bool:
        """Whether a name is that of a folder."""
        return os.path.isdir(name)

    def kustomization(self, folder: str) -> str:
        """Return the file that makes a folder a kustomization; empty if it has none."""
        names = (os.path.normpath(os.path.join(folder, name)) for name in files.KUSTOMIZATIONS)
        return next((name for name in names if os.path.isfile(name)), "")

    def plain(self, folder: str, *, recurse: bool) -> list[str]:
        """Return the files of a folder that Argo CD applies unchanged, including those that belong to a kustomization.

        It leaves out a file with a certain text (argo-cd reposerver/repository/repository.go, findManifests).
        """
        found = (each for each in self._below(folder, recurse=recurse) if each.endswith(files.SUFFIXES))
        if (folder, recurse) not in self._plain:
            self._plain[folder, recurse] = [
                each
                for each in found
                if not os.path.basename(each).startswith(".")
                and os.path.basename(each) not in files.KUSTOMIZATIONS
                and not self._is_skipped(each)
            ]
        return self._plain[folder, recurse]

    def jsonnet(self, folder: str, *, recurse: bool) -> str:
        """Return the first file of Jsonnet that Argo CD reads in a folder; empty if there is none."""
        if (folder, recurse) not in self._jsonnet:
            found = (each for each in self._below(folder, recurse=recurse, hidden=True) if each.endswith(".jsonnet"))
            self._jsonnet[folder, recurse] = next(found, "")
        return self._jsonnet[folder, recurse]

    def _below(self, folder: str, *, recurse: bool, hidden: bool = False) -> Iterator[str]:
        for at, folders, names in os.walk(folder):
            folders[:] = sorted(each for each in folders if recurse and (hidden or not each.startswith(".")))
            yield from (os.path.normpath(os.path.join(at, name)) for name in sorted(names))

    def submodule(self, folder: str, *, recurse: bool) -> str:
        """Return a folder that may be a submodule of Git which is not checked out; empty if there is none.

        It is an empty folder in a repository with submodules: Git keeps no other empty folder.
        """
        if (folder, recurse) not in self._submodules:
            modules = os.path.lexists(os.path.join(self.root, ".gitmodules"))
            self._submodules[folder, recurse] = next(_empty(folder, recurse=recurse), "") if modules else ""
        return self._submodules[folder, recurse]

    def overrides(self, folder: str) -> list[str]:
        """Return the names of the files in a folder that may override an Application of Argo CD."""
        if folder not in self._overrides:
            self._overrides[folder] = sorted(each for each in os.listdir(folder) if each.startswith(".argocd-source"))
        return self._overrides[folder]

    def _is_skipped(self, name: str) -> bool:
        try:
            return _SKIPPED in self.data(name)
        except Unseen:
            return False

    def manifests(self, folder: str) -> Iterator[str]:
        """Yield the files and the kustomizations in a folder that has no kustomization, as Flux generates one.

        Source: fluxcd/pkg kustomize/kustomize_generator.go (scanManifests).
        """
        for at, folders, names in os.walk(folder):
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            for each in [*folders]:
                if self.kustomization(os.path.join(at, each)):
                    folders.remove(each)
                    yield os.path.normpath(os.path.join(at, each))
            for name in sorted(names):
                if name.lower().endswith((".yaml", ".yml")) and not name.startswith("."):
                    yield os.path.normpath(os.path.join(at, name))

    def hidden(self, folder: str, *, built: bool = False) -> str:
        """Return a hidden file, or a hidden folder's kustomization, that is applied from a folder; empty if none is.

        Flux applies none below a kustomization. Argo CD also applies those that are `built`.
        """
        if (folder, built) not in self._hidden:
            found = files.hidden([folder])
            own = (each for each in found if built or not self._built(os.path.dirname(each) or ".", folder))
            self._hidden[folder, built] = next(chain(self._hidden_kustomizations(folder), own), "")
        return self._hidden[folder, built]

    def _hidden_kustomizations(self, top: str) -> Iterator[str]:
        """Yield the kustomizations in hidden folders below a folder, without those below another kustomization."""
        for at, folders, _ in os.walk(top):
            name = self.kustomization(at) if at != top else ""
            if name and any(part.startswith(".") for part in os.path.relpath(at, top).split("/")):
                yield name
            folders[:] = sorted(each for each in folders if each != ".git" and not name)

    def _built(self, folder: str, top: str) -> bool:
        """Whether a folder, or one above it and below another, has a kustomization."""
        return folder != top and (bool(self.kustomization(folder)) or self._built(os.path.dirname(folder) or ".", top))

    @cached_property
    def _paths(self) -> list[str]:
        """All paths in the repository, in order; no link is followed, and no hidden folder is read."""
        found = list[str]()
        for at, folders, names in os.walk(self.root):
            folders[:] = [each for each in folders if not each.startswith(".")]
            found += (os.path.relpath(os.path.join(at, name), self.root) for name in (*folders, *names))
        return sorted(found)

    @cached_property
    def _files(self) -> list[str]:
        """The paths of all files in the repository but Git's own, in order; no link is followed."""
        found = list[str]()
        for at, folders, names in os.walk(self.root):
            folders[:] = [each for each in folders if each != ".git"]
            found += (os.path.relpath(os.path.join(at, name), self.root) for name in names)
        return sorted(found)

    def look(self, count: int) -> None:
        """Count comparisons of a pattern with paths. Raises Unseen if they become too many."""
        self._looked += count
        if self._looked > MAX_LOOKS:
            raise Unseen(f"the patterns are compared more than {MAX_LOOKS:,} times")

    def matching(self, pattern: str, *, across: bool = False) -> list[str]:
        """Return the paths that fit a pattern, part by part as in Go's path.Match. Raises Unseen.

        With `across`, they are files, also hidden ones. Then `**` is any number of folders, `*` may fit a slash too,
        and a folder stands for all files below it, as in a pathspec of Git.
        """
        key = pattern, across
        if key not in self._matching:
            normal, paths = os.path.normpath(pattern.lstrip("/")), self._files if across else self._paths
            parts = (normal if across else pattern).split("/")
            self.look(sum(path.count("/") + 1 for path in paths) * len(parts) * (1 + across))
            tests = [None if part == "**" and across else matcher(part) for part in parts]
            whole = matcher(normal)
            below = "" if normal == "." else f"{normal}/"
            self._matching[key] = [
                path
                for path in paths
                if fits(path.split("/"), tests) or (across and (whole(path) or path.startswith(below)))
            ]
        self.look(len(self._matching[key]))
        return self._matching[key]


_SKIPPED = b"+argocd:skip-file-rendering"
"""The text in a file that Argo CD leaves out."""


def _is_refused(path: str, *, hidden: bool) -> bool:
    """Whether a path from the root leads out of it, or into a hidden folder; with `hidden`, into one of Git's own."""
    parts = path.split("/")
    if hidden:
        return not {"..", ".git"}.isdisjoint(parts)
    return any(part.startswith(".") and part not in _SEEN for part in parts)


def matcher(pattern: str) -> Matcher:
    """Return a function that compares names with a pattern, which is compiled only once. Raises Unseen."""
    if len(pattern) > LONGEST_PATTERN:
        raise Unseen(f"a pattern has more than {LONGEST_PATTERN:,} characters")
    return re.compile(fnmatch.translate(pattern)).match


def fits(path: Sequence[str], tests: Iterable[Matcher | None]) -> bool:
    """Whether a path fits a pattern, in which None is any number of folders; in steps by both lengths."""
    fits = [True, *(False for _ in path)]
    for test in tests:
        if test is None:
            start = fits.index(True) if True in fits else len(fits)
            fits = [index >= start for index in range(len(fits))]
        else:
            fits = [False, *(before and test(name) is not None for before, name in zip(fits, path, strict=False))]
    return fits[-1]


def _empty(top: str, *, recurse: bool) -> Iterator[str]:
    """Yield a folder if it is empty but for a file of Git's, and with `recurse` such folders below it."""
    for at, folders, names in os.walk(top):
        folders[:] = sorted(each for each in folders if each != ".git")
        if not (folders or {*names} - {".git"}):
            yield os.path.normpath(at)
        folders[:] = folders if recurse else []


def _read(name: str) -> list[Document] | Unseen:
    found = list[Document]()
    for each in files.read(name):
        if isinstance(each, Problem):
            return Unseen(f"{each.file}:{each.line}: {each.message}")
        found.append(each)
    return found
