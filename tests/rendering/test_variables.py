"""A text that decides about a pod brings a note if only the cluster has its variable."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.fixtures import FOLDERS, engine_of, files_of, fixture, verb
from webhook.model import Action, Path, Verdict
from webhook.rendering.variables import Variables

HIDDEN = Variables({}, hidden=True)

OTHERWISE = {("metadata", "name"), ("metadata", "namespace"), ("data",)}
"""Places that decide nothing, or are looked at in another way: keys of ConfigMaps."""

TRUST = "slicewarden.dev/trust"
"""An annotation with a placeholder is no level of trust, which another rule denies."""


def texts(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the places of all texts in a value."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(each, str):
            yield (*at, key)
        else:
            yield from texts(each, (*at, key))


def with_text(value: Any, at: Path, text: str) -> Any:
    """Return a copy of a value with a text at a place."""
    result = holder = copy.deepcopy(value)
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = text
    return result


def denials(verdict: Verdict) -> list[object]:
    """Return why an object is denied."""
    return [verdict.malformed] if verdict.malformed else [*verdict.having(Action.DENY)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_text_that_decides_about_a_denial_is_one_whose_variable_is_missed(folder: str) -> None:
    """Where a placeholder in place of a text makes a denied object pass, it must not pass without a note."""
    engine, facts = engine_of(folder)
    seen, missed = set[tuple[object, ...]](), list[str]()
    for file in (each for each in files_of(folder) if verb(each) == "deny"):
        request = fixture(file)[2]
        if request.operation != "CREATE" or request.object is None:
            continue
        denied = denials(engine.judge(request, facts))
        for at in texts(request.object):
            shape = (request.kind, *(key for key in at if isinstance(key, str)))
            if shape in seen or at[-1] == TRUST or any(at[: len(place)] == place for place in OTHERWISE):
                continue
            seen.add(shape)
            opened = with_text(request.object, at, "${X}")
            left = denials(engine.judge(replace(request, object=opened), facts))
            if len(left) < len(denied) and not HIDDEN.guesses(opened):
                missed.append(f"{file.stem}: {at}")
    assert not missed
