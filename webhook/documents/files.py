"""Reads files and folders of YAML and JSON from disk."""

import errno
import glob
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path as FilePath
from typing import IO, Any, TypeGuard

from webhook.documents.documents import (
    READ,
    READ_BEFORE,
    Document,
    Skips,
    Source,
    first_document,
    stream,
    unskipped,
    whole,
)
from webhook.model import Object, Path, Problem, immutable

SUFFIXES = (".yaml", ".yml", ".json")

CHART = "Chart.yaml"
"""The file that makes a folder a chart (helm pkg/chartutil/chartfile.go)."""

KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
"""The files that make a folder a kustomization (kustomize api/konfig/general.go)."""


@immutable
class Item:
    """One Kubernetes object: a document, or the item at `base` of a List in it.

    If another object would create the object, the document has only the part `under` a path, at `base`. A rendered
    object has the `root` that it was rendered from, such as a kustomization's folder. It is `inside` if it may be
    only a part of another object of a cluster (see `is_list_of_cluster`), and so proves nothing about the cluster.
    """

    document: Document
    base: Path
    value: Object
    under: Path = ()
    root: str = ""
    inside: bool = False

    @property
    def source(self) -> str:
        """The name of the file. For an object from a cluster: its kind, namespace and name."""
        if self.document.file:
            return self.document.file
        metadata = self.value["metadata"]
        return f"{self.value['kind']} {'/'.join(filter(None, (metadata.get('namespace'), metadata.get('name'))))}"

    def line(self, path: Path = (), text_line: int = 0) -> int:
        """Return the line of a place in the object, or of a line within the text at that place."""
        return self.document.line((*self.base, *self.place(path)), text_line)

    def where(self, path: Path, text_line: int = 0) -> tuple[str, int]:
        """Return the file and the line of a place in the object: for a rendered one, where people edit it."""
        return self.document.file, self.line(path, text_line)

    def place(self, path: Path) -> Path:
        """Return the path of a place in the object from the item's base; empty for a place outside the document."""
        depth = len(self.under)
        return path[depth:] if path[:depth] == self.under else ()


def alone(value: Object) -> Item:
    """Return an item for an object without a file, such as one from a cluster. All its lines are 0."""
    return Item(Document("", 0, value, 0, Source("", 0)), (), value)


MAX_FILE = 64 * 2**20
"""Bytes of the largest file that is read. Ten thousand pods take 40 MB of JSON."""


