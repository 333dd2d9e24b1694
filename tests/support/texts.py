"""Texts that count the characters that are read or copied of them, so that tests see work on long texts."""

from collections.abc import Callable
from typing import Any


class Meter:
    """Counts characters."""

    def __init__(self) -> None:
        self.count = 0
        self.by: dict[str, int] = {}

    def add(self, text: "Text", count: int) -> None:
        self.count += count
        self.by[text.name] = self.by.get(text.name, 0) + count


class Text(str):
    """A text that counts each character that Python reads or copies of it, and makes texts that count too.

    It sees neither the characters that `re` reads nor those that `join` copies: tests of growth count calls, and the
    length of all messages.
    """

    meter: Meter
    name: str
    hashed: bool

    def __new__(cls, value: str, meter: Meter, name: str) -> "Text":
        self = super().__new__(cls, value)
        self.meter, self.name, self.hashed = meter, name, False
        return self

    def _all(self) -> None:
        self.meter.add(self, len(self))

    def _kept(self, value: Any) -> Any:
        """Return a result that counts too."""
        if isinstance(value, str):
            return Text(value, self.meter, self.name)
        if isinstance(value, list | tuple):
            return type(value)(self._kept(each) for each in value)
        return value

    def __deepcopy__(self, _: object) -> "Text":
        return self

    def __str__(self) -> str:
        return self  # as a text itself does

    def __hash__(self) -> int:
        if not self.hashed:
            self._all()
            self.hashed = True
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, str):
            return self is other
        if len(self) == len(other):
            self._all()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __getitem__(self, key: Any) -> str:
        found = super().__getitem__(key)
        self.meter.add(self, len(found))
        return Text(found, self.meter, self.name)


def _counted(name: str) -> Callable[..., Any]:
    once = getattr(str, name)

    def method(self: Text, *args: Any, **named: Any) -> Any:
        self._all()
        return self._kept(once(self, *args, **named))

    return method


OWN = vars(Text).keys() | {"__getattribute__", "__getnewargs__", "__len__", "__sizeof__"}
LITTLE = {"endswith", "isascii", "maketrans", "startswith"}
"""The methods that read no characters, or only as many as they look for."""

for _name in vars(str).keys() - OWN - LITTLE:
    setattr(Text, _name, _counted(_name))
