"""Reads YAML without unusual features in half the time of `goyaml.parse`. Most manifests have none.

It keeps few marks, and gives up on any unusual text. Then `goyaml.parse` reads the text from its start, and reports any
error.
"""

import math
from collections.abc import Callable
from typing import Any

import yaml

from webhook.documents.goyaml_composer import MAX_DEPTH
from webhook.documents.goyaml_scalars import plain, whole
from webhook.documents.marks import Mark

Following = Callable[[], Any]
"""Returns the next event of libyaml."""


class Peculiar(Exception):
    """The text needs `goyaml.parse`: it has an anchor, a tag, a merge, an unusual key, an infinity, or an error.

    A key is unusual if it is repeated, or is no string.
    """


def parse(text: str, first_line: int) -> tuple[dict[str, Any], Mark]:
    """Read the one map of a text, with the marks of its own keys and of the entries of its own lists.

    The text must have only characters that YAML allows. Raises Peculiar.
    """
    if "!" in text:  # libyaml does not report every tag
        raise Peculiar
    loader = yaml.CSafeLoader(text)
    try:
        return _document(loader.get_event, first_line)
    except yaml.YAMLError as error:
        raise Peculiar from error
    finally:
        loader.dispose()


def _document(following: Following, first_line: int) -> tuple[dict[str, Any], Mark]:
    _, start, root = following(), following(), following()
    if type(root) is not yaml.MappingStartEvent or root.anchor or start.version not in (None, (1, 1)):
        raise Peculiar
    value: dict[str, Any] = {}
    mark = Mark(first_line + root.start_mark.line, children={})  # type: ignore[union-attr]
    while type(event := following()) is not yaml.MappingEndEvent:
        key = _key(event, value, root.flow_style)
        entries: list[Mark] = []
        mark.children[key] = Mark(first_line + event.start_mark.line, children=entries)
        event = following()
        if type(event) is yaml.SequenceStartEvent and not event.anchor:
            value[key] = listed = []
            while type(entry := following()) is not yaml.SequenceEndEvent:
                entries.append(Mark(first_line + entry.start_mark.line))
                listed.append(_value(following, entry, 2, event.flow_style))
        else:
            value[key] = _value(following, event, 1, root.flow_style)
    following()  # the end of the document
    if type(following()) is not yaml.StreamEndEvent:
        raise Peculiar
    return value, mark


def _value(following: Following, event: Any, depth: int, flow: bool | None) -> Any:
    """Read the value that begins with an event.

    `depth` counts the values around it; the innermost has `flow` style or not.
    """
    kind = type(event)
    if event.anchor or kind is yaml.AliasEvent:
        raise Peculiar
    if kind is yaml.ScalarEvent:
        text = event.value
        if not event.implicit[0]:
            return text
        if flow and "?" in text:
            raise Peculiar
        value = plain(text)
        return value if type(value) is not float else _finite(value)
    if depth >= MAX_DEPTH:
        raise Peculiar
    flow = event.flow_style
    if kind is yaml.SequenceStartEvent:
        entries = []
        while type(event := following()) is not yaml.SequenceEndEvent:
            entries.append(_value(following, event, depth + 1, flow))
        return entries
    fields: dict[str, Any] = {}
    while type(event := following()) is not yaml.MappingEndEvent:
        key = _key(event, fields, flow)
        fields[key] = _value(following, following(), depth + 1, flow)
    return fields


def _key(event: Any, fields: dict[str, Any], flow: bool | None) -> str:
    if type(event) is not yaml.ScalarEvent or event.anchor:
        raise Peculiar
    key: str = event.value
    if key in fields or (event.implicit[0] and (key == "<<" or (flow and "?" in key) or type(plain(key)) is not str)):
        raise Peculiar
    return key


def _finite(value: float) -> int | float:
    if not math.isfinite(value):
        raise Peculiar
    return whole(value)