def load(paths: Iterable[str]) -> tuple[list[Document], list[Problem]]:
    """Read all documents of the files of some paths (see `find`).

    A document that cannot be read, or with a repeated key, becomes a problem; the others are read.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    for name in find(paths):
        for one in (name,) if isinstance(name, Problem) else map(whole, read(name)):
            (documents if isinstance(one, Document) else problems).append(one)  # type: ignore[arg-type]
    return documents, problems


def find(paths: Iterable[str]) -> Iterator[str | Problem]:
    """Yield the files of some paths, in order and without repeats.

    A path is a file; a pattern with `*`, `?`, `[…]` or `**`; or `-` for standard input. A folder stands for all YAML
    and JSON files and kustomizations below it that are not hidden, sorted by name.
    """
    names: set[str] = set()
    for path in paths:
        for name in _expanded(path):
            if isinstance(name, Problem):
                yield name
            elif name not in names:
                names.add(name)
                yield name


def _expanded(path: str) -> Iterator[str | Problem]:
    places = _places(path)
    if not places:
        yield Problem(path, 0, "no YAML or JSON file matches")
    for place in places:
        yield from _within(place)


def _places(path: str) -> list[str]:
    """Return the files and folders that a path names: all that match it, for a pattern."""
    if path == "-" or os.path.lexists(path) or not glob.has_magic(path):
        return [path]
    names = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
    return [name for name in names if FilePath(name).is_dir() or is_read(FilePath(name))]


def _within(name: str) -> Iterator[str | Problem]:
    if name == "-" or not FilePath(name).is_dir():
        yield name
        return
    files: list[FilePath] = []
    problems: list[Problem] = []

    def failed(error: OSError) -> None:
        problems.append(Problem(str(error.filename), 0, error.strerror or str(error)))

    for folder, folders, names in os.walk(name, onerror=failed):
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        files += (FilePath(folder, file) for file in names if not file.startswith("."))
    yield from (str(file) for file in sorted(files) if is_read(file))
    yield from problems


def among(names: Iterable[str], paths: Iterable[str]) -> Callable[[str], bool]:
    """Return whether a file has one of some names, or lies below a folder among some paths, whatever its suffix is."""
    known = set(map(os.path.normpath, names))
    tops = {os.path.realpath(place) for place in chain.from_iterable(map(_places, paths)) if FilePath(place).is_dir()}

    def is_among(name: str) -> bool:
        above = FilePath(os.path.realpath(FilePath(name).parent))
        return os.path.normpath(name) in known or not tops.isdisjoint(map(str, (above, *above.parents)))

    return is_among


def is_read(file: FilePath) -> bool:
    """Whether a file of a folder is read: by its name it has YAML or JSON, or is a kustomization."""
    return file.suffix.lower() in SUFFIXES or file.name in KUSTOMIZATIONS


def hidden(paths: Iterable[str]) -> Iterator[str]:
    """Yield the hidden files below some folders that may have an object. kubectl reads them, and `find` does not."""
    return (name for name in all_hidden(paths) if name.endswith(SUFFIXES) and _has_object(name))


def all_hidden(paths: Iterable[str]) -> Iterator[str]:
    """Yield the hidden files below some folders, without those of Git.

    A file is hidden if its name, or that of a folder above it, begins with a dot (cli-runtime pkg/resource/visitor.go,
    ignoreFile).
    """
    for place in chain.from_iterable(map(_places, paths)):
        for folder, folders, names in os.walk(place):
            folders[:] = sorted(each for each in folders if each != ".git")
            inside = any(part.startswith(".") for part in FilePath(os.path.relpath(folder, place)).parts)
            for name in sorted(names):
                if inside or name.startswith("."):
                    yield os.path.normpath(os.path.join(folder, name))  # noqa: PTH118


def _has_object(name: str) -> bool:
    """Return whether kubectl finds an object in a file, or may find one in a part that we cannot read."""
    return may_hold_objects(name) and any(isinstance(one, Problem) or is_created(one.value) for one in read(name))


def is_created(value: Any) -> bool:
    """Return whether kubectl would create something from a document: it has a kind, and an apiVersion or items.

    A List needs no apiVersion (see `items`).
    """
    if not (isinstance(value, dict) and isinstance(value.get("kind"), str) and value["kind"]):
        return False
    version = value.get("apiVersion")
    return is_list(value) or (isinstance(version, str) and version != "")


def read(name: str, skips: Skips = unskipped) -> Iterator[Document | Problem]:
    """Read the documents of a file, or of standard input (`-`), one by one.

    `skips` decides for which documents only the kind is read.
    """
    try:
        data = contents(name)
    except OSError as error:
        yield Problem(name, 0, error.strerror or str(error))
        return
    except Unfit as error:
        yield Problem(name, 0, str(error))
        return
    yield from parsed(data, name, skips)


def parsed(data: bytes, name: str, skips: Skips = unskipped) -> Iterator[Document | Problem]:
    """Read the documents in the contents of a file, as `read` does."""
    if name == "-" and not data.strip():  # probably the program before the pipe failed
        yield Problem(name, 0, "standard input is empty")
        return
    text = _text(data, name)
    if isinstance(text, Problem):
        yield text
        return
    hint, some = _hint(text), name != "-"
    for one in stream(text, name, skips):
        some = some or isinstance(one, Problem) or isinstance(one.value, list) or _is_object(one.value)
        yield one._replace(message=one.message + hint) if hint and _may_be_template(one) else one
    if not some:  # the program before the pipe may have written an error message
        yield Problem(name, 0, "no Kubernetes object on standard input")


def first(data: bytes, name: str) -> Document | Problem | None:
    """Read the first document in the contents of a file, as go-yaml splits them; None if it is empty."""
    text = _text(data, name)
    one = text if isinstance(text, Problem) else first_document(text, name)
    if isinstance(text, str) and _may_be_template(one):
        return one._replace(message=one.message + _hint(text))
    return one


def _text(data: bytes, name: str) -> str | Problem:
    if data.startswith(_UTF16):  # kubectl reads only one of several documents in it
        return Problem(
            name, 1, "not text in UTF-8 but in UTF-16, as PowerShell writes it; save it by Out-File -Encoding utf8"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Problem(name, data.count(b"\n", 0, error.start) + 1, "not text in UTF-8")


def _hint(text: str) -> str:
    """Return the end of a problem with a text: whether it may be a template."""
    return TEMPLATE if _occurs(_TEMPLATED, text) else TERRAFORM if _occurs(_TERRAFORM, text) else ""


def _may_be_template(one: Document | Problem | None) -> TypeGuard[Problem]:
    """Whether a text that cannot be read may be a template: kubectl reads no part of it."""
    return isinstance(one, Problem) and not one.message.endswith((READ, READ_BEFORE))


_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and ("kind" in value or "apiVersion" in value)


TEMPLATE = "; it looks like a template: helm template CHART | slicewarden check -"
"""The end of a problem with a file that may be a template."""

MISPLACED = (
    "; it looks like a template among manifests, which kubectl refuses too: move it to a folder templates, or give it "
    "a name with .tpl, and check what it renders: helm template CHART | slicewarden check -"
)
"""The end of such a problem with a file that was found in a folder for manifests."""

TERRAFORM = "; it looks like a template of Terraform's: check what it renders"
"""The end of a problem's message if Terraform's template engine seems to read the file (templatefile)."""

_TERRAFORM = re.compile(r"%\{|^[ \t]*\$\{[^{}\n]*\}[ \t]*$", re.MULTILINE)

_TEMPLATED = re.compile(r"\{\{|\{%")
"""Actions of Go's and Jinja's templates."""

_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#.*", re.MULTILINE)


def _occurs(pattern: re.Pattern[str], text: str) -> bool:
    """Return whether a pattern occurs in a text outside of comments."""
    return bool(pattern.search(text) and pattern.search(_COMMENT.sub("", text)))


def is_template(name: str) -> bool:
    """Return whether a file is readable and has template actions."""
    try:
        return _occurs(_TEMPLATED, contents(name).decode("utf-8", "replace"))
    except (OSError, Unfit):
        return False


def may_hold_objects(name: str) -> bool:
    """Return whether kubectl may find an object in a file that could not be read here: whether any key can be `kind`.

    Only the word itself, an escape in quotes or a base64 tag can produce that key. A broken link has no objects.
    """
    try:
        data = contents(name).replace(b"\0", b"")  # every other byte in UTF-16
    except (FileNotFoundError, Unfit) as error:
        return isinstance(error, Unfit)
    except OSError as error:
        return error.errno != errno.ELOOP
    return bool(_KIND.search(data) or (b"!" in data and _TAG.search(data)))


_KIND = re.compile(rb"\bkind\b|\\[xuU\s\x80-\xff]")

_TAG = re.compile(rb"binary|%")  # the tag `!!binary`, whose letters may be escaped by %, or a directive that makes it


class Unfit(ValueError):
    """The file cannot be read, because it is too large or not a regular file, or no file can have its name."""


_STREAMS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Prefixes of names for open files, such as a shell's `<(…)`."""


