"""The formats of a report: one file each, found by walking this folder; the file's name is the format's name.

A file has `render(report, look)` and a `PURPOSE`, and says with True or False what its format shows: `PROBLEMS` (files
that could not be read, and likely faults in others), `NOTES` (objects that were not judged, or not as new objects),
`EXEMPTED` (findings that an exemption lets through, with its name) and `REPAIRED` (which findings `/mutate` would
repair). Every format shows every other finding, also one without a file or a line. The first line of its docstring,
after "Writes", is copied to docs/check.md.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from webhook.model import immutable
from webhook.scan.results import Report
from webhook.text.terminal import Look

DEFAULT = "table"
"""The format of a report for which none is asked. It comes first."""

DECLARED = ("PURPOSE", "PROBLEMS", "NOTES", "EXEMPTED", "REPAIRED")


@immutable
class Format:
    """A format: its name, its purpose in a few words, its page (the module's docstring), and what it shows."""

    name: str
    purpose: str
    page: str
    problems: bool
    notes: bool
    exempted: bool
    repaired: bool
    render: Callable[[Report, Look], str]


def names() -> list[str]:
    """Return the names of all formats, the default first. Imports none of them."""
    return sorted((each.name for each in pkgutil.iter_modules(__path__)), key=lambda name: (name != DEFAULT, name))


@cache
def load(name: str) -> Format:
    """Import a format. Raises TypeError if its file does not declare what it shows."""
    module = importlib.import_module(f"{__name__}.{name}")
    if missing := [each for each in DECLARED if not hasattr(module, each)]:
        raise TypeError(f"format {name} does not say {', '.join(missing)}")
    return Format(
        name,
        module.PURPOSE,
        (module.__doc__ or "").strip(),
        module.PROBLEMS,
        module.NOTES,
        module.EXEMPTED,
        module.REPAIRED,
        module.render,
    )


class Purposes(Mapping[str, str]):
    """A map from the name of each format to its purpose. Reading a purpose imports the format.

    The purposes in `own` replace those of the formats.
    """

    def __init__(self, **own: str) -> None:
        self._own = own

    def __getitem__(self, name: str) -> str:
        if name not in self:
            raise KeyError(name)
        return self._own.get(name) or load(name).purpose

    def __contains__(self, name: object) -> bool:
        return name in names()

    def __iter__(self) -> Iterator[str]:
        return iter(names())

    def __len__(self) -> int:
        return len(names())
