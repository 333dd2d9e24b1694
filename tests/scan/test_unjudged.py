"""Objects of kinds that are not judged, with containers or GPUs in them."""

import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.documents.documents import Document, read
from webhook.documents.files import Item, alone
from webhook.policy.model import Policy
from webhook.scan import unjudged
from webhook.scan.results import GroupKind, PassedOver, Unjudged, count_unjudged
from webhook.scan.unjudged import MOST, UnjudgedPlace, may_have_places, places, within_texts

HEAD = "apiVersion: example.com/v1\nkind: Trainer\nmetadata: {name: t, namespace: lab, labels: {nvidia.com/gpu: '1'}}\n"


REQUESTS = "requests nvidia.com/gpu"


def found(text: str, policy: Policy) -> list[UnjudgedPlace]:
    ((document,), problems) = read(HEAD + text, "a.yaml")
    assert problems == []
    return [*places(Item(document, (), document.value), policy.gpu_resources)]


@given(st.text("ab-./_ \n"))
def test_a_long_name_without_a_slash_is_looked_at_once(text: str) -> None:
    every = re.findall(r"[A-Za-z0-9.-]++/[A-Za-z0-9._-]++", text)
    assert unjudged._RESOURCE.findall(text) == every
    assert all(unjudged._RESOURCE.match(f"ab{text}/c", start) is None for start in (1, 2))


def test_a_kind_without_a_name_is_counted(sample_policy: Policy) -> None:
    (found,) = count_unjudged([PassedOver(GroupKind("", ""))], sample_policy.workloads)
    assert (found.objects, found.meant) == (1, "")


def test_gpus_come_first_with_their_lines(sample_policy: Policy) -> None:
    text = "spec:\n  pod:\n  - name: main\n    image: x\n    limits:\n      nvidia.com/gpu: 2\n"
    assert found(text, sample_policy) == [
        UnjudgedPlace("a.yaml", 9, "lab/t", "spec.pod[0].limits[nvidia.com/gpu]", "nvidia.com/gpu", REQUESTS),
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
        ("values: {env: {NVIDIA_VISIBLE_DEVICES: all}}", ["values.env.NVIDIA_VISIBLE_DEVICES"]),
        ("env: [{name: NVIDIA_VISIBLE_DEVICES, value: '0'}]", ["env[0].value"]),
        ("pod: {runtimeClassName: nvidia-cdi}", ["pod.runtimeClassName"]),
        ("claims: [{name: gpu, resourceClaimTemplateName: intel}]", ["claims[0].resourceClaimTemplateName"]),
        ("claims: [{exactly: {deviceClassName: gpu.intel.com}}]", ["claims[0].exactly.deviceClassName"]),
        ("volumes: [{hostPath: {path: /dev/nvidia0}}]", ["volumes[0].hostPath.path"]),
        ("persistence: {gpu: {hostPath: /dev/nvidiactl}}", ["persistence.gpu.hostPath"]),
        (
            "domain: {devices: {gpus: [{deviceName: nvidia.com/TU104GL, name: a}]}}",
            ["domain.devices.gpus[0].deviceName"],
        ),
        ("spec: {resources: {gpu: {type: Quadro_RTX_4000, count: 1}}}", ["spec.resources.gpu"]),
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
                "env: {NVIDIA_VISIBLE_DEVICES: void}",
                "env: [{name: NVIDIA_VISIBLE_DEVICES, value: none}]",
                "env: [{name: OTHER, value: all}]",
                "pod: {runtimeClassName: kata}",
                "claims: [{exactly: {deviceClassName: mrdma.google.com}}]",
                "volumes: [{hostPath: {path: /dev/dri}}]",
                "disk: {deviceName: /dev/sda}",
                "devices: {deviceName: sda}",
                "gpu: {enabled: true}",
                "spec: {gpu: {type: ''}}",
            )
        ),
    ],
)
def test_only_containers_and_numbers_of_gpus_are_found(sample_policy: Policy, text: str, paths: list[str]) -> None:
    assert [place.path for place in found(text, sample_policy)] == paths


KEYS = [
    *("NVIDIA_VISIBLE_DEVICES", "runtimeClassName", "hostPath", "deviceName", "deviceClassName", "gpu"),
    *("image", "'image'", '"ima\\x67e"', "!!binary aW1hZ2U=", "&a image", "spec", "resourceProfile"),
    *("nvidia.com/gpu", '"nvidia.com\\/gpu"', "example.com/gpu", "a/nvidia.com/gpu", "? nvidia.com/gpu\n    "),
]
VALUES = ["all", "nvidia", "/dev/nvidia0", "{type: a}", "b", "1", "nvidia-gpu-l4:1", "{a: b}", "nvidia.com/gpu"]


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


def notes(kind: tuple[str, str], *objects: str, policy: Policy, gpus: bool = True) -> list[str]:
    some = tuple(tuple(found(text, policy)) for text in objects)
    return [*Unjudged(GroupKind(*kind), len(some), places=some).notes(gpus=gpus)]


