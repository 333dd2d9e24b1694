"""A variable of Flux that no file shows is noted wherever a rule judges its placeholder more mildly than a value."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import fixtures
from webhook.api import admission
from webhook.model import Action, Path
from webhook.rendering.variables import Variables

HIDDEN = Variables({}, hidden=True)
PLACEHOLDER = "${X}"

OTHERS = frozenset((("metadata", "name"), ("metadata", "namespace"), ("spec", "devicePlugin", "config", "name")))
"""What names sharing configurations, and the namespace of a pod: without its labels a pod has the least trust."""


def texts(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, str):
        yield path
    elif isinstance(value, (dict, list)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts(each, (*path, key))


def put(value: Any, path: Path, text: str) -> Any:
    made = copy.deepcopy(value)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = text
    return made


DENIED = [
    file
    for file in fixtures.FILES
    if fixtures.verb(file) == "deny" and not fixtures.fixture(file)[1] and "-sharing-" not in file.parent.name
]


@pytest.mark.parametrize("rule", sorted({file.parent.name for file in DENIED}))
def test_a_placeholder_that_passes_is_noted(rule: str) -> None:
    engine, facts = fixtures.engine_of(rule, alone=False)

    def is_denied(value: Any) -> bool:
        return any(True for _ in engine.judge(admission.decode(admission.wrap(value)), facts).having(Action.DENY))

    passed = list[tuple[str, Path]]()
    for file in (each for each in DENIED if each.parent.name == rule):
        value = fixtures.fixture(file)[0].value
        if is_denied(value):
            changed = ((path, put(value, path, PLACEHOLDER)) for path in texts(value) if path not in OTHERS)
            passed += ((file.name, path) for path, one in changed if not (HIDDEN.guesses(one) or is_denied(one)))
    assert passed == []
