"""Splits texts of YAML or JSON into documents, and finds the line where each value starts."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from webhook.catalog.white_space import WHITE_SPACE
from webhook.documents import glance, goyaml_quick
from webhook.documents.goyaml import first_end, is_clean, parse
from webhook.documents.goyaml_composer import MAX_DEPTH, MAX_VALUES
from webhook.documents.marks import Mark, Repeat, Unreadable, UnsupportedText
from webhook.model import Path, Problem
from webhook.text.words import shown

SMALL = 64 * 1024
"""Maximum characters of a YAML text whose List is kept whole.

Texts that people write may have anchors and inline lists.
"""


class Source:
    """The text of a document, or of an item in one. Its marks (see `Mark`) are parsed when they are first needed.

    Marks take many times the memory of the text. So a pickled copy has none, and parses them again.
    """

    json = False
    """Whether the text is JSON."""

    def __init__(self, text: str, first_line: int) -> None:
        self._text = text
        self._first_line = first_line

    @property
    def text(self) -> str:
        """The text."""
        return self._text

    @property
    def start(self) -> int:
        """The number of the first line of the text."""
        return self._first_line

    @property
    def end(self) -> int:
        """The number of the line after the last line of the text."""
        return self._first_line + self._text.count("\n") + (not self._text.endswith("\n"))

    @cached_property
    def mark(self) -> Mark:
        """The mark of the document's whole value."""
        return Mark(self._first_line)

    @cached_property
    def items(self) -> Sequence["Source"]:
        """The sources of the value's `items`; empty if the text cannot be split."""
        return ()

    def __reduce__(self) -> tuple[type["Source"], tuple[str, int]]:
        return type(self), (self._text, self._first_line)


@dataclass(eq=False)
class Document:
    """One document of a file, or an item in one: its value, and the lines of its places.

    `index` is the number of the document in its file, from 0. The source begins at the path `base` of the document.
    `repeats` are the keys that a map repeats; the last one counts. The value of a document that was only `glanced` at
    has only apiVersion and kind.
    """

    file: str
    index: int
    value: Any
    first_line: int
    source: Source
    base: Path = ()
    repeats: tuple[Repeat, ...] = ()
    glanced: bool = False

    def line(self, path: Path = (), text_line: int = 0) -> int:
        """Return the line of the file where the value at the path starts.

        With `text_line`, the value is a text of several lines, and the result is the line of the file for that line of
        it.
        """
        if not path and not text_line:
            return self.first_line
        inner = path[len(self.base) :]
        if self.base and not inner and not text_line:  # the line of an item is known without the marks inside it
            return self.source.start
        mark = self.source.mark.at(inner)
        return mark.text + text_line - 1 if text_line and mark.text else mark.line

    def where(self, path: Path = ()) -> tuple[str, int]:
        """Return the file and the line where the value at the path starts."""
        return self.file, self.line(path)

    def item(self, index: int) -> "Document":
        """Return one of the `items` of a list as a document. Its paths still begin at the list.

        Returns the whole document if its text cannot be split.
        """
        sources, items = self.source.items, self.value["items"]
        if len(sources) != len(items):
            return self
        return Document(self.file, self.index, items[index], self.first_line, sources[index], base=("items", index))


def read(text: str, file: str, first_line: int = 1) -> tuple[list[Document], list[Problem]]:
    """Read every document of a text. A document that is unreadable, or has repeated keys, becomes a problem.

    `first_line` is the line of the file in which the text begins.
    """
    results = [whole(result) for result in stream(text, file, first_line=first_line)]
    documents = [result for result in results if isinstance(result, Document)]
    return documents, [result for result in results if isinstance(result, Problem)]


def whole(result: Document | Problem) -> Document | Problem:
    """Return a document if no map in it repeats a key; otherwise return the problem."""
    if isinstance(result, Document) and result.repeats:
        return Problem(result.file, result.repeats[0].line, result.repeats[0].text)
    return result


Skips = Callable[[str, str, str], bool]
"""Decides by apiVersion, kind and text whether only a document's kind is read."""


