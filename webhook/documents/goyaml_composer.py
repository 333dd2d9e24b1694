"""Builds the value of a document from the events of libyaml, as go-yaml v2 would build it.

Sources: decode.go and resolve.go of go-yaml v2, and yaml.go of sigs.k8s.io/yaml for the conversion to JSON.
"""

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from webhook.documents.goyaml_scalars import is_timestamp, plain, whole
from webhook.documents.marks import Mark, Repeat, Unreadable, UnsupportedText
from webhook.text.words import shown

MAX_DEPTH = 100
MAX_VALUES = 200_000
"""Maximum values in a document after its aliases are expanded."""


@dataclass(slots=True, eq=False, repr=False)
class _Open:
    """A map or a list that is still being read."""

    value: Any
    mark: Mark
    anchor: "_Anchor | None"
    calls: int
    start: int
    flow: bool
    key: str | None = None
    key_line: int = 0
    size: int = 1
    merging: bool = False
    own_keys: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class _Anchor:
    """The value of an anchor. `size` counts its values; `calls`, as in go-yaml, counts keys and aliases too."""

    value: Any = None
    mark: Mark | None = None  # None until the value is complete
    size: int = 0
    calls: int = 0


_Document = tuple[Any, Mark, int]
"""A document: its value, its marks, and its end in the text."""


Repeated = Callable[[Repeat], None] | None
"""Called for a repeated key. Without it the last key wins."""


def refuse(repeat: Repeat) -> None:
    """Raise Unreadable for a repeated key."""
    raise Unreadable(repeat.line, repeat.text)


