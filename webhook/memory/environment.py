"""Merges a cap with the environment that a container's author wrote: values in, steps out.

Nothing here knows of pods, nor of one framework more than of another.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from webhook.memory import frameworks
from webhook.memory.frameworks import Framework
from webhook.memory.steps import WRITES, Cap, Environment, Kind, Step, Words, unknown

HIDING = tuple(
    name
    for framework in frameworks.walk()
    for name in (*framework.hiding, *(defeat.name for defeat in framework.defeats))
)
"""Names that take a cap away when they come from a place that is not read."""

KNOWN = frozenset(
    {
        *(variable.name for framework in frameworks.walk() for variable in framework.variables if variable.written),
        *HIDING,
    }
)
"""Every name that is looked at."""

_IMAGES = frozenset(framework.image for framework in frameworks.walk()) - {""}


def merge(env: Environment, cap: Cap, image: str = "") -> tuple[Step, ...]:
    """Return the steps that bring a container's environment under a cap.

    The stricter of the tenant's limit and ours stands, and what else the tenant wrote is kept. Applying the steps
    and merging again yields none that write.
    """
    if image not in _IMAGES:  # most containers set nothing, and send back what was added to them
        steps, after, notes = _nothing_set(cap)
        if not env:
            return steps
        if env == after:
            return notes
    return tuple(_merge(env, cap, image))


@lru_cache(maxsize=64)
def _nothing_set(cap: Cap) -> tuple[tuple[Step, ...], Environment, tuple[Step, ...]]:
    """The steps for a container that sets nothing, its environment after them, and the steps that write nothing."""
    steps = tuple(_merge({}, cap, ""))
    return steps, applied({}, steps), tuple(step for step in steps if step.kind not in WRITES)


def applied(env: Environment, steps: Iterable[Step]) -> dict[str, str | None]:
    """Return the environment after the steps; added variables come last."""
    return {**env, **{step.name: step.value for step in steps if step.kind in WRITES}}


def _merge(env: Environment, cap: Cap, image: str) -> Iterator[Step]:
    capped = [framework for framework in frameworks.walk() if cap.policy.caps(framework.name)]
    for framework in capped:
        if framework.image in ("", image):
            yield from framework.merge(env, cap)
    for framework in capped:
        yield from _defeats(env, framework)


# Variables that take a cap away

MAY_DEFEAT = Words(
    "{name} is not known before the pod runs, and may take the cap away; write its value into the pod, or remove it",
    "{framework}: {name} is not known",
)
DEFEATS = Words("{name}={plain} {effect}; remove it", "{framework}: {name} takes the cap away")
FROM_ELSEWHERE = Words(
    "envFrom is not looked into, and {name} in it would take the cap away; name variables one by one",
    "envFrom is not looked into",
)


def _defeats(env: Environment, framework: Framework) -> Iterator[Step]:
    for defeat in framework.defeats:
        if defeat.name not in env:
            continue
        value, owner = env[defeat.name], ("framework", framework.name)
        if value is None or unknown(value):
            yield Step(Kind.DEFEAT, defeat.name, MAY_DEFEAT, details=(owner,))
        elif effect := defeat.effect(value):
            yield Step(Kind.DEFEAT, defeat.name, DEFEATS, old=value, details=(owner, ("effect", effect)))


def from_elsewhere(env: Environment, prefixes: Iterable[str]) -> Iterator[Step]:
    """Name a variable that `envFrom` may set and that takes a cap away; the container's own `env` counts over it.

    A prefix with which such a name begins serves nothing else, so it takes the cap away. Without one that is only not
    known, and the rule unread-variables speaks of it.
    """
    names = [name for name in HIDING if name not in env]
    prefixes = sorted(prefixes, reverse=True)
    possible = next((name for prefix in prefixes for name in names if name.startswith(prefix)), None)
    if possible is not None:
        certain = any(map(possible.startswith, filter(None, prefixes)))
        yield Step(Kind.DEFEAT if certain else Kind.UNSURE, possible, FROM_ELSEWHERE)