def unskipped(_: str, __: str, ___: str) -> bool:
    """Return False, so that every document is read in full. The default of `skips`."""
    return False


def stream(text: str, file: str, skips: Skips = unskipped, *, first_line: int = 1) -> Iterator[Document | Problem]:
    """Yield the documents of a text one by one, so that a long text needs little memory.

    A text is split as kubectl splits it: JSON values as long as there are any, then YAML between lines that begin with
    `---` (apimachinery pkg/util/yaml/decoder.go, YAMLOrJSONDecoder and YAMLReader).
    """
    text = text.removeprefix("\ufeff")
    count = end = 0
    try:
        if _begins_as_json(text):
            try:
                for document, end in _json_documents(text, file, first_line):  # noqa: B007 - needed where it ends
                    yield document
                    count += 1
                return
            except Unreadable as error:
                if str(error).endswith(READ):
                    raise
                end = _REST.match(text, end).end()  # type: ignore[union-attr]
                # One value may be followed by YAML. A text that does not begin with JSON may be YAML in flow style.
                if count > 1 or not (_NEXT.match(text, end) if count else not file.lower().endswith(".json")):
                    start = end if _OBJECT.match(text) else 0  # for kubectl, JSON begins with a brace only
                    raise Unreadable(error.line, f"{error}{_as_yaml(text, start)}") from error
        for line, chunk in _chunks(text, end, first_line):
            one = _document(chunk, line, file, count, skips)
            if one is not None:
                yield one
                count += 1
    except Unreadable as error:
        yield Problem(file, error.line, str(error))


_BLANK = WHITE_SPACE.replace("\n", "")
"""Go's white space except the line feed, for the brackets of a pattern."""

_REST = re.compile(rf"[{_BLANK}]*\n?")
"""Characters that are skipped after JSON."""

_NEXT = re.compile(r"(?:[ \t\r]*\n)*---")
"""The marker after one value of JSON."""

_LOOKED_AT = 4096
"""Bytes in which kubectl looks for the opening brace of JSON."""

_BRACE = re.compile(rf"[{WHITE_SPACE}]*[{{[]")

_OBJECT = re.compile(rf"[{WHITE_SPACE}]*{{")


def _begins_as_json(text: str) -> bool:
    start = text[:_LOOKED_AT].encode("utf-8", "replace")[:_LOOKED_AT].decode("utf-8", "ignore")
    return bool(_BRACE.match(start))


def _document(chunk: str, first_line: int, file: str, index: int, skips: Skips) -> Document | Problem | None:
    """Read a part of a text; None if it is empty."""
    source = _Yaml(chunk, first_line)
    seen = glance.kind(chunk) if skips is not unskipped else None
    if seen and skips(*seen, chunk):
        return Document(file, index, seen._asdict(), first_line, source, glanced=True)
    repeats: list[Repeat] = []
    try:
        value, source.outline = source.read(repeats)
    except Unreadable as error:
        partly = error.line - first_line >= first_end(chunk)
        more = READ if isinstance(error, UnsupportedText) else READ_BEFORE if partly else ""
        return Problem(file, error.line, f"{error}{more}")
    if value is None:
        return None
    return Document(file, index, value, source.outline.line, source, repeats=tuple(repeats))


READ, READ_BEFORE = "; kubectl may read it", "; kubectl reads what is before that"
"""The ends of problems with a text in which kubectl may find an object nevertheless."""

LONG = 2**20
"""Characters of broken JSON above which it is not read as YAML, which takes much longer. No template is as long."""


def _as_yaml(text: str, start: int) -> str:
    """Return the end of a problem with JSON: whether kubectl may read the rest of the text as YAML, or a part of it."""
    if len(text) - start > LONG:
        return READ
    try:
        found = (_document(chunk, line, "", 0, unskipped) for line, chunk in _chunks(text, start))
        return READ if any(map(_is_read, found)) else ""
    except Unreadable:
        return ""


def _is_read(part: Document | Problem | None) -> bool:
    """Whether kubectl may read a part of a text, or the beginning of it."""
    return isinstance(part, Document) or (isinstance(part, Problem) and part.message.endswith((READ, READ_BEFORE)))


