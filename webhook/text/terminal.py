"""Formats text for a terminal: wraps it to the width, and colours it."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from webhook.text.words import one_line


class Look(NamedTuple):
    """The settings with which text is shown.

    `width` is that of a terminal in characters, None for a file or a pipe; `quiet` leaves out everything except
    findings and errors.
    """

    width: int | None = None
    colour: bool = False
    quiet: bool = False

    def paint(self, text: str, style: str) -> str:
        """Colour a text in one of the styles, if colours are on."""
        return f"\033[{_STYLES[style]}m{text}\033[0m" if self.colour and text and style else text

    def wrap(self, text: str, indent: str) -> Iterator[str]:
        """Wrap a text at blanks, and indent every line. A word that is longer than the line stays whole."""
        text = one_line(text)
        if self.width is None or len(indent) + len(text) <= self.width:
            yield indent + text
            return
        room = max(self.width - len(indent), _NARROWEST)
        line = ""
        for word in _WORDS.findall(text):
            if line and len(line) + len(word.rstrip()) > room:
                yield indent + line.rstrip()
                line = ""
            line += word
        yield indent + line.rstrip()

    def hang(self, head: str, text: str, style: str = "") -> Iterator[str]:
        """Write a text of one line after a head, and wrap it with a hanging indent if it does not fit."""
        indent = " " * _width(head)
        for number, row in enumerate(self.wrap(text, indent)):
            yield (indent if number else head) + self.paint(row[len(indent) :], style)

    def beside(self, head: str, whole: str, indent: str, style: str = "") -> Iterator[str]:
        """Write text that can be copied after a head, or below it if it does not fit in the line."""
        whole = one_line(whole)
        if self.width is None or _width(head) + 2 + len(whole) <= self.width:
            yield f"{head}  {self.paint(whole, style)}"
        else:
            yield head.rstrip()
            yield from (indent + self.paint(row[len(indent) :], style) for row in self.wrap(whole, indent))

    def error(self, text: str) -> Iterator[str]:
        """Write a problem after the word `error`, which is as wide as the column of the verdicts."""
        yield from self.hang(f"{self.paint('error', 'denied')}    ", text)

    def warning(self, text: str) -> Iterator[str]:
        """Write a possible fault after the word `warning`, which is as wide as the column of the verdicts."""
        yield from self.hang(f"{self.paint('warning', 'warned')}  ", text)


def _width(text: str) -> int:
    return len(_COLOURS.sub("", text))


PLAIN = Look()
"""The look of a file or a pipe: without a width and colours."""

_STYLES = {
    "denied": "1;31",
    "allowed": "32",
    "warned": "33",
    "faint": "2",
    "added": "32",
    "removed": "31",
    "strong": "1",
}
_NARROWEST = 24
_COLOURS = re.compile(r"\033\[[0-9;]*m")
_WORDS = re.compile(r"\S+\s*")
