"""What kustomizations and Flux change, followed without their programs."""

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from webhook.documents import goyaml_writer
from webhook.documents.documents import read
from webhook.kustomize import patching
from webhook.rendering.variables import Variables, substituted

FIRST, SECOND, THIRD = {"name": "a", "image": "x:1"}, {"name": "b", "env": [{"name": "K", "value": "1"}]}, {"name": "c"}
POD = {"spec": {"containers": [FIRST, SECOND]}}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"spec": {"hostPID": True}}, {"spec": {**POD["spec"], "hostPID": True}}),
        ({"spec": {"containers": [{"name": "a", "image": None}]}}, {"spec": {"containers": [{"name": "a"}, SECOND]}}),
        ({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}, {"spec": {"containers": [SECOND]}}),
        ({"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}}, {"spec": {"containers": [{"name": "c"}]}}),
        ({"spec": {"containers": [{**THIRD, "$patch": "replace"}]}}, {"spec": {"containers": [THIRD, FIRST, SECOND]}}),
        ({"spec": {"$patch": "replace", "x": 1}}, {"spec": {"x": 1}}),
        ({"spec": {"$patch": "replace", "volumes": [{"name": "v", "$patch": "delete"}]}}, {"spec": {"volumes": []}}),
        ({"spec": {"$patch": "replace", "x": {"y": 1, "z": {"$patch": "delete"}}}}, {"spec": {"x": {"y": 1}}}),
        ({"$patch": "delete"}, None),
    ],
)  # fmt: skip
def test_a_strategic_merge_patch(patch: dict[str, Any], expected: Any) -> None:
    assert patching.merge(POD, patch, strategic=True) == expected
    assert patching.merges_object(POD, patch, strategic=True)


@pytest.mark.parametrize(
    "patch",
    [
        {"$patch": "replace", "spec": {}},
        {"spec": {"$patch": "other"}},
        {"spec": {"containers": [{"name": "a", "$patch": "replace"}]}},
        {"spec": {"containers": [{"$patch": "delete"}]}},
        {"spec": {"containers": [{"$patch": "replace"}, {"name": "a", "$patch": "delete"}]}},
        {"spec": {"containers": [{"image": "x"}]}},
        {"spec": {"containers": [{"name": "b", "env": [{"$patch": "merge"}]}]}},
        {"spec": {"initContainers": [{"$patch": "replace"}, {"name": "c"}]}},
        {"spec": {"$retainKeys": ["containers"]}},
        {"spec": {"$setElementOrder/containers": [{"name": "b"}]}},
        {"metadata": {"annotations": None}},
        {"metadata": {"labels": {"a": None}}},
    ],
)
def test_what_kustomize_may_merge_otherwise_is_known(patch: dict[str, Any]) -> None:
    assert not patching.merges_object(POD, patch, strategic=True)


def test_claims_are_merged_by_the_api_and_replaced_by_kustomize() -> None:
    patch, claims = {"resourceClaims": [{"name": "b"}]}, {"resourceClaims": [{"name": "a"}]}
    assert not patching.merges_object(claims, patch, strategic=True)
    assert patching.merges_object({}, patch, strategic=True)


def test_lists_of_other_kinds_keep_directives() -> None:
    patch = {"spec": {"containers": [{"name": "a", "$patch": "delete", "image": None}]}}
    assert patching.merge(POD, patch, strategic=False) == patch
    assert patching.merges_object(POD, patch, strategic=False)


@pytest.mark.parametrize(
    ("version", "kind", "templates"), [("apps/v1", "Deployment", 1), ("argoproj.io/v1", "Rollout", 0)]
)
def test_the_templates_of_some_kinds_get_annotations(version: str, kind: str, templates: int) -> None:
    value = {"apiVersion": version, "kind": kind, "spec": {"template": {}}}
    marked = patching.marked(value, {"a": "b"}, templates=True, field="annotations")
    assert json.dumps(marked).count('"annotations"') == 1 + templates


def test_lists_of_other_kinds_are_replaced() -> None:
    patch = {"spec": {"containers": [{"name": "c"}]}}
    assert patching.merge(POD, patch, strategic=False) == patch
    merged = patching.merge(POD, patch, strategic=True)
    assert [each["name"] for each in merged["spec"]["containers"]] == ["c", "a", "b"]