class Composer:
    """Builds a document from the events of libyaml, as go-yaml v2 would build it.

    The text is that of the loader. Marks count lines from `offset` + 1.
    """

    def __init__(self, loader: Any, text: str, offset: int, *, repeated: Repeated, max_values: int) -> None:
        self._loader = loader
        self._text = text
        self._offset = offset
        self._repeated = repeated
        self._max_values = max_values
        self._tagged = "!" in text
        self._anchors: dict[str, _Anchor] = {}
        self._stack: list[_Open] = []
        self._calls, self._aliased = 1, 0
        self._unfit = False

    def document(self) -> _Document:
        """Read the first document. The value of an empty text is None. Raises Unreadable and yaml.YAMLError."""
        next_event, handlers = self._loader.get_event, _HANDLERS
        while True:
            event = next_event()
            document = handlers[type(event)](self, event)
            if document is not None:
                return document

    # Events. A handler returns the document once it is complete.

    def _line(self, event: Any) -> int:
        line: int = event.start_mark.line + self._offset + 1
        return line

    def _stream_start(self, _: Any) -> None:
        return None

    def _stream_end(self, _: Any) -> _Document:
        return None, Mark(self._offset + 1), len(self._text)

    def _document_start(self, event: Any) -> None:
        if event.version not in (None, (1, 1)):
            raise Unreadable(self._line(event), "not YAML 1.1, which is all that Kubernetes' tools read")

    def _scalar(self, event: Any) -> _Document | None:
        begins, text, plain_style, stack = event.start_mark, event.value, event.implicit[0], self._stack
        line = begins.line + self._offset + 1
        if self._tagged and event.tag and _ODD_TAG.match(self._text, begins.index):
            raise UnsupportedText(line, ODD_TAGS)
        if "?" in text and plain_style and stack and stack[-1].flow:
            raise UnsupportedText(line, _ODD_QUESTION)
        if self._tagged or event.tag is not None:
            value = _scalar(event, self._text, line, self._tagged)
        else:
            value = plain(text) if plain_style else text
        self._calls += 1
        if type(value) is float and not math.isfinite(value):
            self._unfit = True
        text_line = line + 1 if event.style == "|" else 0
        if event.anchor:
            anchor = self._anchors[event.anchor] = _Anchor()
            return self._add(event, value, line, text_line, Mark(line, text_line), anchor)
        return self._add(event, value, line, text_line)

    def _map_start(self, event: Any) -> _Document | None:
        return self._collection_start(event, {}, Mark(self._line(event), children={}))

    def _list_start(self, event: Any) -> _Document | None:
        return self._collection_start(event, [], Mark(self._line(event), children=[]))

    def _collection_start(self, event: Any, value: Any, mark: Mark) -> _Document | None:
        start, stack, line = event.start_mark.index, self._stack, mark.line
        anchor = None
        if event.anchor:
            anchor = self._anchors[event.anchor] = _Anchor()
        if event.tag and _ODD_TAG.match(self._text, start):
            raise UnsupportedText(line, ODD_TAGS)
        if len(stack) >= MAX_DEPTH:
            raise UnsupportedText(line, f"nested more than {MAX_DEPTH} deep")
        if stack and type(stack[-1].value) is dict and stack[-1].key is None:
            first = len(stack) == 1 and stack[0].start == start and self._text[start] in "{["
            if first and isinstance(self._loader.get_event(), yaml.CollectionEndEvent):
                # go-yaml accepts a first, empty collection as a key, and ends the document there.
                return value, Mark(line), event.end_mark.index
            raise Unreadable(line, "a key must be a scalar")
        # go-yaml counts the maps in a merge's list, but not the list itself.
        calls = 0 if type(value) is list and stack and stack[-1].merging else 1
        self._calls += calls
        stack.append(_Open(value, mark, anchor, calls, start, bool(event.flow_style)))
        return None

    def _collection_end(self, event: Any) -> _Document | None:
        done = self._stack.pop()
        return self._add(event, done.value, self._line(event), 0, done.mark, done.anchor, done.size, done.calls)

    def _alias(self, event: Any) -> _Document | None:
        line = self._line(event)
        if event.anchor not in self._anchors:
            raise Unreadable(line, f"not YAML: no anchor is named {shown(event.anchor)}")
        known = self._anchors[event.anchor]
        if known.mark is None:
            raise Unreadable(line, f"the alias {shown(event.anchor)} stands inside what it refers to")
        self._calls, self._aliased = self._calls + known.calls + 1, self._aliased + known.calls
        return self._add(event, known.value, line, 0, known.mark, None, known.size, known.calls + 1)

    # Values

    def _add(
        self,
        event: Any,
        value: Any,
        line: int,
        text_line: int,
        mark: Mark | None = None,
        anchor: _Anchor | None = None,
        size: int = 1,
        calls: int = 1,
    ) -> _Document | None:
        """Add a complete value to the innermost open collection, or return it as the document.

        `event` is the last one of the value. A scalar needs no `mark`; its `line` and `text_line` make one.
        """
        if self._aliased > 100 and self._calls > 1000 and self._aliased > self._calls * _ratio(self._calls):
            raise Unreadable(line, "not YAML: nearly nothing but aliases")
        if anchor is not None:
            anchor.value, anchor.mark, anchor.size, anchor.calls = value, mark, size, calls
        if not self._stack:
            return self._whole(value, mark or Mark(line, text_line), size)
        parent = self._stack[-1]
        parent.calls += calls
        if type(parent.value) is list:
            parent.value.append(whole(value) if type(value) is float else value)
            parent.mark.children.append(mark or Mark(line, text_line))
        elif parent.key is None:
            self._set_key(parent, event, value, line)
            return None
        elif parent.merging:
            _merge(parent, event, value, mark, line)
        else:
            parent.value[parent.key] = whole(value) if type(value) is float else value
            # The mark of a value has the line of its key.
            parent.mark.children[parent.key] = (
                Mark(parent.key_line, mark.text, mark.children) if mark else Mark(parent.key_line, text_line)
            )
            parent.key = None
        parent.size += size
        if parent.size > self._max_values:
            raise UnsupportedText(line, "more values than are read, once its aliases are expanded")
        return None

    def _whole(self, value: Any, mark: Mark, size: int) -> _Document:
        end = self._loader.get_event()  # the end of the document, or an error
        if self._unfit:
            _refuse_unfit(value, mark)
        mark.size = size
        return whole(value) if isinstance(value, float) else value, mark, end.start_mark.index

    def _set_key(self, parent: _Open, event: Any, value: Any, line: int) -> None:
        parent.merging = value == "<<" and type(event) is yaml.ScalarEvent and _is_merge(event)
        if parent.merging:
            parent.calls, self._calls = parent.calls - 1, self._calls - 1
        parent.key, parent.key_line = value if type(value) is str else _key(value, line), line
        if parent.key.startswith(_UNFIT):
            self._unfit = True
        if self._repeated is not None and not parent.merging:
            if parent.key in parent.own_keys:
                self._repeated(Repeat(parent.key, line, parent.own_keys[parent.key]))
            parent.own_keys[parent.key] = line


_HANDLERS: dict[type, Callable[[Composer, Any], _Document | None]] = {
    yaml.StreamStartEvent: Composer._stream_start,
    yaml.StreamEndEvent: Composer._stream_end,
    yaml.DocumentStartEvent: Composer._document_start,
    yaml.ScalarEvent: Composer._scalar,
    yaml.MappingStartEvent: Composer._map_start,
    yaml.MappingEndEvent: Composer._collection_end,
    yaml.SequenceStartEvent: Composer._list_start,
    yaml.SequenceEndEvent: Composer._collection_end,
    yaml.AliasEvent: Composer._alias,
}


def _merge(parent: _Open, event: Any, value: Any, mark: Mark | None, line: int) -> None:
    """Merge the value of `<<` into a map: a map, or a list of maps that is no alias."""
    if type(event) is yaml.SequenceEndEvent and mark:
        sources = list(zip(value, mark.children, strict=True))
    else:
        sources = [(value, mark)]
    for source, marks in reversed(sources):  # the first of a list takes precedence
        if not isinstance(source, dict):
            raise Unreadable(line, _WANTS_MAPS)
        parent.value.update(source)
        parent.mark.children.update(marks.children)
    parent.key, parent.merging = None, False


