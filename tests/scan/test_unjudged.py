"""Objects of kinds that are not judged, with containers or GPUs in them."""

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.documents.documents import Document, read
from webhook.documents.files import Item, alone
from webhook.policy.model import Policy
from webhook.scan.results import GroupKind, Unjudged
from webhook.scan.unjudged import MOST, UnjudgedPlace, may_have_places, places

HEAD = "apiVersion: example.com/v1\nkind: Trainer\nmetadata: {name: t, namespace: lab, labels: {nvidia.com/gpu: '1'}}\n"


def found(text: str, policy: Policy) -> list[UnjudgedPlace]:
    ((document,), problems) = read(HEAD + text, "a.yaml")
    assert problems == []
    return [*places(Item(document, (), document.value), policy.gpu_resources)]


def test_gpus_come_first_with_their_lines(sample_policy: Policy) -> None:
    text = "spec:\n  pod:\n  - name: main\n    image: x\n    limits:\n      nvidia.com/gpu: 2\n"
    assert found(text, sample_policy) == [
        UnjudgedPlace("a.yaml", 9, "lab/t", "spec.pod[0].limits[nvidia.com/gpu]", "nvidia.com/gpu"),
        UnjudgedPlace("a.yaml", 6, "lab/t", "spec.pod[0]"),
    ]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a: {nvidia.com/gpu: 1}", ["a[nvidia.com/gpu]"]),
        ("a: {metax-tech.com/sgpu: '1'}", ["a[metax-tech.com/sgpu]"]),
        ("a: {nvidia.com/gpu: '{{ .gpus }}'}", ["a[nvidia.com/gpu]"]),
        ("a: {nvidia.com/gpu: $GPUS}", ["a[nvidia.com/gpu]"]),
        ("a: [[{name: a, image: b}]]", ["a[0][0]"]),
        ("spec: {resourceProfile: 'nvidia-gpu-l4:1'}", ["spec.resourceProfile"]),
        ("a: &a [{name: a, image: b}]\nb: *a", ["a[0]"]),
        *(
            (text, [])
            for text in (
                "a: {nvidia.com/gpu: 0}",
                "spec: {resourceProfile: 'cpu:2'}",
                "a: {nvidia.com/gpu: '0'}",
                "a: {nvidia.com/gpu: true}",
                "a: {nvidia.com/gpu.product: NVIDIA-A10}",
                "a: {nvidia.com/hostdev: 1}",
                "a: {cpu: 1, example.com/gpu: 1}",
                "a: {nodeSelector: {nvidia.com/gpu.count: '8'}}",
                "status: {capacity: {nvidia.com/gpu: 8}}",
                "a: [{name: a, newName: b}, {image: b}, {name: a, image: {tag: b}}]",
                "a: {name: a, image: b}",
            )
        ),
    ],
)
def test_only_containers_and_numbers_of_gpus_are_found(sample_policy: Policy, text: str, paths: list[str]) -> None:
    assert [place.path for place in found(text, sample_policy)] == paths


KEYS = [
    *("image", "'image'", '"ima\\x67e"', "!!binary aW1hZ2U=", "&a image", "spec", "resourceProfile"),
    *("nvidia.com/gpu", '"nvidia.com\\/gpu"', "example.com/gpu", "a/nvidia.com/gpu", "? nvidia.com/gpu\n    "),
]
VALUES = ["b", "1", "nvidia-gpu-l4:1", "{a: b}", "nvidia.com/gpu"]


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)), min_size=1, max_size=3))
def test_no_place_is_missed_by_a_look_at_the_text(sample_policy: Policy, entries: list[tuple[str, str]]) -> None:
    """A look may suspect a place where a parse finds none, and never the other way round."""
    text = "spec:\n" + "".join(f"  - name: x\n    {key}: {value}\n" for key, value in entries)
    assert may_have_places(text, sample_policy.gpu_resources) or not found(text, sample_policy)


@pytest.mark.parametrize("text", ["a: b", "a: {cpu: 1, example.com/gpu: 1}", "apiVersion: a/v1\nurl: https://a/b"])
def test_most_objects_need_no_parse(sample_policy: Policy, text: str) -> None:
    assert not may_have_places(text, sample_policy.gpu_resources)


def test_the_first_places_of_each_sort_are_kept(sample_policy: Policy) -> None:
    containers = "".join("- {name: a, image: b}\n" for _ in range(3 * MOST))
    some = found(f"a:\n{containers}b: {{nvidia.com/gpu: 1}}\n", sample_policy)
    assert [place.path for place in some] == ["b[nvidia.com/gpu]", *(f"a[{index}]" for index in range(MOST - 1))]


def test_depth_and_repeats_cost_no_more_than_their_text(sample_policy: Policy) -> None:
    deep: Any = {"nvidia.com/gpu": 1}
    for _ in range(20 * sys.getrecursionlimit()):
        deep = {"a": deep}
    wide: Any = [{"name": "a", "image": "b"}]
    for _ in range(100):
        wide = [wide, wide]
    value = {"apiVersion": "example.com/v1", "kind": "Trainer", "metadata": {}, "wide": wide}
    (place,) = places(alone(value), sample_policy.gpu_resources)
    assert place.path == "wide" + "[0]" * 101
    document = Document("a.yaml", 0, {}, 1, alone({}).document.source)
    (place,) = places(Item(document, (), {**value, "wide": 0, "deep": deep}), sample_policy.gpu_resources)
    assert place.resource == "nvidia.com/gpu"


def test_the_pods_of_a_profile_are_judged_later(sample_policy: Policy) -> None:
    (place,) = found("spec: {resourceProfile: 'nvidia-gpu-l4:1'}", sample_policy)
    kind = GroupKind("kubeai.org", "Model")
    (note,) = Unjudged(kind, 1, places=((place,),)).notes
    assert note == (
        "a.yaml:4: Model.kubeai.org lab/t is not judged, but names a GPU at spec.resourceProfile; "
        "its pods are judged when they are created"
    )
