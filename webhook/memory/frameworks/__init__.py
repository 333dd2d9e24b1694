"""The frameworks: one file each, found by walking this folder; the file's name is the framework's name in a policy.

A file has a `TITLE`, its `ORDER` among the files, `VARIABLES` and `merge`. It may have `DEFEATS` (variables that take
its cap away), `HIDING` (more names that do, unless they are merged), `IMAGE` (it is merged in images of this name
alone), `FRACTIONS_ONLY` (it has no cap where the GPU's memory is the host's), `CAPPED` (what variables cap of it; by
default its name), `SHIMMED` (what the shim caps of it),
`uncapped` (what no cap reaches) and `SECTIONS` (its tables on the page of frameworks).
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache

from webhook.memory.steps import Cap, Environment, Step
from webhook.memory.tables import Defeat, ExtraTable, Variable
from webhook.model import immutable

Merge = Callable[[Environment, Cap], Iterator[Step]]


def nothing(_: Cap) -> Iterator[str]:
    """Yield nothing: the cap reaches all of the framework."""
    yield from ()


@immutable
class Framework:
    """A framework: its name in a policy, its tables, and the function that merges a cap into an environment."""

    name: str
    title: str
    order: int
    variables: tuple[Variable, ...]
    merge: Merge
    defeats: tuple[Defeat, ...]
    hiding: tuple[str, ...]
    image: str
    fractions_only: bool
    capped: str
    shimmed: str
    uncapped: Callable[[Cap], Iterator[str]]
    sections: tuple[ExtraTable, ...]


@cache
def walk() -> tuple[Framework, ...]:
    """Load every framework of this folder, in the order in which their variables are written."""
    return tuple(sorted(map(_framework, (m.name for m in pkgutil.iter_modules(__path__))), key=lambda f: f.order))


def _framework(name: str) -> Framework:
    module = importlib.import_module(f"{__name__}.{name}")
    return Framework(
        name,
        module.TITLE,
        module.ORDER,
        module.VARIABLES,
        module.merge,
        getattr(module, "DEFEATS", ()),
        getattr(module, "HIDING", ()),
        getattr(module, "IMAGE", ""),
        getattr(module, "FRACTIONS_ONLY", False),
        getattr(module, "CAPPED", name),
        getattr(module, "SHIMMED", ""),
        getattr(module, "uncapped", nothing),
        getattr(module, "SECTIONS", ()),
    )


def names() -> tuple[str, ...]:
    """The frameworks that a policy may name."""
    return tuple(framework.name for framework in walk())