ODD_TAGS = "a tag runs into one of , [ ]"
_ODD_QUESTION = "a ? without quotes stands within [ ] or { }"
ODD_COLON = "a : without a blank after it stands within [ ] or { }"
"""The constructs that libyaml and go-yaml read differently."""


_WANTS_MAPS = "not YAML: << takes a map or a list of maps"


def _is_merge(event: Any) -> bool:
    return bool(event.value == "<<" and (event.implicit[0] or event.tag == f"{_TAG}merge"))


def _ratio(calls: int) -> float:
    """Return the share of its work that go-yaml may spend on aliases (allowedAliasRatio)."""
    return 0.99 - 0.89 * min(max(calls - 400_000, 0), 3_600_000) / 3_600_000


_UNFIT = "\ud800"
"""The first character of keys that JSON cannot hold. No YAML text contains it."""


def _refuse_unfit(value: Any, mark: Mark) -> None:
    """Raise Unreadable for a value or key that JSON cannot hold, unless a later key has replaced it."""
    if isinstance(value, float) and not math.isfinite(value):
        raise Unreadable(mark.line, f"{str(value).lstrip('-')} has no place in JSON")
    if isinstance(value, dict):
        for key, inner in value.items():
            if key.startswith(_UNFIT):
                raise Unreadable(mark.at((key,)).line, "a key must be a string, a number or a boolean")
            _refuse_unfit(inner, mark.at((key,)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_unfit(inner, mark.at((index,)))


def _key(value: Any, line: int) -> str:
    """Return a scalar key as the string that the conversion to JSON makes of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return _single(value)
    if isinstance(value, int) and value >= 2**63:
        return _UNFIT + json.dumps(value)
    if isinstance(value, (dict, list)):
        raise Unreadable(line, "a key must be a scalar")
    return (_UNFIT if value is None else "") + json.dumps(value)


def _single(real: float) -> str:
    """Write a number as a key: the shortest text of 32 bits (sigs.k8s.io/yaml yaml.go, strconv.FormatFloat 'g')."""
    real = _rounded(real)
    if not math.isfinite(real):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}[str(real)]
    texts = (f"{real:.{digits}e}" for digits in range(9))
    text = next(text for text in texts if _rounded(float(text)) == real)
    digits, exponent = len(text.partition("e")[0].strip("-").replace(".", "")), int(text.partition("e")[2])
    return text if exponent < -4 or exponent >= 6 else f"{real:.{max(digits - 1 - exponent, 0)}f}"


def _rounded(real: float) -> float:
    """Return the nearest number of 32 bits; Python 3.14 raises where an older one returns infinity."""
    try:
        return float(struct.unpack("f", struct.pack("f", real))[0])
    except OverflowError:
        return math.copysign(math.inf, real)


_TAG = "tag:yaml.org,2002:"


def _scalar(event: Any, source: str, line: int, tagged: bool) -> Any:
    tag, text = event.tag, event.value
    if tag is None:
        if not event.implicit[0] or (tagged and _BARE_TAG.match(source, event.start_mark.index)):
            return text
        return plain(text)
    if tag == f"{_TAG}binary":
        try:
            return base64.b64decode(re.sub("[\r\n]", "", text), validate=True).decode("utf-8", "replace")
        except (binascii.Error, ValueError) as error:
            raise Unreadable(line, "not YAML: !!binary holds no base64 text") from error
    if tag not in _TAGGED:
        return text
    value = plain(text)
    if tag == f"{_TAG}timestamp":
        fits = is_timestamp(text)
    else:
        # go-yaml makes no float of an integer above 2**63 - 1.
        fits = type(value) in _TAGGED[tag] and not (tag == f"{_TAG}float" and type(value) is int and value >= 2**63)
    if not fits:
        raise Unreadable(line, f"not YAML: {shown(text)} is not of its tag {shown(tag)}")
    return value


_ANCHOR = r"(?:&[-0-9A-Za-z_]++(?:\s++|#[^\n\r]*+[\n\r])*+)?+"
_BARE_TAG = re.compile(_ANCHOR + r"!(?=\s)")
"""The tag `!`, which makes a plain scalar a string. libyaml does not report it."""

_ODD_TAG = re.compile(_ANCHOR + r"!(?!<)[-0-9A-Za-z_;/?:@&=+$.!~*'()%]*+[],[]")
"""A tag that contains `,`, `[` or `]`: go-yaml includes it, and libyaml ends the tag there."""

_TAGGED: dict[str, tuple[type, ...]] = {
    f"{_TAG}bool": (bool,),
    f"{_TAG}int": (int,),
    f"{_TAG}float": (float, int),
    f"{_TAG}null": (type(None),),
    f"{_TAG}timestamp": (),
}
