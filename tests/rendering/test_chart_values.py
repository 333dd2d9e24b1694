"""How values in a kustomization are merged into those of a chart (tests/chart asks kustomize)."""

import json
from typing import Any

import pytest

from webhook.documents import files
from webhook.documents.merged_values import merged


def given(text: str, inline: dict[str, Any], merge: str = "") -> tuple[Any, str]:
    own = next(iter(files.parsed(text.encode(), "values.yaml")))
    values, doubt = merged(text.encode(), own.value, inline, merge)  # type: ignore[union-attr]
    return json.loads(values[0]), doubt


@pytest.mark.parametrize(
    ("text", "inline", "merge", "expected"),
    [
        ("a: 1", {"a": None}, "", {}),
        ("a: 1", {"b": None, "c": {"d": None}}, "override", {"a": 1, "c": {}}),
        ("a: {b: null, c: }", {"d": 1}, "", {"a": {"b": None}, "d": 1}),
        ("a: [{b: }]", {"d": 1}, "", {"a": [{"b": None}], "d": 1}),
        ("a: 1\n---\na: 2\n", {"b": 1}, "", {"a": 1, "b": 1}),
        ("a: yes", {"b": 1}, "", {"a": "yes", "b": 1}),
        ("a: 1", {"a": 2, "b": None}, "merge", {"a": 1, "b": None}),
        ("a: 1", {"a": None}, "replace", {"a": None}),
        ("a: {b: 1, c: 2}", {"a": {"b": 3}}, "", {"a": {"b": 3, "c": 2}}),
    ],
)
def test_values_are_merged(text: str, inline: dict[str, Any], merge: str, expected: dict[str, Any]) -> None:
    assert given(text, inline, merge) == (expected, "")


@pytest.mark.parametrize(
    ("text", "inline"),
    [
        ("a: &x {b: 1}\nc: *x", {"d": 1}),
        ("a: {<<: {b: 1}}", {"d": 1}),
        ("on: 1", {"d": 1}),
        ("a: 2001-01-01", {"d": 1}),
        ("a: 0o17", {"d": 1}),
        ("a: !x 1", {"d": 1}),
        ("a: 1", {"$patch": "delete"}),
        ("a: {$patch: delete}", {"a": {"b": 1}}),
        ("a: {apiVersion: v1, kind: Pod}", {"a": {"kind": "x"}}),
    ],
)
def test_values_that_kustomize_may_merge_otherwise_are_doubted(text: str, inline: dict[str, Any]) -> None:
    assert given(text, inline)[1]
