"""Texts of several documents, YAML or JSON, taken apart with their line numbers."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

from webhook.documents.goyaml import MAX_DEPTH, MAX_VALUES, Mark, Unreadable, parse
from webhook.model import Path, Problem
from webhook.text.words import shown

Find = Callable[[], Mark]
"""Finds the mark of a document by reading its text once more."""

SMALL = 64 * 1024
"""Characters of a YAML text up to which a List stays whole: people write anchors, and lists in one line."""


class Document:
    """One document of a file: its value, and the line of any place in it.

    A copy that is sent elsewhere leaves its marks behind, which are many times its text, and finds them again.
    """

    def __init__(
        self,
        file: str,
        index: int,
        value: Any,
        first_line: int,
        find: Find,
        mark: Mark | None = None,
        split: Callable[[Mark | None], Sequence[Find]] | None = None,
        base: Path = (),
    ) -> None:
        self.file = file
        self.index = index
        self.value = value
        self._first_line = first_line
        self._find = find
        self._mark = mark
        self._split = split
        self._parts: Sequence[Find] | None = None
        self._base = base

    def line(self, path: Path = (), text_line: int = 0) -> int:
        """The line where the value at the path starts, or a line within the text that stands there."""
        if not path and not text_line:
            return self._first_line
        if self._mark is None:
            self._mark = self._find()
        mark = self._mark.at(path[len(self._base) :])
        return mark.text + text_line - 1 if text_line and mark.text else mark.line

    def item(self, index: int) -> "Document":
        """The document of one of its `items` alone, of which places have the same paths as in the whole.

        The whole again where its text cannot be taken apart.
        """
        if self._split is None:
            return self
        if self._parts is None:
            self._parts = self._split(self._mark)
        if len(self._parts) != len(self.value["items"]):
            return self
        base: Path = ("items", index)
        return Document(
            self.file, self.index, self.value["items"][index], self._first_line, self._parts[index], base=base
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mark": None, "_parts": None}


def read(text: str, file: str) -> tuple[list[Document], list[Problem]]:
    """Read every document of a text; one that cannot be read becomes a problem and the rest is still read."""
    results = list(stream(text, file))
    return [one for one in results if isinstance(one, Document)], [one for one in results if isinstance(one, Problem)]


def stream(text: str, file: str) -> Iterator[Document | Problem]:
    """Read the documents of a text one by one, so that not all of a long one need be held."""
    count = 0
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        try:
            for document in _json_documents(text, file):
                yield document
                count += 1
            return
        except Unreadable as error:
            if count or file.lower().endswith(".json"):
                yield Problem(file, error.line, str(error))
                return
        # Not JSON from its first document on: YAML in flow style, perhaps.
    for first_line, chunk in _chunks(text.removeprefix("\ufeff")):
        try:
            value, mark = _parsed(chunk, first_line)
        except Unreadable as error:
            yield Problem(file, error.line, str(error))
        else:
            if value is None:  # an empty document is no document
                continue
            split = partial(_yaml_items, chunk, first_line) if len(chunk) > SMALL else None
            yield Document(file, count, value, mark.line, partial(_mark, chunk, first_line), mark, split)
        count += 1


def _parsed(chunk: str, first_line: int) -> tuple[Any, Mark]:
    # Without aliases a text has fewer values than characters; only they could make more of it.
    return parse(chunk, first_line=first_line, alone=True, max_values=max(MAX_VALUES, len(chunk)))


def _mark(chunk: str, first_line: int) -> Mark:
    return _parsed(chunk, first_line)[1]


_MARKER = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    """Split at document markers, which no scalar may contain, so that one broken document spoils no other."""
    starts = [0, *(m.start() for m in _MARKER.finditer(text)), len(text)]
    line, directives = 1, ""
    for start, end in pairwise(starts):
        chunk = directives + text[start:end]
        directives = ""
        content = [row for row in chunk.splitlines() if row.strip() and not row.startswith("#")]
        if content and all(row.startswith("%") for row in content):
            directives = chunk
            continue
        if content:
            yield line, chunk
        line += chunk.count("\n")


_GAP = re.compile(r"(?:[ \t\r\n\ufeff]|---(?=[ \t\r\n]))*")


def _json_documents(text: str, file: str) -> Iterator[Document]:
    """Read one JSON value or several in a row. Line numbers are found when they are asked for."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    position, index = _skip(text, 0), 0
    first_line, counted = 1, 0
    while position < len(text):
        first_line, counted = first_line + text.count("\n", counted, position), position
        try:
            value, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise Unreadable(error.lineno, f"not JSON: {error.msg}") from error
        except RecursionError as error:
            raise Unreadable(first_line, f"nested more than {MAX_DEPTH} deep") from error
        except ValueError as error:
            raise Unreadable(first_line, f"not JSON: {error}") from error
        source = text[position:end].replace("\t", " ")  # a raw tab in JSON is white space; YAML refuses some
        split = partial(_json_items, source, first_line)
        yield Document(file, index, value, first_line, partial(_marks, source, first_line), split=split)
        position, index = _skip(text, end), index + 1