def contents(name: str) -> bytes:
    """Return the bytes of a file, or of standard input (`-`). Raises OSError and Unfit."""
    if name == "-":
        return _limited(sys.stdin.buffer)
    if "\0" in name:
        raise Unfit("no path, because of a null byte in it")
    mode = FilePath(name).stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not (stat.S_ISREG(mode) or name.startswith(_STREAMS)):
        raise Unfit("neither a file nor a folder, but a pipe, a socket or a device; a stream is read as -")
    with FilePath(name).open("rb") as file:
        return _limited(file)


def _limited(file: IO[bytes]) -> bytes:
    data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise Unfit(f"larger than {MAX_FILE // 2**20} MiB, the maximum size of a file; split it")
    return data


def is_list(value: Object) -> bool:
    """Return whether kubectl takes an object for a List: if it has items.

    The name of the kind does not decide (apimachinery unstructured/helpers.go, unstructuredJSONScheme, and IsList).
    """
    return isinstance(value.get("items"), list)


def is_list_of_cluster(value: Object) -> bool:
    """Return whether an object with items is a List of objects of the cluster, and not one object of its own.

    Custom objects may have items too, which their authors choose. Every object of a cluster has a name, and no List
    that kubectl prints has one. A `v1` List may be named by hand, because the API server stores none.
    """
    metadata = value.get("metadata")
    named = isinstance(metadata, dict) and bool(metadata.get("name"))
    return is_list(value) and (not named or (value.get("apiVersion"), value.get("kind")) == ("v1", "List"))


