"""Cuts a pod's spec down to what its allowance and its slices depend on. A tenant may write any amount of the rest."""

from itertools import islice
from typing import Any

from webhook.api.lenient import mapping, sequence, string
from webhook.api.pods import CONTAINER_LISTS
from webhook.catalog import gangs
from webhook.memory.driver.variables import HARD
from webhook.model import Object

MANY = 100
"""The most entries of a list or a map, other than one of containers, that is kept whole."""

_READ = HARD | gangs.VARIABLES


def essential(spec: Object) -> Object:
    """Return a pod's spec without its large parts. Of a container's variables, those that are read are kept.

    `webhook.memory.admitted` and `webhook.usage.held` find the same in it as in the whole spec. Neither reads volumes,
    affinities, tolerations or arguments, and of claims only whether there are any.
    """
    return {
        key: [_container(each) for each in sequence(value)] if key in CONTAINER_LISTS else _few(value)
        for key, value in spec.items()
    }


def _container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    kept = {key: value if key in ("env", "resources") else _few(value) for key, value in container.items()}
    env = container.get("env")
    if isinstance(env, list) and len(env) > MANY:
        last = {name: each for each in env if (name := string(mapping(each).get("name"))) in _READ}
        kept["env"] = [*last.values()]
    return kept


def _few(value: Any) -> Any:
    """Return a value; only the first entries of a longer list or map, and of those in it."""
    if isinstance(value, dict):
        return {key: _few(each) for key, each in islice(value.items(), MANY)}
    return [_few(each) for each in value[:MANY]] if isinstance(value, list) else value
