"""Texts of several documents, YAML or JSON, taken apart with their line numbers."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from webhook.dialect import MAX_DEPTH, Mark, Unreadable, parse
from webhook.model import Path, Problem, shown


class Document:
    """One document of a file: its value, and the line of any place in it."""

    def __init__(self, file: str, index: int, value: Any, mark: Callable[[], Mark]) -> None:
        self.file = file
        self.index = index
        self.value = value
        self._mark = mark

    def line(self, path: Path = (), text_line: int = 0) -> int:
        """The line where the value at the path starts, or a line within the text that stands there."""
        mark = self._mark().at(path)
        return mark.text + text_line - 1 if text_line and mark.text else mark.line


def read(text: str, file: str) -> tuple[list[Document], list[Problem]]:
    """Read every document of a text; one that cannot be read becomes a problem and the rest is still read."""
    documents: list[Document] = []
    problems: list[Problem] = []
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        try:
            documents.extend(_json_documents(text, file))
        except Unreadable as error:
            problems.append(Problem(file, error.line, str(error)))
        if documents or not problems or file.endswith(".json"):
            return documents, problems
        problems.clear()  # not JSON from its first document on: YAML in flow style, perhaps
    for first_line, chunk in _chunks(text.removeprefix("\ufeff")):
        try:
            value, mark = parse(chunk, first_line=first_line, alone=True)
        except Unreadable as error:
            problems.append(Problem(file, error.line, str(error)))
            continue
        if value is not None:  # an empty document is no document
            documents.append(Document(file, len(documents) + len(problems), value, partial(_same, mark)))
    return documents, problems


def _same(mark: Mark) -> Mark:
    return mark


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
    position = _skip(text, 0)
    index = 0
    while position < len(text):
        first_line = text.count("\n", 0, position) + 1
        try:
            value, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise Unreadable(error.lineno, f"not JSON: {error.msg}") from error
        except RecursionError as error:
            raise Unreadable(first_line, f"nested more than {MAX_DEPTH} deep") from error
        except ValueError as error:
            raise Unreadable(first_line, f"not JSON: {error}") from error
        source = text[position:end].replace("\t", " ")  # a raw tab in JSON is white space; YAML refuses some
        yield Document(file, index, value, partial(_marks, source, first_line))
        position, index = _skip(text, end), index + 1


def _skip(text: str, position: int) -> int:
    gap = _GAP.match(text, position)
    return gap.end() if gap else position


_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|.)")


def _joined(escape: re.Match[str]) -> str:
    """Write two escaped surrogates as the character they stand for: YAML knows no surrogates."""
    text: str = json.loads(f'"{escape[0]}"') if len(escape[0]) > 2 else escape[0]
    return text


def _marks(source: str, first_line: int) -> Mark:
    """Find the lines of a JSON text, which is nearly always YAML too; without them its first line stands in."""
    try:
        return parse(_ESCAPE.sub(_joined, source), first_line=first_line)[1]
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
