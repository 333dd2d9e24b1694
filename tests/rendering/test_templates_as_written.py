"""Templates in which kubectl reads other objects than those that Helm makes of them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rendering.test_rendering import POD, Check, Program, check, named, program
from webhook.rendering import charts

__all__ = ["check", "program"]

DENIED = POD.replace("image: i", "image: i, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]")

OTHER = POD.replace("image: i", 'image: "{{ .Values.image }}"')


@pytest.mark.parametrize(
    ("written", "noted"),
    [
        (DENIED.replace("image: i", 'image: "i{{/*"').replace("}]}]}", '}], workingDir: "/*/}}"}]}'), True),
        (f"{OTHER}---\n{DENIED.replace('made', 'other')}", True),
        (OTHER, False),
        (POD.replace("image: i", 'image: "{{ .Values.image }}", workingDir: "{{ .Values.at }}"'), False),
        (DENIED.replace("image: i", "image: {{ .Values.image }}"), False),
    ],
)
def test_a_template_is_noted_if_kubectl_would_create_what_is_denied(
    check: Check, program: Program, written: str, noted: bool
) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    report = check({"web/Chart.yaml": named("web"), "web/templates/pod.yaml": written})
    notes = [note for note in report.notes if "denied as they are written" in note]
    assert [("web/templates/pod.yaml" in note) for note in notes] == [True] * noted
    assert [one.name for one in report.judged] == ["made"]


def test_a_template_is_not_noted_if_what_helm_makes_is_denied_too(check: Check, program: Program) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{DENIED}'", "helm")
    report = check({"web/Chart.yaml": named("web"), "web/templates/pod.yaml": f"{DENIED}# {{{{ .Values }}}}\n"})
    assert not any("denied as they are written" in note for note in report.notes)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab {}"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
)


@given(VALUES, st.text("ab {}"))
def test_a_value_may_become_itself_and_a_text_any_with_its_parts(value: Any, made: str) -> None:
    assert charts._may_become(value, json.loads(json.dumps(value)))
    assert charts._may_become([value, "x {{ y }} z{{- '}}"], [value, f"x {made}z"])
    assert not charts._may_become([value, "x {{ y }} z"], [value, f"x {made}"])


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ({"a": 1}, {}),
        ({}, {"a": 1}),
        ([1], []),
        (1, True),
        (1, "1"),
        ("a", "b"),
        ({"{{ x }}": 1}, {"a": 1}),
        ("{{ x }}", 1),
        ("b {{ x }} a", "a b"),
    ],
)
def test_a_value_does_not_become_another_one(written: Any, made: Any) -> None:
    assert not charts._may_become(written, made)
