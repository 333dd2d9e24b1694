"""Provides a text that tries to begin a line or give a command, and finds the parts of it that must not be printed."""

import re
from collections.abc import Iterator
from typing import Any

HOSTILE = "a\n::error::forged\n##[add-mask]x ##vso[task.x] \x1b[2K\r\u2028::x\x85FORGED 1 object: 1 allowed"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """Yield the place of every text in an object: the map or list with the text, its key, and its path."""
    for key, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(each, str):
            yield value, key, (*path, key)
        elif isinstance(each, (dict, list)):
            yield from places(each, (*path, key))


COMMANDS_OF_OURS = re.compile(r"::(error|warning|notice) (file=[^:]*,)?(line=\d+,)?title=[^:]*::")


def harmful(text: str, form: str) -> list[str]:
    """Return the lines that the text began, or in which a build server or a terminal would find a command."""
    text = COMMANDS_OF_OURS.sub("", text) if form == "github" else text
    return [
        line
        for line in re.split(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text)
        if re.match(r"\s*::|FORGED", line) or re.search(r"##\w*\[|[\x00-\x08\x0e-\x1f\x7f]", line)
    ]
