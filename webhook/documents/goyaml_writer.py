"""Writes JSON values as YAML that go-yaml v2 reads as the same values."""

import json
import re
from collections.abc import Iterable
from typing import Any

import yaml

from webhook.documents.goyaml_scalars import plain
from webhook.text.words import quelled


def as_json(value: Any) -> bytes:
    """Write a value as JSON that go-yaml reads too: it refuses a character that is escaped as a surrogate pair."""
    text = json.dumps(value, sort_keys=True)
    return _ESCAPE.sub(lambda found: json.loads(f'"{found[0]}"') if found[1] else found[0], text).encode()


_ESCAPE = re.compile(r"\\(?:(ud[89ab]..\\ud[c-f]..)|.)")


def write(value: Any) -> str:
    """Write a JSON value as YAML. Keys keep their order, and texts of several lines become block scalars.

    No line of the output can be a command for a build server: a text that has such a line is written in double quotes,
    with escapes.
    """
    return quelled(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=1000))


class _Dumper(yaml.SafeDumper):
    """A dumper without anchors: a repeated value is written twice, since the object has no aliases."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quote texts that go-yaml would not read as strings. PyYAML misses some: `y`, `1e3`."""
    style = "|" if "\n" in text else None if isinstance(plain(text), str) else "'"
    if ("::" in text or "##" in text) and _COMMAND.search(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_COMMAND = re.compile(r"(^|\s)::|##\w*\[")
"""A place that `quelled` escapes, or would escape if a long text continued there on a new line."""

_Dumper.add_representer(str, _write_text)


def flow(value: str | Iterable[str]) -> str:
    """Write a text, or a list of texts, within one line of YAML. Every reader of YAML 1.1 or 1.2 reads it as text.

    Quotes are written only if they are needed: if the text has characters that names do not have, or would be read as
    another type (`null`, `no`, `1e3`, `2026-01-01`).
    """
    if not isinstance(value, str):
        return f"[{', '.join(map(flow, value))}]"
    return value if _NAME.fullmatch(value) and _is_text(value) else _quoted(value)


_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_ ./-]*[A-Za-z0-9_./-])?")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+")
"""Numbers of YAML 1.2 (10.3.2, the core schema), of any size: only go-yaml reads one that is too large as text."""

_YAML_1_1 = yaml.resolver.Resolver()
"""YAML 1.1 as PyYAML reads it, with the timestamps that go-yaml v2 reads as texts."""


def _is_text(text: str) -> bool:
    """Whether each reader takes a plain scalar for text. Its first character is a letter or a digit."""
    resolved = _YAML_1_1.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return isinstance(plain(text), str) and not _NUMBER.fullmatch(text) and resolved == "tag:yaml.org,2002:str"


def _quoted(text: str) -> str:
    """Write a text in double quotes, in printable ASCII. YAML has JSON's escapes, except surrogate pairs."""
    return re.sub("[^ -~]", _escaped, json.dumps(text, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