@pytest.mark.parametrize(
    ("kind", "text", "line"),
    [
        (
            ("kubeai.org", "Model"),
            "spec: {resourceProfile: 'nvidia-gpu-l4:1'}",
            "Model.kubeai.org lab/t asks for the profile nvidia-gpu-l4:1 at spec.resourceProfile; not judged: its pods "
            "are judged when they are created",
        ),
        (
            ("kubevirt.io", "VirtualMachine"),
            "spec: {gpus: [{deviceName: nvidia.com/TU104GL, name: a}]}",
            "VirtualMachine.kubevirt.io lab/t passes through nvidia.com/TU104GL at spec.gpus[0].deviceName; not "
            "judged: its pods are judged when they are created",
        ),
        (
            ("helm.toolkit.fluxcd.io", "HelmRelease"),
            "spec: {runtimeClassName: nvidia, env: {NVIDIA_VISIBLE_DEVICES: all}}",
            "HelmRelease.helm.toolkit.fluxcd.io lab/t has the runtime class nvidia at spec.runtimeClassName and 1 more "
            "place; not judged: render its chart: helm template CHART -f VALUES | slicewarden check -",
        ),
        (
            ("example.com", "Trainer"),
            "spec: [{name: a, image: b, limits: {nvidia.com/gpu: 1}}]",
            "Trainer.example.com lab/t requests nvidia.com/gpu at spec[0].limits[nvidia.com/gpu] and 1 more place; not "
            "judged: add the kind under workloads in the policy",
        ),
    ],
)
def test_a_line_says_what_the_object_does_and_how_it_is_judged(
    sample_policy: Policy, kind: tuple[str, str], text: str, line: str
) -> None:
    assert notes(kind, text, policy=sample_policy) == [f"a.yaml:4: {line}"]


def test_a_kind_has_one_line(sample_policy: Policy) -> None:
    kind = "helm.toolkit.fluxcd.io", "HelmRelease"
    gpu, container = "a: {nvidia.com/gpu: 1}", "a: [{name: a, image: b}]"
    (line,) = notes(kind, gpu, gpu, container, gpu, gpu, gpu, policy=sample_policy)
    assert "requests nvidia.com/gpu at a[nvidia.com/gpu]; 4 more objects of its kind use GPUs too" in line
    assert "(lab/t, lab/t, lab/t and 1 more)" in line
    (line,) = notes(kind, gpu, container, policy=sample_policy, gpus=False)
    assert line.startswith("a.yaml:4: HelmRelease.helm.toolkit.fluxcd.io lab/t holds a container at a[0]; not judged: ")
    assert notes(kind, container, policy=sample_policy) == []


@pytest.mark.parametrize("kind", ["NodePool", "NodeClaim", "NodeOverlay"])
def test_kinds_that_only_describe_nodes_are_not_taken_for_workloads(sample_policy: Policy, kind: str) -> None:
    """A NodePool limits GPUs, and makes no pods that could be judged."""
    text = (
        f"apiVersion: karpenter.sh/v1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{limits: {{nvidia.com/gpu: 8}}}}\n"
    )
    for group, named in (("karpenter.sh", 0), ("example.com", 1)):
        ((document,), _) = read(text.replace("karpenter.sh", group), "a.yaml")
        assert len(places(Item(document, (), document.value), sample_policy.gpu_resources)) == named


def test_a_place_without_a_line_has_no_line_0() -> None:
    place = UnjudgedPlace("helm/nodesets", 0, "n", "a", "nvidia.com/gpu", REQUESTS)
    (line,) = Unjudged(GroupKind("a", "B"), 1, places=((place,),)).notes(gpus=True)
    assert line.startswith("helm/nodesets: B.a n ")


TEXT = """\
data:
  job.yaml: |
    # applied by a CronJob
    apiVersion: kubeflow.org/v2beta1
    kind: MPIJob
    metadata: {name: nccl}
    spec: {resources: {limits: {nvidia.com/gpu: 8}}}
  readme.md: "kind: of. nvidia.com/gpu: 8"
  values.yaml: "resources: {limits: {nvidia.com/gpu: 8}}"
"""


def test_an_object_that_a_config_map_holds_as_a_text_is_seen(sample_policy: Policy) -> None:
    ((document,), _) = read(HEAD.replace("Trainer", "ConfigMap") + TEXT, "a.yaml")
    (place,) = within_texts(Item(document, (), document.value), sample_policy.gpu_resources)
    assert (place.line, place.name, place.path) == (10, "lab/t", "data[job.yaml]")
    assert place.use == "holds MPIJob nccl, which requests nvidia.com/gpu"


@pytest.mark.parametrize("version", ["", "    apiVersion: v1\n"])
def test_each_object_of_a_list_that_a_config_map_holds_is_seen(sample_policy: Policy, version: str) -> None:
    one = "    - {apiVersion: batch.example/v1, kind: Thing, metadata: {name: NAME}, spec: {nvidia.com/gpu: 1}}\n"
    items = "".join(one.replace("NAME", name) for name in "ab")
    text = f"{HEAD.replace('Trainer', 'ConfigMap')}data:\n  list: |\n{version}    kind: List\n    items:\n{items}"
    ((document,), _) = read(text, "a.yaml")
    found = [*within_texts(Item(document, (), document.value), sample_policy.gpu_resources)]
    assert [each.use for each in found] == [f"holds Thing {name}, which requests nvidia.com/gpu" for name in "ab"]
    assert [each.line for each in found] == [text.count("\n") - 1, text.count("\n")]