def test_a_key_with_a_placeholder_is_no_directive() -> None:
    patch = {"$patch": "merge", "$retainKeys": ["a"], "$setElementOrder/b": [], "${name}": 2}
    assert patching.merge({"${name}": 1}, patch, strategic=True) == {"${name}": 2}


def test_json_patches_say_what_they_wrote() -> None:
    value: Any = copy.deepcopy(POD)
    path = patching.operate(value, {"op": "add", "path": "/spec/containers/-", "value": {"name": "c"}})
    assert path == ("spec", "containers", 2)
    assert value["spec"]["containers"][2] == {"name": "c"}
    path = patching.operate(value, {"op": "replace", "path": "/spec/a~1b~0", "value": 1})
    assert (path, value["spec"]["a/b~"]) == (("spec", "a/b~"), 1)
    patching.operate(value, {"op": "remove", "path": "/spec/containers/0"})
    assert [each["name"] for each in value["spec"]["containers"]] == ["b", "c"]
    before = copy.deepcopy(value)
    for pointer in ("", "/spec/x/y", "/spec/containers/9/name", "/spec/containers/x"):
        with pytest.raises(patching.Unfitting):
            patching.operate(value, {"op": "remove", "path": pointer})
    assert value == before


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("registry:5000/web", "registry:5000/web:2"),
        ("registry:5000/web:1", "registry:5000/web:2"),
        ("registry:5000/web@sha256:aa", "registry:5000/web:2"),
        ("registry:5000/web2:1", "registry:5000/web2:1"),
    ],
)
def test_images_are_found_by_their_names(image: str, expected: str) -> None:
    value = {"spec": {"containers": [{"name": "c", "image": image}]}}
    changed = patching.with_images(value, [{"name": "registry:5000/web", "newTag": "2"}])
    assert changed["spec"]["containers"][0]["image"] == expected


def test_a_target_selects_by_whole_patterns_and_labels() -> None:
    value = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "p-web", "labels": {"a": "1"}}}
    names = frozenset(("web", "p-web"))
    for target in (
        {"kind": "Deployment"},
        {"name": "w.*"},
        {"name": "web"},
        {"group": "apps", "version": "v1"},
        {"labelSelector": "a=1"},
        {"labelSelector": "b!=2,a"},
    ):
        assert patching.selects(target, value, names), target
    for target in (
        {"kind": "Deploy"},
        {"name": "we"},
        {"namespace": "x"},
        {"labelSelector": "a=2"},
        {"group": "batch"},
    ):
        assert not patching.selects(target, value, names), target


def test_a_pattern_that_would_take_for_ever_is_a_plain_text() -> None:
    names = frozenset(("a" * 200,))
    assert not patching.selects({"name": "(a+)+(a+)+(a+)+b"}, {"metadata": {}}, names)


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("${n:=4}", {}, 4),
        ("${n:-4}", {"n": "2"}, 2),
        ("${n=4}", {"n": ""}, 4),
        ("${n=4}", {"n": "2"}, 2),
        ("tr${n}", {"n": "ue"}, True),
        ("${n}0", {"n": "1"}, 10),
        ("-${n}", {"n": "1"}, -1),
        ("v${n}", {"n": "1"}, "v1"),
        ("${n:=4}", {"n": ""}, 4),
        ("x-${n}", {}, "x-${n}"),
        ("$${n}", {"n": "2"}, "${n}"),
        ("$$${n}", {"n": "2"}, "$2"),
        ("$$(n)", {"n": "2"}, "$(n)"),
        ("a: ${n:=b c}\nd: ${m:=true}", {}, "a: b c\nd: true"),
    ],
)
def test_placeholders_of_flux_take_their_values_or_defaults(text: str, known: dict[str, str], expected: Any) -> None:
    assert substituted({"x": [text]}, known) == {"x": [expected]}


def test_a_variable_that_no_file_hides_is_empty() -> None:
    assert substituted("x-${n}", {}, strict=True) == "x-"


