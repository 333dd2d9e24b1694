"""Reads files from a revision of a Git repository by `git cat-file`."""

import shutil
import subprocess

from webhook.documents.documents import Document, read
from webhook.documents.files import SUFFIXES
from webhook.model import Problem, Unusable


def load(path: str) -> list[Document]:
    """Read the file REV:PATH, or the files directly in that folder. PATH starts at the root, `./PATH` here.

    Raises Unusable even if only one document is unreadable, because a policy cannot be used in part.
    """
    kind = _git(path, "cat-file", "-t").strip()
    if kind == "tree":
        names = _git(path, "ls-tree", "--full-tree", "-z", "--name-only").split("\0")
        inside = [f"{path.rstrip('/')}/{name}" for name in names if not name.startswith(".")]
        files = [file for file in inside if file.lower().endswith(SUFFIXES)]
    else:
        files = [path]
    documents: list[Document] = []
    for file in files:
        read_documents, problems = read(_git(file, "cat-file", "blob"), file)
        if problems:
            raise Unusable(problems)
        documents += read_documents
    return documents


def _git(path: str, *command: str) -> str:
    git = shutil.which("git")
    if git is None:
        raise Unusable((Problem(path, 0, "no such file, and git is not installed to read it from a revision"),))
    done = subprocess.run(  # noqa: S603 - a list, and nothing in it can become an option
        [git, *command, "--end-of-options", path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0].removeprefix("fatal: ")
        raise Unusable((Problem(path, 0, f"git: {reason}"),))
    try:
        return done.stdout.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unusable((Problem(path, 0, "not text in UTF-8"),)) from error
