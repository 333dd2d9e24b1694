"""Finds the source places of a rendered object: its original resource, and the patches that changed it."""

import re
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from webhook.api.lenient import mapping, string
from webhook.documents.documents import Document, read
from webhook.documents.files import Item
from webhook.model import Object, Path, immutable


@immutable
class Layer:
    """A part of an object that comes from one document.

    Its `value` is at the path `base` in the document, and at the path `at` in the object. With `text`, the value is a
    whole text that begins in the document's first line, such as a file from which a generator makes an entry of a
    ConfigMap.
    """

    document: Document
    base: Path
    at: Path
    value: Any
    text: bool = False

    def line(self, path: Path, text_line: int) -> int:
        """Return the line of a path below the layer, or of a line within the text at that path."""
        if self.text:
            return self.document.first_line + max(text_line, 1) - 1
        return self.document.line((*self.base, *path), text_line)


@immutable
class ItemLayer(Layer):
    """A layer that is a whole object, such as that of a chart. The object knows its own lines."""

    item: Item = field(kw_only=True)

    def line(self, path: Path, text_line: int) -> int:
        """Return the line of a path in the item."""
        return self.item.line(path, text_line)


@immutable
class Rendered(Item):
    """An object that was rendered from a `root`, such as a kustomization's folder.

    Its document is that of the resource. If no file has the object, its lines are 0. The first layer is the resource;
    the patches follow in the order in which they are applied.
    """

    layers: tuple[Layer, ...] = ()

    def line(self, path: Path = (), text_line: int = 0) -> int:
        """Return the line in the resource's own file, of the object or of the nearest parent of a place in it."""
        if not self.layers:
            return self.document.first_line
        first = self.layers[0]
        return first.line(_followed(first.value, self.value, path)[0], text_line)

    def where(self, path: Path, text_line: int = 0) -> tuple[str, int]:
        """Return the file and the line where the value at a path was written last, or where its nearest parent was."""
        best, found = (-1, False), None
        for layer in self.layers:
            if path[: len(layer.at)] != layer.at:
                continue
            inner, same = _followed(layer.value, _at(self.value, layer.at), path[len(layer.at) :])
            rank = len(layer.at) + len(inner), same
            if rank > best:
                best, found = rank, (layer, inner)
        if found is None:
            return self.document.file, self.document.first_line
        layer, inner = found
        return layer.document.file, layer.line(inner, text_line if best[0] == len(path) else 0)


def _at(value: Any, path: Path) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _followed(source: Any, rendered: Any, path: Path) -> tuple[Path, bool]:
    """Return the path in a source that leads as far as a path of the rendered object does, and whether both agree.

    A patch may have an entry of a list at another index. The entries are the same if they have the same key.
    """
    inner: list[str | int] = []
    for key in path:
        if isinstance(source, dict) and key in source:
            step: str | int = key
        elif isinstance(source, list) and isinstance(key, int):
            entry = _at(rendered, (key,))
            index = _index(source, entry, key)
            if index is None:
                return tuple(inner), False
            step = index
        else:
            return tuple(inner), False
        source, rendered = source[step], _at(rendered, (key,))
        inner.append(step)
    return tuple(inner), isinstance(source, (dict, list)) or source == rendered


KEYS = ("name", "mountPath", "containerPort", "devicePath", "ip", "key", "topologyKey")
"""The keys by which lists of a pod are merged (k8s.io/api core/v1, patchMergeKey), the most common first."""


def _index(source: list[Any], entry: Any, index: int) -> int | None:
    if isinstance(entry, dict):
        for key in KEYS:
            if key in entry:
                same = (at for at, each in enumerate(source) if isinstance(each, dict) and each.get(key) == entry[key])
                return next(same, None)
    if entry in source:
        return source.index(entry)
    return index if index < len(source) and not isinstance(entry, dict) else None


_ORIGIN = "config.kubernetes.io/origin"

_READS_ANNOTATIONS = re.compile(r"annotationselector|config\.kubernetes\.io|\b(?:copy|move)\b|\\(?![\"n])|!|\0", re.I)
"""A selector by annotations, a patch that copies them, or a text that may write either with escapes, tags or UTF-16."""


def may_read_annotations(texts: Iterable[bytes]) -> bool:
    """Whether kustomizations and their files may make an object depend on the annotations of objects."""
    return any(_READS_ANNOTATIONS.search(text.decode("utf-8", "replace")) for text in texts)


def without_origin(value: Object) -> tuple[Object, str]:
    """Return an object without the annotation of its origin, and the path in it."""
    metadata = mapping(value.get("metadata"))
    annotations = mapping(metadata.get("annotations"))
    text = annotations.get(_ORIGIN)
    if not isinstance(text, str):
        return value, ""
    rest = {key: each for key, each in annotations.items() if key != _ORIGIN}
    left = {key: each for key, each in metadata.items() if key != "annotations"}
    documents, _ = read(text, "")
    origin = mapping(documents[0].value) if documents else {}
    path = string(origin.get("path")) or string(origin.get("configuredIn"))
    return {**value, "metadata": {**left, "annotations": rest} if rest else left}, path


def same_but_for_origins(one: bytes, other: bytes) -> bool:
    """Whether two outputs of kustomize have the same objects, apart from the annotations of their origins."""
    first, second = (
        [without_origin(mapping(each.value))[0] for each in read(data.decode("utf-8", "replace"), "")[0]]
        for data in (one, other)
    )
    return first == second