def _skip(text: str, position: int) -> int:
    gap = _GAP.match(text, position)
    return gap.end() if gap else position


def _json_items(source: str, first_line: int, _: Mark | None) -> list[Find]:
    """Find where each of a JSON object's `items` stands in its text, which was read before."""
    decoder = json.JSONDecoder()
    marks: list[Find] = []
    position = source.index("{") + 1
    while source[position := _over(source, position)] != "}":
        key, position = decoder.raw_decode(source, position)
        position = _over(source, position)
        if key != "items":
            position = decoder.raw_decode(source, position)[1]
            continue
        counted, line, position = 0, first_line, position + 1
        while source[position := _over(source, position)] != "]":
            end = decoder.raw_decode(source, position)[1]
            line, counted = line + source.count("\n", counted, position), position
            marks.append(partial(_marks, source[position:end], line))
            position = end
        position += 1
    return marks


_BETWEEN = re.compile(r"[ \t\r\n,:]*")


def _over(text: str, position: int) -> int:
    """Pass over what stands between two parts of a JSON text that was read before."""
    return _BETWEEN.match(text, position).end()  # type: ignore[union-attr]


def _yaml_items(chunk: str, first_line: int, mark: Mark | None) -> list[Find]:
    """Find where each of the `items` of a YAML text stands in it, as kubectl writes them: a row each for their keys.

    Of one that is written otherwise, or is not whole without the rest, only the line where it begins is known.
    """
    lines = chunk.splitlines(keepends=True)
    whole = mark if mark is not None else _mark(chunk, first_line)
    items = whole.at(("items",))
    starts = [mark.line for mark in items.children]
    after = [mark.line for mark in whole.children.values() if mark.line > items.line]
    ends = [*starts[1:], min(after, default=first_line + len(lines))]
    return [
        partial(_item_mark, "".join(lines[start - first_line : end - first_line]), start)
        for start, end in zip(starts, ends, strict=True)
    ]


def _item_mark(text: str, line: int) -> Mark:
    try:
        return _mark(_DASH.sub(r"\1 ", text, count=1), line)
    except Unreadable:
        return Mark(line)


_DASH = re.compile(r"\A( *)-")

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|.)")


def _joined(escape: re.Match[str]) -> str:
    """Write two escaped surrogates as the character they stand for: YAML knows no surrogates."""
    text: str = json.loads(f'"{escape[0]}"') if len(escape[0]) > 2 else escape[0]
    return text


@lru_cache(maxsize=1)  # a document with one thing wrong may have a thousand
def _marks(source: str, first_line: int) -> Mark:
    """Find the lines of a JSON text, which is nearly always YAML too; without them its first line stands in."""
    try:
        text = _ESCAPE.sub(_joined, source)
        return parse(text, first_line=first_line, max_values=max(MAX_VALUES, len(text)))[1]
    except Unreadable:
        return Mark(first_line)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"key {shown(twice)} stands twice in one map")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{shown(text)} is out of range")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
