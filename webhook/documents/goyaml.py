"""Parses YAML text into JSON values with their line numbers.

YAML is read as Kubernetes' tools read it, through go-yaml v2 and JSON (sigs.k8s.io/yaml): YAML 1.1 booleans, no dates,
no sexagesimal numbers, and keys that are strings. Hostile text is safe to read: depth and the expansion of aliases are
limited, and only JSON values are constructed.

Sources: decode.go and resolve.go of go-yaml v2, and yaml.go of sigs.k8s.io/yaml for the conversion to JSON.
"""

import math
import re
from itertools import islice
from typing import Any

import yaml

from webhook.documents.goyaml_composer import MAX_DEPTH, MAX_VALUES, ODD_COLON, ODD_TAGS, Composer, refuse
from webhook.documents.marks import Mark, Repeat, Unreadable, UnsupportedText

TOO_DEEP = "exceeded maximum nesting depth"
"""The error of libyaml 0.2.6 and newer for a text that is nested a thousand deep. It reads ahead of the composer."""


_NO_ESCAPE = "found unknown escape character"

ODD_APOSTROPHE = "an apostrophe within double quotes has a backslash, which it does not need"
"""libyaml refuses this escape; go-yaml knows it (scannerc.go, yaml_parser_scan_flow_scalar)."""


def parse(
    text: str,
    *,
    first_line: int = 1,
    last_key_wins: bool = False,
    alone: bool = False,
    max_values: int = MAX_VALUES,
    repeats: list[Repeat] | None = None,
) -> tuple[Any, Mark]:
    """Read the first YAML document of a text. Returns its JSON value, None if it is empty, and its marks.

    Raises Unreadable. A repeated key in a map raises it too, unless the caller lets the last one win, or collects them
    in `repeats`. With `alone`, content after the first document raises it.
    """
    if "\ufeff" in text and (mark_within := _BOM_WITHIN.search(text)):
        raise UnsupportedText(
            first_line + text.count("\n", 0, mark_within.start()) + 1, "a byte order mark begins a line"
        )
    if beyond := _beyond_directives(text):
        line = first_line + text.count("\n", 0, beyond.start())
        raise UnsupportedText(line, f"more than {MOST_DIRECTIVES} lines begin with %, as directives do")
    forbidden = _FORBIDDEN.search(text)
    if forbidden and alone:
        raise _character(text, forbidden, first_line)
    readable = text[: forbidden.start()] if forbidden else text
    loader = yaml.CSafeLoader(readable)
    try:
        source = readable.removeprefix("\ufeff")
        repeated = None if last_key_wins else refuse if repeats is None else repeats.append
        composer = Composer(loader, source, first_line - 1, repeated=repeated, max_values=max_values)
        value, mark, end = composer.document()
        while alone and loader.check_event():
            event = loader.get_event()
            if isinstance(event, yaml.DocumentStartEvent):
                line = first_line + event.start_mark.line  # type: ignore[union-attr]
                raise Unreadable(line, "more follows the document, and no --- before it")
    except (yaml.YAMLError, Unreadable) as error:
        if forbidden and not isinstance(error, UnsupportedText):
            raise _character(text, forbidden, first_line) from error
        raise _unreadable(error, readable.removeprefix("\ufeff"), first_line) from error
    finally:
        loader.dispose()
    if forbidden and _is_seen(readable, end, text[forbidden.start() : forbidden.start() + 4]):
        raise _character(text, forbidden, first_line)
    return value, mark


def first_end(text: str) -> float:
    """Return the line, from 0, at which the first document of a text ends; infinity if it cannot be read to there.

    kubectl reads no further (go-yaml v2 yaml.go, unmarshal).
    """
    if _beyond_directives(text):
        return math.inf
    forbidden = _FORBIDDEN.search(text)
    try:
        events = yaml.parse(text[: forbidden.start()] if forbidden else text, Loader=yaml.CSafeLoader)
        marks = (each.start_mark for each in events if isinstance(each, yaml.DocumentEndEvent))
        return next((mark.line for mark in marks if mark is not None), math.inf)
    except yaml.YAMLError:
        return math.inf


