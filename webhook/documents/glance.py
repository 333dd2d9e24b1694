"""Reads the kind of a YAML document from the lines without indentation, a hundred times as fast as a parser."""

import re
from typing import NamedTuple

from webhook.documents.goyaml_scalars import plain


class TypeMeta(NamedTuple):
    """The apiVersion and the kind of an object, under the names of the fields."""

    apiVersion: str  # noqa: N815 - the name of the field
    kind: str


def kind(text: str) -> TypeMeta | None:
    """Return the kind that a parser would find in a document, or None if only a parser can find it.

    A document whose first line is a plain key without indentation is a map in block style. Each of its keys begins a
    line without indentation, so its kind cannot be hidden. If any other line is not a plain key, an item, a comment or
    nested text, the document is left to the parser. So are kinds that are repeated, quoted, anchored, tagged, merged or
    continued, and `items`, which make a List of any kind. Lines of a quoted text may look like keys; then the kind is
    found twice. The rest is not checked: if it is not YAML, kubectl creates nothing from it.
    """
    if "\r" in text or (not text.isascii() and any(each in text for each in _BREAKS)):
        return None
    text = f"\n{text}"  # so that every line at the margin follows a break, for which a search is fast
    first = _START.match(text)
    if not first or _ODD.search(text, first.start(1) - 1):
        return None
    found = {}
    for match in _FIELD.finditer(text, first.start(1) - 1):
        value = _VALUE.match(text, match.end())
        if value is None or match[1] in found or not isinstance(plain(value[1]), str):
            return None
        found[match[1]] = value[1]
    return TypeMeta(**found) if len(found) == 2 else None


_BREAKS = "\x85\u2028\u2029\ufeff"
"""Further line breaks of YAML 1.1, and the byte order mark."""

_START = re.compile(r"\n(?:---[ ]*(?:[ ]#.*)?\n)?(?:[ ]*(?:#.*)?\n)*([A-Za-z][-\w.]*:(?=[ \n]))", re.ASCII)
"""Lines that may precede the first key at the margin: a marker, comments and blank lines."""

_ODD = re.compile(r"\n(?:[^A-Za-z \n#-]|-[^ \n]|(?:apiVersion|kind)[ \t]+:|items[ \t]*:)")
"""The start of a line at the margin at which a key may hide."""

_FIELD = re.compile(r"\n(apiVersion|kind):")

_VALUE = re.compile(r"[ ]+([A-Za-z][A-Za-z0-9./-]*)[ ]*(?:[ ]#.*)?(?:\Z|\n(?=[^ \t\n])|\n\Z)", re.ASCII)
"""A plain scalar that ends on its line."""