def _parsed(
    chunk: str, first_line: int, repeats: list[Repeat] | None = None, *, alone: bool = True
) -> tuple[Any, Mark]:
    # only aliases can make more values than the text has characters
    most, repeats = max(MAX_VALUES, len(chunk)), [] if repeats is None else repeats
    return parse(chunk, first_line=first_line, alone=alone, max_values=most, repeats=repeats)


def first_document(text: str, file: str) -> Document | Problem | None:
    """Read the first document of a text as go-yaml does, which does not split it as kubectl; None if it is empty."""
    source, repeats = _First(text, 1), list[Repeat]()
    try:
        value, source.outline = source.read(repeats)
    except Unreadable as error:
        return Problem(file, error.line, f"{error}{READ if isinstance(error, UnsupportedText) else ''}")
    return None if value is None else Document(file, 0, value, source.outline.line, source, repeats=tuple(repeats))


class _Yaml(Source):
    alone = True
    """Whether nothing may follow the document."""

    def read(self, repeats: list[Repeat]) -> tuple[Any, Mark]:
        """Read the document, and return its value and `outline`. Raises Unreadable."""
        try:
            if is_clean(self._text):
                return goyaml_quick.parse(self._text, self._first_line)
        except goyaml_quick.Peculiar:
            pass
        value, self.mark = _parsed(self._text, self._first_line, repeats, alone=self.alone)
        return value, self.mark

    @cached_property
    def outline(self) -> Mark:
        """The mark of the document's value, with the marks of a map's keys, and of the entries of its lists."""
        return self.read([])[1]

    @cached_property
    def mark(self) -> Mark:
        return _parsed(self._text, self._first_line, alone=self.alone)[1]

    @cached_property
    def items(self) -> Sequence[Source]:
        """The sources of the items of a List that is written as kubectl writes it, with a line for each key.

        An item in any other form, or with an alias for something outside it, has only the mark of its first line.
        """
        if len(self._text) <= SMALL:
            return ()
        lines, whole = self._text.splitlines(keepends=True), self.outline
        items = whole.at(("items",))
        starts = [mark.line for mark in items.children]
        after = [mark.line for mark in whole.children.values() if mark.line > items.line]
        ends = [*starts[1:], min(after, default=self._first_line + len(lines))]
        return [
            _YamlItem("".join(lines[start - self._first_line : end - self._first_line]), start)
            for start, end in zip(starts, ends, strict=True)
        ]


class _First(_Yaml):
    alone = False


class _YamlItem(Source):
    @cached_property
    def mark(self) -> Mark:
        try:
            return _parsed(_DASH.sub(r"\1 ", self._text, count=1), self._first_line)[1]
        except Unreadable:
            return Mark(self._first_line)


_DASH = re.compile(r"\A( *)-")


_MARKER = re.compile(rf"---[{_BLANK}]*([^\n]*)\n")  # not ^---, which is looked for at every character


