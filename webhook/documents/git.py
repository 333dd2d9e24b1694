"""Reads files from a revision of a Git repository by `git cat-file`, and writes them out for a rendering."""

import io
import os
import posixpath
import shutil
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath

from webhook.documents.documents import Document, read
from webhook.documents.files import MAX_FILE, SUFFIXES
from webhook.model import Problem, Unusable
from webhook.text.words import shown


def load(path: str, inside: Sequence[str] | None) -> list[Document]:
    """Read the file REV:PATH, or the files directly in that folder. Raises Unusable.

    It raises even if only one document is unreadable, because a policy cannot be used in part. `inside` is the result
    of `names` for the path. PATH starts at the root of the repository, `./PATH` and `../PATH` at the working folder.
    """
    visible = (name for name in inside or () if not name.startswith(".") and name.lower().endswith(SUFFIXES))
    files = [path] if inside is None else [f"{path.rstrip('/')}/{name}" for name in visible]
    documents: list[Document] = []
    for file in files:
        read_documents, problems = read(_git(file, "cat-file", "blob", most=MAX_FILE), file)
        if problems:
            raise Unusable(problems)
        documents += read_documents
    return documents


def names(path: str) -> Sequence[str] | None:
    """Return the names directly in the folder REV:PATH; None for a file. Raises Unusable."""
    if _git(path, "cat-file", "-t").strip() != "tree":
        return None
    return [
        name for name in os.fsdecode(_run(path, *_LIST, "--name-only", "--end-of-options", path)).split("\0") if name
    ]


MAX_READ = 256 * 2**20
"""Bytes of all files of a revision that are written for a rendering: more are refused."""

MAX_DATA = 2**20
"""Bytes of the largest file that is no manifest: a ConfigMap or a Secret has no more (kubernetes.io)."""

MAX_NAMES = 64 * 2**20
"""Bytes of the list of all names in a revision: more are refused. The list of Linux has 8 MB."""


@contextmanager
def written(path: str, kustomizations: Collection[str]) -> Iterator[tuple[str, str]]:
    """Write the manifests of a revision to a temporary folder, with all files that its kustomizations may read.

    Yields the temporary folder, and the folder in it that REV:PATH names. Both are deleted when the context ends. Each
    kustomization gets all files in its folder and below. The temporary folder counts as a Git repository.
    `kustomizations` are the names of files that make a folder a kustomization. Raises Unusable.
    """
    revision, _, inside = path.partition(":")
    if inside.startswith(("./", "../")):
        prefix = os.fsdecode(_run(path, "rev-parse", "--show-prefix")).removesuffix("\n")
        inside = posixpath.normpath(f"{prefix}{inside}")
    listed = dict(_names_and_oids(f"{revision}:"))
    folders = _outermost(name.removesuffix(last) for name in listed if (last := PurePath(name).name) in kustomizations)
    wanted = {name: oid for name, oid in listed.items() if _is_manifest(name) or _is_below(name, folders)}
    if wrong := next((name for name in wanted if not _is_checked_out(name)), ""):
        raise Unusable((Problem(path, 0, f"{shown(wrong)} is a name that Git never checks out"),))
    sizes = _sizes(path, wanted)
    wanted = {name: oid for name, oid in wanted.items() if _is_manifest(name) or sizes[name] <= MAX_DATA}
    if sum(map(sizes.__getitem__, wanted)) > MAX_READ:
        raise _too_much(path, MAX_READ, "manifests")
    with tempfile.TemporaryDirectory() as root:
        Path(root, ".git").mkdir()
        _write(path, root, wanted)
        yield root, str(Path(root, inside))


def _is_manifest(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _outermost(folders: Iterable[str]) -> list[str]:
    """Return the folders that are in no other, in order. Each ends with a slash, or is empty for the root."""
    found = list[str]()
    for folder in sorted(folders):
        if not found or not folder.startswith(found[-1]):
            found.append(folder)
    return found


def _is_below(name: str, outermost: Sequence[str]) -> bool:
    at = bisect_right(outermost, name)
    return at > 0 and name.startswith(outermost[at - 1])


def _is_checked_out(name: str) -> bool:
    """Whether Git writes a file of this name below a folder (verify_path in its read-cache.c)."""
    return {"", ".", "..", ".git"}.isdisjoint(name.lower().split("/"))


def _names_and_oids(whole: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the object of each file of a revision; a submodule is none."""
    for row in os.fsdecode(_run(whole, *_LIST, "-r", "--end-of-options", whole, most=MAX_NAMES)).split("\0"):
        about, _, name = row.partition("\t")  # MODE TYPE OID TAB NAME (git-ls-tree(1), OUTPUT FORMAT)
        if about.split()[1:2] == ["blob"]:
            yield name, about.split()[2]


_LIST = ("ls-tree", "--full-tree", "-z")


def _sizes(path: str, wanted: Mapping[str, str]) -> dict[str, int]:
    """Return the bytes of each file, of which none is read."""
    answers = _text(path, _run(path, "cat-file", "--batch-check", given=wanted.values())).splitlines()
    found = dict[str, int]()
    for name, answer in zip(wanted, answers, strict=True):
        size = answer.split()[-1]  # OID blob SIZE, or OID missing (git-cat-file(1), BATCH OUTPUT)
        if not size.isdecimal():
            raise Unusable((Problem(path, 0, f"{shown(name)} is not in this repository: fetch it"),))
        found[name] = int(size)
    return found


def _write(path: str, root: str, wanted: Mapping[str, str]) -> None:
    most = MAX_READ + len(wanted) * _ROW
    answers = io.BytesIO(_run(path, "cat-file", "--batch", given=wanted.values(), most=most))
    for name in wanted:
        size = int(answers.readline().split()[-1])
        try:
            Path(root, name).parent.mkdir(parents=True, exist_ok=True)
            Path(root, name).write_bytes(answers.read(size))
        except OSError as error:
            raise Unusable((Problem(path, 0, f"{shown(name)}: {error.strerror}"),)) from error
        answers.read(1)


_ROW = 128
"""Bytes that are enough for the line before each file, which has its object, type and size."""


def _git(path: str, *command: str, most: int = MAX_NAMES) -> str:
    return _text(path, _run(path, *command, "--end-of-options", path, most=most))


def _run(path: str, *command: str, given: Iterable[str] = (), most: int = MAX_NAMES) -> bytes:
    """Run git with some lines as its input. Raises Unusable, also when it writes more bytes than allowed."""
    git = shutil.which("git")
    if git is None:
        raise Unusable((Problem(path, 0, "no such file, and git is not installed to read it from a revision"),))
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as errors:
        asked.writelines(f"{line}\n".encode() for line in given)
        asked.seek(0)
        with subprocess.Popen(  # noqa: S603 - a list, and nothing in it can become an option
            [git, *command], stdin=asked, stdout=subprocess.PIPE, stderr=errors
        ) as running:
            assert running.stdout is not None  # noqa: S101 - it is a pipe
            data = running.stdout.read(most + 1)
            if len(data) > most:
                running.kill()
                raise _too_much(path, most, "data")
        if running.returncode:
            errors.seek(0)
            reason = errors.read().decode("utf-8", "replace").strip().partition("\n")[0].removeprefix("fatal: ")
            raise Unusable((Problem(path, 0, f"git: {reason}"),))
    return data


def _too_much(path: str, most: int, what: str) -> Unusable:
    return Unusable((Problem(path, 0, f"the revision has more than {most // 2**20} MiB of {what}"),))


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unusable((Problem(path, 0, "not text in UTF-8"),)) from error
