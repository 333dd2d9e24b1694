"""The frameworks: one file each, found by walking this folder; the file's name is the framework's name in a policy.

A file has a `TITLE`, its `ORDER` among the files and its `VARIABLES`. It may have `merge` (how it takes a cap),
`DEFEATS` (variables that take its cap away), `HIDING` (more names that do, unless they are merged), `IMAGE` (it is
merged only in images of this name), `FRACTIONS_ONLY` (only fractions of the GPU's memory cap it, so it is not merged
where that memory is the host's), `CAPPED` (what variables cap of it; by default its name), `SHIMMED` (what the shim
caps of it), `uncapped` (what no cap reaches) and `SECTIONS` (its tables on the page of frameworks).
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from webhook.memory.steps import Cap, Environment, Step, StepKind
from webhook.memory.tables import Defeat, ExtraTable, Variable
from webhook.model import immutable

Merge = Callable[[Environment, Cap], Iterator[Step]]


def nothing(*_: object) -> Iterator[Any]:
    """Yield nothing. Used for a framework without `merge`, and for one without `uncapped`."""
    yield from ()


@immutable
class Framework:
    """A framework: its name in a policy, its tables, and the function that merges a cap into an environment.

    Callers use `steps` and not `merge`, because `steps` also knows where the framework has no cap.
    """

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

    def steps(self, env: Environment, cap: Cap) -> Iterator[Step]:
        """Yield the steps that bring a container's environment under a cap, and those that add the defaults."""
        if not (self.fractions_only and cap.budget.unified):
            yield from self.merge(env, cap)
        for variable in self.variables:
            if variable.default and variable.name not in env:
                yield Step(StepKind.ADD, variable.name, value=variable.text)


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
        getattr(module, "merge", nothing),
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
    """Return the names of the frameworks that a policy may cap."""
    return tuple(framework.name for framework in walk())
