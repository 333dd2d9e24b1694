"""Merges a cap with the environment that a container's author wrote. Takes variables, and returns steps.

This module knows no pods, and treats all frameworks alike.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from webhook.memory import frameworks
from webhook.memory.driver import variables
from webhook.memory.frameworks import Framework
from webhook.memory.steps import WRITES, Cap, Environment, Step, StepKind, Words, unknown

HIDING = tuple(
    name
    for framework in frameworks.walk()
    for name in (*framework.hiding, *(defeat.name for defeat in framework.defeats))
)
"""Names that take a cap away if they come from a source that cannot be read."""

KNOWN = frozenset(
    {
        *(variable.name for framework in frameworks.walk() for variable in framework.variables if variable.written),
        *HIDING,
        *variables.NAMES,
    }
)
"""Every name that is read."""

_IMAGES = frozenset(framework.image for framework in frameworks.walk()) - {""}


def merge(env: Environment, cap: Cap, image: str = "") -> tuple[Step, ...]:
    """Return the steps that bring a container's environment under a cap.

    The stricter of the tenant's limit and ours applies, and everything else is kept. After the steps are applied,
    another merge yields no step that writes.
    """
    if image not in _IMAGES:  # most containers set no variables, or only those that were added to them
        steps, after, notes = _nothing_set(cap)
        if not env:
            return steps
        if env == after:
            return notes
    return tuple(_merge(env, cap, image))


@lru_cache(maxsize=64)
def _nothing_set(cap: Cap) -> tuple[tuple[Step, ...], Environment, tuple[Step, ...]]:
    """Return the steps for a container without variables, its environment after them, and those that only report."""
    steps = tuple(_merge({}, cap, ""))
    return steps, applied({}, steps), tuple(step for step in steps if step.kind not in WRITES)


def applied(env: Environment, steps: Iterable[Step]) -> dict[str, str | None]:
    """Return a container's environment with the variables that these steps write. Added ones come last."""
    return {**env, **{step.name: step.value for step in steps if step.kind in WRITES}}


def _merge(env: Environment, cap: Cap, image: str) -> Iterator[Step]:
    capped = [framework for framework in frameworks.walk() if cap.policy.caps(framework.name)]
    for framework in capped:
        if framework.image in ("", image):
            yield from framework.steps(env, cap)
    yield from variables.merge(env, cap.budget, cap.limit)
    for framework in capped:
        yield from _defeats(env, framework)


# Variables that take a cap away

MAY_DEFEAT = Words(
    "{name} is not known before the pod runs, and may take the cap away; write its value into the pod, or remove it",
    "{framework}: {name} is not known",
)
DEFEATS = Words("{name}={plain} {effect}; remove it", "{framework}: {name} takes the cap away")
FROM_ELSEWHERE = Words(
    "envFrom may set {name}, which would take the cap away; list the variables one by one under env",
    "envFrom is not looked into",
)


def _defeats(env: Environment, framework: Framework) -> Iterator[Step]:
    for defeat in framework.defeats:
        if defeat.name not in env:
            continue
        value, owner = env[defeat.name], ("framework", framework.name)
        if value is None or unknown(value):
            yield Step(StepKind.DEFEAT, defeat.name, MAY_DEFEAT, details=(owner,))
        elif effect := defeat.effect(value):
            yield Step(StepKind.DEFEAT, defeat.name, DEFEATS, old=value, details=(owner, ("effect", effect)))


def from_elsewhere(env: Environment, prefixes: Iterable[str]) -> Iterator[Step]:
    """Yield a step if a variable from `envFrom` may take a cap away.

    The container's own `env` overrides such a variable.

    If an `envFrom` has a prefix with which the name of such a variable begins, the step counts the cap as taken away,
    because the prefix hardly has another purpose. Without a prefix the names are unknown. Then the step only says that
    the cap may be taken away, and the rule unread-variables reports it.
    """
    names = [name for name in HIDING if name not in env]
    prefixes = sorted(prefixes, reverse=True)
    possible = next((name for prefix in prefixes for name in names if name.startswith(prefix)), None)
    if possible is not None:
        certain = any(map(possible.startswith, filter(None, prefixes)))
        yield Step(StepKind.DEFEAT if certain else StepKind.UNSURE, possible, FROM_ELSEWHERE)