_PIECES = st.sampled_from(
    ["a", "NVIDIA", " ", "#", "'", '"', ":", "-", "{", "}", "\\", "!!str", "&a", "1", "${v}", "${w}"]
)
_TEXTS = st.lists(_PIECES, min_size=1, max_size=6).map("".join)
_VALUES = st.lists(_PIECES.filter(lambda each: not each.startswith("$")), max_size=4).map("".join)


@settings(max_examples=400)
@given(text=_TEXTS, v=_VALUES, w=_VALUES)
@example(text="NVIDIA${v}", v=" ", w="")
@example(text="${w}NVIDIA${w}", v="", w='"')
@example(text="a ${v}#b", v="", w="")
@example(text="!!str${v}", v="", w="")
@example(text="${v}${w}", v="1", w="1")
def test_a_text_becomes_what_flux_reads_or_is_a_guess(text: str, v: str, w: str) -> None:
    known = {"v": v, "w": w}
    written = goyaml_writer.write({"k": text})
    for name, value in known.items():
        written = written.replace(f"${{{name}}}", value)
    documents, problems = read(written, "")
    if not (problems or Variables(known, strict=True).guesses({"k": text})):
        made = substituted(text, known, strict=True)
        (document,) = documents
        read_again = document.value["k"]
        assert (type(made), made) == (type(read_again), read_again) or not (made or read_again)


_KEYS = st.lists(st.sampled_from(["a", "<", "<<", "-", "---", ".", " ", "1", "$$", "${v}", "${w}"]), max_size=4)


@settings(max_examples=400)
@given(keys=st.lists(_KEYS.map("".join), min_size=1, max_size=3), text=_TEXTS, v=_VALUES, w=_VALUES)
@example(keys=["${v}"], text="1", v="<<", w="")
@example(keys=["<${v}<"], text="1", v="", w="")
@example(keys=["a", "${v}"], text="1", v="a", w="")
@example(keys=["${v}", "${w}"], text="1", v="a", w="a")
@example(keys=["${v}"], text="1", v='--- {"a":1} #', w="")
def test_a_map_becomes_what_flux_reads_or_is_a_guess(keys: list[str], text: str, v: str, w: str) -> None:
    known, value = {"v": v, "w": w}, {key: {key: [text]} for key in keys}
    filled = {"$$": "$", **{f"${{{name}}}": each for name, each in known.items()}}
    written = re.sub(r"\$\$|\$\{[vw]\}", lambda found: filled[found[0]], goyaml_writer.write(value))
    documents, problems = read(written, "")
    if not (problems or Variables(known, strict=True).guesses(value)):
        assert _as_texts(substituted(value, known, strict=True)) == _as_texts(documents[0].value)


def _as_texts(value: Any) -> Any:
    """Write a value as text, with the keys of each map in order; null is an empty text."""
    if isinstance(value, dict):
        return {str(key): _as_texts(value[key]) for key in sorted(value, key=str)}
    return [_as_texts(each) for each in value] if isinstance(value, list) else str(value or "")


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("app notin (web, api)", False),
        ("app notin (api)", True),
        ("team notin (x)", True),
        ("app in (web,api),tier", True),
        ("app in (api)", False),
        ("!team , app", True),
        ("!app", False),
        (" app = web , tier!=back", True),
        ("team!=x", True),
        ("app (web)", False),
    ],
)
def test_a_selector_of_labels_is_read_as_kubernetes_reads_it(selector: str, selected: bool) -> None:
    value = {"kind": "Pod", "metadata": {"name": "p", "labels": {"app": "web", "tier": "front"}}}
    assert patching.selects({"labelSelector": selector}, value, frozenset(("p",))) is selected


@pytest.mark.parametrize(
    ("namespace", "selected"), [("lab", True), ("before", True), ("default", False), ("la", False), ("l.*", True)]
)
def test_a_target_selects_by_the_namespace_before_and_now(namespace: str, selected: bool) -> None:
    value = {"kind": "Pod", "metadata": {"name": "p", "namespace": "lab"}}
    assert patching.selects({"namespace": namespace}, value, frozenset(("p",)), ["before"]) is selected
    bare = {"kind": "Pod", "metadata": {"name": "p"}}
    assert patching.selects({"namespace": namespace}, bare, frozenset(("p",))) is (namespace == "default")
