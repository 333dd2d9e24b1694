"""YAML text in, JSON values with their line numbers out.

YAML is read as Kubernetes' own tools read it, through go-yaml v2 and JSON (sigs.k8s.io/yaml): YAML 1.1
booleans, no dates, no sexagesimal numbers, keys that are strings. Text from strangers is safe to read: depth
and the expansion of aliases are bounded, and nothing is constructed but JSON values.

The way of go-yaml v2 is in its decode.go and resolve.go; that of its results into JSON in sigs.k8s.io/yaml yaml.go.
"""

import base64
import binascii
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from webhook.documents.goyaml_scalars import is_timestamp, plain, whole
from webhook.model import Path
from webhook.text.words import shown

MAX_DEPTH = 100
MAX_VALUES = 200_000
"""How many values one document may hold once its aliases are expanded."""


class Unreadable(ValueError):
    """Text that is not YAML or JSON; `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class Unread(Unreadable):
    """Text that is not read here because it is too large, too deep or too odd, though others may read it."""


@dataclass(slots=True)
class Mark:
    """Where a value starts; for a block scalar (`|`) `text` is the line of its first character, else 0.

    That of a whole document says how many values it holds once its aliases are expanded.
    """

    line: int
    text: int = 0
    children: Any = None  # marks by key or by index, as the value holds its values
    size: int = 1

    def at(self, path: Path) -> "Mark":
        """The mark of the value at the path, or of its nearest parent that is there."""
        mark = self
        for key in path:
            children = mark.children
            try:
                mark = children[key]
            except (KeyError, IndexError, TypeError):
                break
        return mark


@dataclass(slots=True)
class _Open:
    """A collection that is still being read."""

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
    own_keys: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Anchor:
    """What an anchor names. `size` counts its values, `calls` what go-yaml counts: keys and aliases as well."""

    value: Any = None
    mark: Mark | None = None  # until the end of what it names
    size: int = 0
    calls: int = 0


def parse(
    text: str,
    *,
    first_line: int = 1,
    last_key_wins: bool = False,
    alone: bool = False,
    max_values: int = MAX_VALUES,
) -> tuple[Any, Mark]:
    """Read the first YAML document of a text as a JSON value with its marks; None when it is empty.

    Raises Unreadable. A key that stands twice in one map is unreadable, unless the last is to win; so is what
    follows the first document, if that has to stand `alone`.
    """
    forbidden = _FORBIDDEN.search(text)
    if forbidden and alone:
        raise _character(text, forbidden, first_line)
    readable = text[: forbidden.start()] if forbidden else text
    loader = yaml.CSafeLoader(readable)
    try:
        value, mark, end = _compose(loader, readable.removeprefix("\ufeff"), first_line - 1, last_key_wins, max_values)
        while alone and loader.check_event():
            event = loader.get_event()
            if isinstance(event, yaml.DocumentStartEvent):
                line = first_line + event.start_mark.line  # type: ignore[union-attr]
                raise Unreadable(line, "more follows the document, and no --- before it")
    except (yaml.YAMLError, Unreadable) as error:
        if forbidden and not isinstance(error, Unread):
            raise _character(text, forbidden, first_line) from error
        raise _unreadable(error, readable.removeprefix("\ufeff"), first_line) from error
    finally:
        loader.dispose()
    if forbidden and _is_seen(readable, end, forbidden[0]):
        raise _character(text, forbidden, first_line)
    return value, mark


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
            return Unread(line, _ODD_TAGS)
        if error.problem == "found unexpected ':'":
            return Unread(line, _ODD_COLON)
        return Unreadable(line, f"not YAML: {error.problem or error.context}")
    return Unreadable(first_line, f"not YAML: {' '.join(str(error).split())}")


def _character(text: str, found: re.Match[str], first_line: int) -> Unreadable:
    kind = "only text in UTF-8 is allowed" if "\udc80" <= found[0] <= "\udcff" else "control characters are not allowed"
    return Unreadable(first_line + text.count("\n", 0, found.start()), f"not YAML: {kind}")


_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
"""What YAML refuses (readerc.go); bytes that are not UTF-8 stand in a text as surrogates."""


def is_clean(text: str) -> bool:
    """Tell whether YAML allows every character of a text."""
    return not _FORBIDDEN.search(text)


_CHUNK = 512


def _is_seen(text: str, end: int, following: str) -> bool:
    """Tell whether go-yaml looks at the character that follows a text, when the first document ends earlier.

    It reads 512 bytes at a time, as far as the four of the marker that ends the document, and never sees what is
    wrong farther on (readerc.go, scannerc.go).
    """
    needed = end + 4 + text.startswith("\ufeff")
    if needed > len(text):
        return True
    raw, needed = text.encode(), len(text[:needed].encode())
    position = 0
    while position < needed:
        position += _CHUNK
        if position >= len(raw) + len(following.encode("utf-8", "surrogateescape")):
            return True
        position = min(position, len(raw))
        while position < len(raw) and raw[position] & 0xC0 == 0x80:  # a character that is cut waits for the next chunk
            position -= 1
    return False


def _compose(loader: Any, text: str, offset: int, last_key_wins: bool, max_values: int) -> tuple[Any, Mark, int]:
    """Read a document: its value, its marks, and where in the text it ends."""
    anchors: dict[str, _Anchor] = {}
    stack: list[_Open] = []
    calls, aliased = 1, 0
    unfit = False
    tagged = "!" in text
    next_event, scalar = loader.get_event, yaml.ScalarEvent
    while True:
        event: Any = next_event()
        mark: Mark | None = None
        anchor, kind, begins = None, type(event), event.start_mark
        line, text_line = begins.line + offset + 1, 0
        if kind is scalar:  # three of four, which is why it stands before all others
            if event.anchor:
                anchor = anchors[event.anchor] = _Anchor()
            if tagged and event.tag and _ODD_TAG.match(text, begins.index):
                raise Unread(line, _ODD_TAGS)
            if "?" in event.value and event.implicit[0] and stack and stack[-1].flow:
                raise Unread(line, _ODD_QUESTION)
            if tagged or event.tag is not None:
                value = _scalar(event, text, line, tagged)
            else:
                value = plain(event.value) if event.implicit[0] else event.value
            size = cost = 1
            if event.style == "|":
                text_line = line + 1
            if anchor or not stack:
                mark = Mark(line, text_line)
            calls += 1
            unfit = unfit or (type(value) is float and not math.isfinite(value))
        else:
            match event:
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    done = stack.pop()
                    value, mark, size, anchor, cost = done.value, done.mark, done.size, done.anchor, done.calls
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    start = begins.index
                    if event.anchor:
                        anchor = anchors[event.anchor] = _Anchor()
                    if event.tag and _ODD_TAG.match(text, start):
                        raise Unread(line, _ODD_TAGS)
                    if len(stack) >= MAX_DEPTH:
                        raise Unread(line, f"nested more than {MAX_DEPTH} deep")
                    is_map = isinstance(event, yaml.MappingStartEvent)
                    if stack and isinstance(stack[-1].value, dict) and stack[-1].key is None:
                        if len(stack) == 1 and stack[0].start == start and text[start] in "{[" and _is_empty(loader):
                            # go-yaml does not look on whether a first and empty collection is a key.
                            return ({} if is_map else []), Mark(line), event.end_mark.index  # type: ignore[union-attr]
                        raise Unreadable(line, "a key must be a scalar")
                    # Of a merge's list go-yaml reads the maps alone.
                    own = 0 if not is_map and stack and stack[-1].merging else 1
                    calls += own
                    empty: Any = {} if is_map else []
                    begun = Mark(line, children={} if is_map else [])
                    stack.append(_Open(empty, begun, anchor, own, start, bool(event.flow_style)))
                    continue
                case yaml.AliasEvent():
                    if event.anchor not in anchors:
                        raise Unreadable(line, f"not YAML: no anchor is named {shown(event.anchor)}")
                    known = anchors[event.anchor]
                    if known.mark is None:
                        raise Unreadable(line, f"the alias {shown(event.anchor)} stands inside what it refers to")
                    value, mark, size, cost = known.value, known.mark, known.size, known.calls + 1
                    calls, aliased = calls + cost, aliased + known.calls
                case yaml.DocumentStartEvent():
                    if event.version not in (None, (1, 1)):
                        raise Unreadable(line, "not YAML 1.1, which is all that Kubernetes' tools read")
                    continue
                case yaml.StreamStartEvent():
                    continue
                case yaml.StreamEndEvent():
                    return None, Mark(offset + 1), len(text)
        if aliased > 100 and calls > 1000 and aliased > calls * _ratio(calls):
            raise Unreadable(line, "not YAML: nearly nothing but aliases")
        if anchor:
            anchor.value, anchor.mark, anchor.size, anchor.calls = value, mark, size, cost
        if not stack:
            end = loader.get_event()  # of the document, or what is wrong there
            mark = mark or Mark(line)
            if unfit:
                _refuse_unfit(value, mark)
            mark.size = size
            return whole(value) if isinstance(value, float) else value, mark, end.start_mark.index
        parent = stack[-1]
        parent.calls += cost
        if type(parent.value) is list:
            parent.value.append(whole(value) if type(value) is float else value)
            parent.mark.children.append(mark or Mark(line, text_line))
        elif parent.key is None:
            parent.merging = value == "<<" and kind is scalar and _is_merge(event)
            if parent.merging:
                parent.calls, calls = parent.calls - 1, calls - 1
            parent.key, parent.key_line = value if type(value) is str else _key(value, line), line
            unfit = unfit or parent.key.startswith(_UNFIT)
            if not last_key_wins and not parent.merging:
                if parent.key in parent.own_keys:
                    raise Unreadable(line, f"key {shown(parent.key)} stands twice in one map")
                parent.own_keys.add(parent.key)
            continue
        elif parent.merging:
            if kind is yaml.SequenceEndEvent and mark:
                sources = list(zip(value, mark.children, strict=True))
            else:
                sources = [(value, mark)]
            for source, marks in reversed(sources):  # the first of a list goes before the others
                if not isinstance(source, dict):
                    raise Unreadable(line, _WANTS_MAPS)
                parent.value.update(source)
                parent.mark.children.update(marks.children)
            parent.key, parent.merging = None, False
        else:
            parent.value[parent.key] = whole(value) if type(value) is float else value
            # A value is found where its key stands.
            parent.mark.children[parent.key] = (
                Mark(parent.key_line, mark.text, mark.children) if mark else Mark(parent.key_line, text_line)
            )
            parent.key = None
        parent.size += size
        if parent.size > max_values:
            raise Unread(line, "more values than are read, once its aliases are expanded")


_ODD_TAGS = "a tag runs into one of , [ ]"
_ODD_QUESTION = "a ? without quotes stands within [ ] or { }"
_ODD_COLON = "a : without a blank after it stands within [ ] or { }"
"""What libyaml and go-yaml read each in its own way."""


def _is_empty(loader: Any) -> bool:
    return isinstance(loader.get_event(), yaml.CollectionEndEvent)


_WANTS_MAPS = "not YAML: << takes a map or a list of maps"


def _is_merge(event: Any) -> bool:
    return bool(event.value == "<<" and (event.implicit[0] or event.tag == f"{_TAG}merge"))


def _ratio(calls: int) -> float:
    """Return how much of its work go-yaml lets come from aliases (allowedAliasRatio)."""
    return 0.99 - 0.89 * min(max(calls - 400_000, 0), 3_600_000) / 3_600_000


_UNFIT = "\ud800"
"""Begins a key that JSON has no place for; no text in YAML holds this character."""


def _refuse_unfit(value: Any, mark: Mark) -> None:
    """Refuse what JSON has no place for, if no later key has replaced it."""
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
    """Turn a scalar key into the string that the way through JSON makes of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}[str(value)]
    if isinstance(value, float):
        value = whole(value)
    elif isinstance(value, int) and value >= 2**63:
        return _UNFIT + json.dumps(value)
    if isinstance(value, (dict, list)):
        raise Unreadable(line, "a key must be a scalar")
    return (_UNFIT if value is None else "") + json.dumps(value)


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
        # Of an integer above the signed ones go-yaml makes no float.
        fits = type(value) in _TAGGED[tag] and not (tag == f"{_TAG}float" and type(value) is int and value >= 2**63)
    if not fits:
        raise Unreadable(line, f"not YAML: {shown(text)} is not of its tag {shown(tag)}")
    return value


_ANCHOR = r"(?:&[-0-9A-Za-z_]++(?:\s++|#[^\n\r]*+[\n\r])*+)?+"
_BARE_TAG = re.compile(_ANCHOR + r"!(?=\s)")
"""The tag `!`, which makes text of a plain scalar; libyaml does not tell of it."""

_ODD_TAG = re.compile(_ANCHOR + r"!(?!<)[-0-9A-Za-z_;/?:@&=+$.!~*'()%]*+[],[]")
"""A tag with one of these: go-yaml reads on where libyaml stops."""

_TAGGED: dict[str, tuple[type, ...]] = {
    f"{_TAG}bool": (bool,),
    f"{_TAG}int": (int,),
    f"{_TAG}float": (float, int),
    f"{_TAG}null": (type(None),),
    f"{_TAG}timestamp": (),
}


def write(value: Any) -> str:
    """Write a JSON value as YAML, its keys in their order, and texts of several lines as they are."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=1000)


class _Dumper(yaml.SafeDumper):
    """Writes values that occur twice twice: an anchor would say something that the object does not."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quote what go-yaml would not read as text, which is more than the dumper knows of: `y`, `1e3`."""
    style = "|" if "\n" in text else None if isinstance(plain(text), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)
