"""The rules: one file each.

They are found by walking this folder; the file's name is the rule's id.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args

from webhook.api.objects import Subject
from webhook.facts.snapshot import Facts
from webhook.model import Finding
from webhook.policy.model import Policy

Check = Callable[[Any, Policy, Facts], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its id, what it judges, the function that judges, and its page (the module's docstring).

    Only one that `mends` is asked for fixes, and only its findings may have any.
    """

    id: str
    subject: type[Subject] | UnionType
    check: Check
    page: str
    mends: bool = False


@cache
def walk() -> tuple[Rule, ...]:
    """Load every rule of this folder, sorted by id. A rule judges the classes that its first parameter names.

    One whose findings have fixes says so by `MENDS = True`.
    """
    return tuple(sorted(map(_rule, (m.name for m in pkgutil.iter_modules(__path__))), key=lambda r: r.id))


def _rule(name: str) -> Rule:
    module = importlib.import_module(f"{__name__}.{name}")
    subject = next(iter(module.check.__annotations__.values()))
    if not set(get_args(subject) or (subject,)) <= set(get_args(Subject)):
        raise TypeError(f"rule {name}: check's first parameter must be one of {Subject}")
    page = (module.__doc__ or "").strip()
    return Rule(name.replace("_", "-"), subject, module.check, page, mends=getattr(module, "MENDS", False))
