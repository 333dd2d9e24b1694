"""Files and folders of YAML and JSON, as people have them, read from disk."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath

from webhook.dialect import Mark
from webhook.documents import Document, read
from webhook.model import Object, Path, Problem

SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, eq=False)
class Item:
    """One Kubernetes object: a document, or an item of a List in it at `base`."""

    document: Document
    base: Path
    value: Object

    def line(self, path: Path = (), text_line: int = 0) -> int:
        """The line of a place in the object, or of a line within the text that stands there."""
        return self.document.line((*self.base, *path), text_line)


def alone(value: Object) -> Item:
    """An object that stands in no file, as one from a cluster: its lines are 0."""
    return Item(Document("", 0, value, partial(Mark, 0)), (), value)


def load(paths: Iterable[str]) -> tuple[list[Document], list[Problem]]:
    """Read files, folders (all YAML and JSON files below that are not hidden, by name) and `-` (standard input).

    What cannot be read becomes a problem, and the rest is still read.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    for name in paths:
        for file in _files(name):
            try:
                data = sys.stdin.buffer.read() if file == "-" else FilePath(file).read_bytes()
                if file == "-" and not data.strip():  # whatever should have written it failed, perhaps
                    problems.append(Problem(file, 0, "standard input is empty"))
                    continue
                found, bad = read(data.decode("utf-8"), file)
            except OSError as error:
                problems.append(Problem(file, 0, error.strerror or str(error)))
            except UnicodeDecodeError as error:
                problems.append(Problem(file, data.count(b"\n", 0, error.start) + 1, "not text in UTF-8"))
            else:
                documents += found
                problems += bad
    return documents, problems


def _files(name: str) -> Iterator[str]:
    folder = FilePath(name)
    if name == "-" or not folder.is_dir():
        yield name
        return
    for file in sorted(folder.rglob("*")):
        # A mounted ConfigMap holds its files a second time, in a folder whose name begins with two dots.
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if not hidden and file.suffix.lower() in SUFFIXES and file.is_file():
            yield str(file)


def items(documents: Iterable[Document]) -> tuple[list[Item], list[Problem]]:
    """Take the Kubernetes objects out of documents, Lists opened.

    A document with neither apiVersion nor kind is some other file, such as a chart's values, and is passed over.
    """
    found: list[Item] = []
    problems: list[Problem] = []
    for document in documents:
        _open(Item(document, (), document.value), found, problems)
    return found, problems


def _open(item: Item, found: list[Item], problems: list[Problem]) -> None:
    value = item.value
    if not isinstance(value, dict) or not ("kind" in value or "apiVersion" in value):
        if item.base:
            problems.append(Problem(item.document.file, item.line(), "an item of a List must be an object"))
        elif isinstance(value, list) and any(isinstance(each, dict) and "kind" in each for each in value):
            problems.append(
                Problem(item.document.file, item.line(), "objects in a bare list: put them in a kind: List")
            )
        return
    for key in ("apiVersion", "kind"):
        if not isinstance(value.get(key), str) or not value[key]:
            said = "must be a string" if key in value else "is missing"
            problems.append(Problem(item.document.file, item.line((key,)), f"{key} {said}"))
            return
    if value["kind"].endswith("List") and "items" in value:
        if not isinstance(value["items"], list):
            problems.append(Problem(item.document.file, item.line(("items",)), "items must be a list"))
            return
        for index, each in enumerate(value["items"]):
            each = _with_type(each, value)
            _open(Item(item.document, (*item.base, "items", index), each), found, problems)
    else:
        found.append(item)


def _with_type(value: Object, parent: Object) -> Object:
    """Give an item of a typed list (PodList) the kind that the list implies and the API leaves out."""
    implied = parent["kind"].removesuffix("List")
    if implied and isinstance(value, dict) and "kind" not in value:
        return {"apiVersion": parent["apiVersion"], "kind": implied, **value}
    return value
