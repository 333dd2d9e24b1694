"""Finds the lines of keys and kinds in the templates of charts."""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from webhook.documents import files


class TemplateLines(NamedTuple):
    """The lines of the keys and kinds of objects that a template has; 0 for one that it has more than once."""

    keys: Mapping[str, int]
    kinds: Mapping[str, int]


def of(file: str) -> TemplateLines:
    """Return the lines in a file, which is read once for all the objects that a template makes."""
    try:
        status = os.stat(file)
    except OSError:
        return TemplateLines({}, {})
    return _lines_of(file, status.st_mtime_ns, status.st_size)


@lru_cache(64)
def _lines_of(file: str, changed: int, size: int) -> TemplateLines:  # noqa: ARG001 - another version has other lines
    try:
        text = files.contents(file).decode("utf-8", "replace")
    except (OSError, files.Unfit):
        return TemplateLines({}, {})
    keys, kinds = dict[str, int](), dict[str, int]()
    for number, row in enumerate(text.split("\n"), start=1):
        if found := _KEY.match(row):
            keys[found[1]] = 0 if found[1] in keys else number
        if found := _KIND.match(row):
            kinds[found[1]] = 0 if found[1] in kinds else number
    return TemplateLines(keys, kinds)


_KEY = re.compile(r"[ \t-]*[\"']?([^\s\"':-][^\"':]*)[\"']?:")

_KIND = re.compile(r"kind:[ \t]*[\"']?(\w+)")
