"""Compare what clearly fits the policy's schema with the library that decides it."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from webhook import rules
from webhook.documents import documents
from webhook.policy import fast_schema, schemas

POLICIES = [ROOT / "policies/sample.yaml", *sorted((ROOT / "tests/fixtures").glob("*/policy.yaml"))]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.sampled_from(["", "Deny", "mps", "a", "A-", "2026-01-01", "1Gi"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "pools", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@cache
def schema() -> Any:
    return schemas.schema(rule.id for rule in rules.walk())


@cache
def policy(file: Path) -> Any:
    (document, *_), problems = documents.read(file.read_text("utf-8"), file.name)
    assert not problems
    return document.value


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a value with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.parent.name)
def test_the_policies_of_the_tree_fit_their_schema(file: Path) -> None:
    assert fast_schema.fits(policy(file), schema())


@given(data=st.data(), file=st.sampled_from(POLICIES), other=json_values, drop=st.booleans())
def test_the_fast_check_agrees_with_jsonschema(data: st.DataObject, file: Path, other: Any, drop: bool) -> None:
    value = copy.deepcopy(policy(file))
    container, key = data.draw(st.sampled_from(places(value)))
    if drop and isinstance(container, dict):
        del container[key]
    elif drop or not isinstance(container, dict):
        container[key] = other
    else:
        container[data.draw(st.sampled_from([key, "unknown"]))] = other
    valid = jsonschema.Draft202012Validator(schema()).is_valid(value)
    assert fast_schema.fits(value, schema()) == valid


def test_an_unknown_keyword_never_fits() -> None:
    assert not fast_schema.fits({"a": 1}, {"patternProperties": {"a": {"type": "string"}}})
    assert not fast_schema.fits("a", {"format": "date"})
    assert not fast_schema.fits(1.5, {"multipleOf": 1})
    assert fast_schema.fits(json.loads("{}"), {"properties": {"a": {"type": "string"}}})