def items(documents: Iterable[Document], opens: Callable[[Object], bool] = is_list) -> tuple[list[Item], list[Problem]]:
    """Return the Kubernetes objects of documents. A List, which is any object that `opens`, is replaced by its items.

    A document with neither apiVersion nor kind is another file, such as a chart's values, and is skipped. So is
    Chart.yaml.
    """
    opened: list[Item] = []
    problems: list[Problem] = []
    for document in documents:
        left = [Item(document, (), document.value)]
        while left:
            item = left.pop()
            found = _inside(item, opens)
            if isinstance(found, Problem):
                problems.append(found)
            elif found is None:
                opened.append(item)
            else:
                left += reversed(found)
    return opened, problems


def _inside(item: Item, opens: Callable[[Object], bool]) -> list[Item] | Problem | None:
    """Return the items of a List, nothing for a value that is no object, None for a single object, or the problem."""
    value, file = item.value, item.document.file
    if not _is_object(value):
        if item.base:
            return Problem(file, item.line(), "an item of a List must be an object")
        if isinstance(value, list) and any(isinstance(part, dict) and "kind" in part for part in value):
            return Problem(file, item.line(), "objects in a bare list: put them in a kind: List")
        return []
    if not item.base and _of_chart(FilePath(file).name, value):
        return []
    opened = opens(value)
    for key in ("kind",) if opened else ("apiVersion", "kind"):
        if not isinstance(value.get(key), str) or not value[key]:
            text = "must be a string" if key in value else "is missing"
            return Problem(file, item.line((key,)), f"{key} {text}")
    if opened:
        return [_listed(item, index) for index in range(len(value["items"]))]
    if "items" in value and not item.base and opens({**value, "items": []}):
        return Problem(file, item.line(("items",)), "items must be a list")
    return None


def _listed(item: Item, index: int) -> Item:
    """Return an item of a List. A typed list (PodList) has its items' kind, which the API leaves out."""
    value, parent = item.value["items"][index], item.value
    implied = parent["kind"].removesuffix("List")
    if not item.base and implied and isinstance(value, dict) and not (value.get("kind") or value.get("apiVersion")):
        value = {**value, "apiVersion": parent.get("apiVersion"), "kind": implied}
    document = item.document if item.base else item.document.item(index)
    inside = item.inside or not is_list_of_cluster(parent)
    return Item(document, (*item.base, "items", index), value, inside=inside)


def _of_chart(name: str, value: Object) -> bool:
    """Return whether a file is a chart's Chart.yaml (helm pkg/chart/metadata.go) or values file."""
    if name == "Chart.yaml":
        return "kind" not in value and {"apiVersion", "name", "version"} <= value.keys()
    named = "values" in re.split(r"[-_.]", name.lower())
    return named and "items" not in value and not {"apiVersion", "kind"} <= value.keys()
