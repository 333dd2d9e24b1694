"""Defines marks, which are the lines of a document's values, and the errors for texts that cannot be read."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from webhook.model import Path
from webhook.text.words import shown


class Unreadable(ValueError):
    """The text is not YAML or JSON. `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class UnsupportedText(Unreadable):
    """The text is too large, too deep or too unusual to be read here, though other readers may accept it."""


@dataclass(slots=True, eq=False, repr=False)
class Mark:
    """The line where a value starts. For a block scalar (`|`) `text` is the line of its first character, else 0.

    `size` is set on the mark of a document: the number of its values, once its aliases are expanded.
    """

    line: int
    text: int = 0
    children: Any = None  # the marks of the values in a map or a list, by key or by index
    size: int = 1

    def at(self, path: Path) -> "Mark":
        """Return the mark of the value at the path, or of its nearest existing parent."""
        mark = self
        for key in path:
            children = mark.children
            try:
                mark = children[key]
            except (KeyError, IndexError, TypeError):
                break
        return mark


class Repeat(NamedTuple):
    """A key that a map repeats, with its line and the line of its first occurrence."""

    key: str
    line: int
    first: int

    @property
    def text(self) -> str:
        """One line: the repeated key, and where it occurs first."""
        return f"duplicate key {shown(self.key)}, first at line {self.first}"