def _chunks(text: str, start: int, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """Yield the parts of YAML between markers with their first lines, so that an error affects one document only.

    A marker without text before it belongs to the part after it. Raises Unreadable for a line that begins with `---`
    but is no marker, because kubectl stops reading there.
    """
    line = first_line + text.count("\n", 0, start)
    text = text[start:].replace("\r\n", "\n")
    if not text.endswith("\n"):
        text += "\n"
    begin = 0
    for marker in _MARKER.finditer(text):
        at, after = marker.start(), marker[1]
        if at and text[at - 1] != "\n":
            continue
        if at > begin:
            yield line, text[begin:at]
            line += text.count("\n", begin, marker.end())
            begin = marker.end()
        if after and not after.startswith("#"):
            raise Unreadable(line - (at < begin), f"only a comment may follow --- in its line, and not {shown(after)}")
    if begin < len(text):
        yield line, text[begin:]


_GAP = re.compile(r"[ \t\r\n]*")


def _json_documents(text: str, file: str, first_line: int = 1) -> Iterator[tuple[Document, int]]:
    """Yield the JSON values of a text, each with its end. Their marks are parsed on first use. Raises Unreadable."""
    twice: list[str] = []
    hook = partial(_last_wins, twice)
    decoder = json.JSONDecoder(object_pairs_hook=hook, parse_constant=_no_constant, parse_float=_finite)
    position, index = _skip(text, 0), 0
    before, counted = first_line - 1, 0
    while position < len(text):
        first_line, counted = first_line + text.count("\n", counted, position), position
        try:
            value, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise Unreadable(before + error.lineno, f"not JSON: {error.msg}") from error
        except RecursionError as error:
            raise UnsupportedText(first_line, f"nested more than {MAX_DEPTH} deep{READ}") from error
        except _Constant as error:
            raise Unreadable(first_line, f"not JSON: {error}") from error
        except ValueError as error:  # a number that Go keeps as text
            raise UnsupportedText(first_line, f"not JSON: {error}{READ}") from error
        if _HALF.search(text, position, end) and not _is_text(value):
            # Go replaces it with another character.
            raise Unreadable(first_line, f"not JSON: half of a surrogate pair{READ}")
        source = text[position:end].replace("\t", " ")  # JSON allows tabs as white space, YAML not always
        repeats = _repeats(source, first_line, twice) if twice else ()
        yield Document(file, index, value, first_line, _Json(source, first_line), repeats=repeats), end
        twice.clear()
        position, index = _skip(text, end), index + 1


_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _is_text(value: Any) -> bool:
    """Return whether all texts in a value are made of whole characters."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _skip(text: str, position: int) -> int:
    gap = _GAP.match(text, position)
    return gap.end() if gap else position


class _Json(Source):
    json = True

    @cached_property
    def mark(self) -> Mark:
        """The marks of the JSON text, read as YAML.

        If YAML cannot read it, there is only one mark, with its first line.
        """
        try:
            return _json_parsed(self._text, self._first_line, [])
        except Unreadable:
            return Mark(self._first_line)

    @cached_property
    def items(self) -> Sequence[Source]:
        """The sources of the items. The text must be valid JSON."""
        source, decoder = self._text, json.JSONDecoder()
        items: list[Source] = []
        position = source.index("{") + 1
        while source[position := _over(source, position)] != "}":
            key, position = decoder.raw_decode(source, position)
            position = _over(source, position)
            if key != "items":
                position = decoder.raw_decode(source, position)[1]
                continue
            counted, line, position = 0, self._first_line, position + 1
            while source[position := _over(source, position)] != "]":
                end = decoder.raw_decode(source, position)[1]
                line, counted = line + source.count("\n", counted, position), position
                items.append(_Json(source[position:end], line))
                position = end
            position += 1
        return items


def _json_parsed(text: str, first_line: int, repeats: list[Repeat]) -> Mark:
    text = _ESCAPE.sub(_joined, text)
    return parse(text, first_line=first_line, max_values=max(MAX_VALUES, len(text)), repeats=repeats)[1]


def _repeats(source: str, first_line: int, keys: Sequence[str]) -> tuple[Repeat, ...]:
    """Return the repeated keys of a JSON text with their lines; the line is the first one if the text is not YAML."""
    repeats: list[Repeat] = []
    try:
        _json_parsed(source, first_line, repeats)
    except Unreadable:
        repeats = []
    return tuple(repeats or (Repeat(key, first_line, first_line) for key in keys))


_BETWEEN = re.compile(r"[ \t\r\n,:]*")


def _over(text: str, position: int) -> int:
    """Return the position of the next token or value in valid JSON, after separators."""
    return _BETWEEN.match(text, position).end()  # type: ignore[union-attr]


_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|.)")


def _joined(escape: re.Match[str]) -> str:
    """Decode an escaped surrogate pair, which YAML does not allow."""
    text: str = json.loads(f'"{escape[0]}"') if len(escape[0]) > 2 else escape[0]
    return text


def _last_wins(twice: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice += (key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    return value


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{shown(text)} is out of range")
    return value


class _Constant(ValueError):
    """A word that only JavaScript has, such as NaN."""


def _no_constant(name: str) -> None:
    raise _Constant(f"{name} is not JSON")
