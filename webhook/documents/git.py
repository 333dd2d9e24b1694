"""Reads files from a revision of a Git repository by `git cat-file`, and writes them out for a rendering."""

import io
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath

from webhook.documents.documents import Document, read
from webhook.documents.files import SUFFIXES
from webhook.model import Problem, Unusable


def load(path: str) -> list[Document]:
    """Read the file REV:PATH, or the files directly in that folder. PATH starts at the root, `./PATH` here.

    Raises Unusable even if only one document is unreadable, because a policy cannot be used in part.
    """
    inside = names(path)
    shown = (name for name in inside or () if not name.startswith(".") and name.lower().endswith(SUFFIXES))
    files = [path] if inside is None else [f"{path.rstrip('/')}/{name}" for name in shown]
    documents: list[Document] = []
    for file in files:
        read_documents, problems = read(_git(file, "cat-file", "blob"), file)
        if problems:
            raise Unusable(problems)
        documents += read_documents
    return documents


def names(path: str) -> Sequence[str] | None:
    """Return the names directly in the folder REV:PATH; None for a file. Raises Unusable."""
    if _git(path, "cat-file", "-t").strip() != "tree":
        return None
    return [name for name in _git(path, "ls-tree", "--full-tree", "-z", "--name-only").split("\0") if name]


MAX_READ = 256 * 2**20
"""Bytes of all files of a revision that are written for a rendering: more are refused."""


@contextmanager
def written(path: str, others: Collection[str]) -> Iterator[tuple[str, str]]:
    """Write the manifests of a revision, and files of other names. Yields their root and the folder of REV:PATH in it.

    The root is a repository of its own, which ends with the context. Raises Unusable.
    """
    revision, _, inside = path.partition(":")
    if inside.startswith("./"):
        inside = _text(path, _run(path, "rev-parse", "--show-prefix")).strip() + inside[2:]
    whole = f"{revision}:"
    listing = _git(whole, "ls-tree", "--full-tree", "-r", "-z", "--name-only").split("\0")
    listed = (name for name in listing if name.lower().endswith(SUFFIXES) or PurePath(name).name in others)
    wanted = [name for name in listed if "\n" not in name]
    data = _run(path, "cat-file", "--batch", given="".join(f"{whole}{name}\n" for name in wanted))
    if len(data) > MAX_READ:
        raise Unusable((Problem(path, 0, f"the revision has more than {MAX_READ // 2**20} MiB of manifests"),))
    with tempfile.TemporaryDirectory() as root:
        Path(root, ".git").mkdir()
        answers = io.BytesIO(data)
        for name in wanted:
            size = int(answers.readline().split()[-1])  # OID blob SIZE (git-cat-file(1), BATCH OUTPUT)
            Path(root, name).parent.mkdir(parents=True, exist_ok=True)
            Path(root, name).write_bytes(answers.read(size))
            answers.read(1)
        yield root, str(Path(root, inside))


def _git(path: str, *command: str) -> str:
    return _text(path, _run(path, *command, "--end-of-options", path))


def _run(path: str, *command: str, given: str = "") -> bytes:
    git = shutil.which("git")
    if git is None:
        raise Unusable((Problem(path, 0, "no such file, and git is not installed to read it from a revision"),))
    done = subprocess.run(  # noqa: S603 - a list, and nothing in it can become an option
        [git, *command],
        input=given.encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0].removeprefix("fatal: ")
        raise Unusable((Problem(path, 0, f"git: {reason}"),))
    return done.stdout


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unusable((Problem(path, 0, "not text in UTF-8"),)) from error
