"""YAML text in, JSON values with their line numbers out.

YAML is read as Kubernetes' own tools read it, through go-yaml v2 and JSON (sigs.k8s.io/yaml): YAML 1.1
booleans, no dates, no sexagesimal numbers, keys that are strings. Text from strangers is safe to read: depth
and the expansion of aliases are bounded, and nothing is constructed but JSON values.
"""

import base64
import binascii
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from webhook.model import Path, shown

MAX_DEPTH = 100
MAX_VALUES = 200_000
"""How many values one document may hold once its aliases are expanded."""


class Unreadable(ValueError):
    """Text that is not YAML or JSON, or is too large when expanded; `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(slots=True)
class Mark:
    """Where a value starts; for a block scalar (`|`) `text` is the line of its first character, else 0."""

    line: int
    text: int = 0
    children: Any = None  # marks by key or by index, as the value holds its values

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
    anchor: str | None
    key: str | None = None
    key_line: int = 0
    size: int = 1
    merging: bool = False
    merges: list[Any] = field(default_factory=list)


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
    _refuse_control_characters(text, first_line)
    loader = yaml.CSafeLoader(text)
    try:
        found = _compose(loader, first_line - 1, last_key_wins, max_values)
        while alone and loader.check_event():
            event = loader.get_event()
            if isinstance(event, yaml.DocumentStartEvent):
                line = first_line + event.start_mark.line  # type: ignore[union-attr]
                raise Unreadable(line, "more follows the document, and no --- before it")
        return found
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + (mark.line if mark else 0)
        raise Unreadable(line, f"not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise Unreadable(first_line, f"not YAML: {' '.join(str(error).split())}") from error
    finally:
        loader.dispose()


def _refuse_control_characters(text: str, first_line: int) -> None:
    for number, row in enumerate(text.split("\n"), start=first_line):
        if not row.isprintable() and _CONTROL.search(row):
            raise Unreadable(number, "not YAML: control characters are not allowed")


_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def _compose(loader: Any, offset: int, last_key_wins: bool, max_values: int) -> tuple[Any, Mark]:
    anchors: dict[str, tuple[Any, Mark, int] | None] = {}
    stack: list[_Open] = []
    total = 0
    while True:
        event = loader.get_event()
        line = event.start_mark.line + offset + 1
        match event:
            case yaml.StreamStartEvent():
                continue
            case yaml.DocumentStartEvent():
                if event.version not in (None, (1, 1)):
                    raise Unreadable(line, "not YAML 1.1, which is all that Kubernetes' tools read")
                continue
            case yaml.StreamEndEvent():
                return None, Mark(offset + 1)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(stack) >= MAX_DEPTH:
                    raise Unreadable(line, f"nested more than {MAX_DEPTH} deep")
                is_map = isinstance(event, yaml.MappingStartEvent)
                if stack and isinstance(stack[-1].value, dict) and stack[-1].key is None:
                    raise Unreadable(line, "a key must be a scalar")
                empty: Any = {} if is_map else []
                stack.append(_Open(empty, Mark(line, children={} if is_map else []), event.anchor))
                if event.anchor:
                    anchors[event.anchor] = None
                continue
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = stack.pop()
                for merged in done.merges:
                    for key, each in merged.items():
                        done.value.setdefault(key, each)
                value, mark, size, anchor = done.value, done.mark, done.size, done.anchor
            case yaml.AliasEvent():
                if event.anchor not in anchors:
                    raise Unreadable(line, f"not YAML: no anchor is named {shown(event.anchor)}")
                known = anchors[event.anchor]
                if known is None:
                    raise Unreadable(line, f"the alias {shown(event.anchor)} stands inside what it refers to")
                (value, mark, size), anchor = known, None
            case _:
                value, size, anchor = _scalar(event, line), 1, event.anchor
                mark = Mark(line, text=line + 1 if event.style == "|" else 0)
        if anchor:
            anchors[anchor] = (value, mark, size)
        if not stack:
            loader.get_event()  # the end of the document, or what is wrong there
            return value, mark
        parent = stack[-1]
        if isinstance(parent.value, list):
            parent.value.append(value)
            parent.mark.children.append(mark)
        elif parent.key is None:
            parent.key, parent.key_line = _key(value, line), line
            parent.merging = value == "<<" and isinstance(event, yaml.ScalarEvent) and not event.style
            if not last_key_wins and parent.key in parent.value:
                raise Unreadable(line, f"key {shown(parent.key)} stands twice in one map")
            continue
        else:
            if parent.merging:
                parent.merges.extend(_merged(value, line))
            else:
                parent.value[parent.key] = value
                # A value is found where its key stands.
                parent.mark.children[parent.key] = Mark(parent.key_line, mark.text, mark.children)
            parent.key = None
        parent.size += size
        total = max(total, parent.size)
        if total > max_values:
            raise Unreadable(line, f"more than {max_values} values once its aliases are expanded")


def _merged(value: Any, line: int) -> list[Any]:
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise Unreadable(line, "not YAML: << takes a map or a list of maps")
    return sources


def _key(value: Any, line: int) -> str:
    """Turn a scalar key into the string that the way through JSON makes of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise Unreadable(line, "a key must be a string, a number or a boolean")


_BOOLEANS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False),
}
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_NOT_A_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)


def _scalar(event: Any, line: int) -> Any:
    tag, text = event.tag, event.value
    if tag == "tag:yaml.org,2002:binary":
        try:
            return base64.b64decode(text.replace("\n", ""), validate=True).decode("utf-8")
        except (binascii.Error, ValueError) as error:
            raise Unreadable(line, "not YAML: !!binary holds no base64 text in UTF-8") from error
    kinds = _TAGGED.get(tag)
    if not event.implicit[0] and kinds is None:
        return text
    value = _plain(text, line)
    if kinds is not None and type(value) not in kinds:
        raise Unreadable(line, f"not YAML: {shown(text)} is not of its tag {shown(tag)}")
    return value


_TAGGED: dict[str | None, tuple[type, ...]] = {
    "tag:yaml.org,2002:bool": (bool,),
    "tag:yaml.org,2002:int": (int,),
    "tag:yaml.org,2002:float": (float, int),
    "tag:yaml.org,2002:null": (type(None),),
}


def _plain(text: str, line: int) -> Any:
    """Resolve a plain scalar as go-yaml v2 does (its resolve.go)."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _NOT_A_NUMBER.fullmatch(text):
        raise Unreadable(line, f"{shown(text)} has no place in JSON")
    digits = text.replace("_", "")
    if len(digits) <= 64 and _INTEGER.fullmatch(digits):
        octal = re.fullmatch(r"([-+]?)0([0-7]+)", digits)
        number = int(f"{octal[1]}0o{octal[2]}" if octal else digits, 0)
        return number if -(2**63) <= number < 2**64 else float(number)
    if len(digits) <= 64 and _FLOAT.fullmatch(digits):
        real = float(digits)
        if math.isinf(real):
            raise Unreadable(line, f"{shown(text)} has no place in JSON")
        return int(real) if real.is_integer() and abs(real) < 1e21 else real
    return text


def write(value: Any) -> str:
    """Write a JSON value as YAML, its keys in their order, and texts of several lines as they are."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=1000)


class _Dumper(yaml.SafeDumper):
    """Writes values that occur twice twice: an anchor would say something that the object does not."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)