MOST_DIRECTIVES = 100
"""Maximum lines of a text that may be directives.

libyaml compares each `%TAG` with all before it (parser.c, yaml_parser_append_tag_directive), so many take minutes.
"""

_DIRECTIVE = re.compile("(?:\\A\ufeff?|[\r\n\x85\u2028\u2029]\ufeff?)%")


def _beyond_directives(text: str) -> re.Match[str] | None:
    """Return the first line beyond those that may be directives."""
    return next(islice(_DIRECTIVE.finditer(text), MOST_DIRECTIVES, None), None) if "%" in text else None


def _unreadable(error: yaml.YAMLError | Unreadable, text: str, first_line: int) -> Unreadable:
    if isinstance(error, Unreadable):
        return error
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = first_line + (mark.line if mark else 0)
        if (
            mark
            and (error.context or "").endswith("ing a tag")
            and text[mark.index : mark.index + 1] in (",", "[", "]")
        ):
            return UnsupportedText(line, ODD_TAGS)
        if mark and error.problem == _NO_ESCAPE and text[mark.index : mark.index + 2] == "\\'":
            return UnsupportedText(line, ODD_APOSTROPHE)
        if error.problem == "found unexpected ':'":
            return UnsupportedText(line, ODD_COLON)
        if error.problem == TOO_DEEP:
            return UnsupportedText(line, f"nested more than {MAX_DEPTH} deep")
        return Unreadable(line, f"not YAML: {error.problem or error.context}")
    return Unreadable(first_line, f"not YAML: {' '.join(str(error).split())}")


def _character(text: str, match: re.Match[str], first_line: int) -> Unreadable:
    kind = "only text in UTF-8 is allowed" if "\udc80" <= match[0] <= "\udcff" else "control characters are not allowed"
    return Unreadable(first_line + text.count("\n", 0, match.start()), f"not YAML: {kind}")


_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
"""The characters that YAML refuses (readerc.go). Bytes that are not UTF-8 appear in a text as surrogates."""


_BOM_WITHIN = re.compile("(?<=[\r\n\x85\u2028\u2029])\ufeff")
"""A byte order mark that libyaml skips and go-yaml reads as text (is_bom in yamlprivateh.go looks elsewhere)."""


def is_clean(text: str) -> bool:
    """Return whether YAML allows every character of a text, and readers agree on it."""
    if text.isascii():  # takes a third of the time
        raw = text.encode()
        return len(raw.translate(None, _CONTROLS)) == len(raw)
    return not (_FORBIDDEN.search(text) or ("\ufeff" in text and _BOM_WITHIN.search(text)))


_CONTROLS = bytes(code for code in range(128) if _FORBIDDEN.match(chr(code)))


_CHUNK = 512


def _width(character: str) -> int:
    """Return the bytes that go-yaml waits for before it judges a character; a surrogate stands for its first byte."""
    first = character.encode("utf-8", "surrogateescape")
    if len(first) > 1:
        return len(first)
    return next((width for width, lead, mask in _LEADS if first[0] & mask == lead), 1)


_LEADS = ((2, 0xC0, 0xE0), (3, 0xE0, 0xF0), (4, 0xF0, 0xF8))
"""The width of a character by its first byte (readerc.go)."""


def _is_seen(text: str, end: int, following: str) -> bool:
    """Return whether go-yaml reads the forbidden character at the start of `following`, which comes after the text.

    The first document may end earlier. go-yaml reads 512 bytes at a time, up to the four bytes of the marker after the
    document. It never sees an error farther on, nor a character whose bytes it has not all read (readerc.go,
    scannerc.go).
    """
    needed = end + 4 + text.startswith("\ufeff")
    if needed > len(text):
        return True
    raw, needed, width = text.encode(), len(text[:needed].encode()), _width(following[0])
    if width > len(following.encode("utf-8", "replace")):  # the file ends within the character
        return False
    position = 0
    while position < needed:
        position += _CHUNK
        if position >= len(raw) + width:
            return True
        position = min(position, len(raw))
        while position < len(raw) and raw[position] & 0xC0 == 0x80:  # a chunk ends before a character that it would cut
            position -= 1
    return False
