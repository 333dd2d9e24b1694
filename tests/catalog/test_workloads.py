"""The table of workloads: every place is found, a policy adds kinds, and what is not there is no fault."""

import tracemalloc
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.support.policies import POLICY, policy_of
from webhook.allowance import UNITS, TooLarge
from webhook.api import admission
from webhook.api.fields import group_kind
from webhook.api.objects import unpaid
from webhook.api.pods import POD, Pod
from webhook.catalog.places import EACH_ITEM, EACH_VALUE, Part, Template, keys
from webhook.catalog.workloads import WORKLOADS
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Malformed, Object, Path, Request, dotted
from webhook.policy.model import Policy
from webhook.rules import walk

CONTAINER = {"name": "a", "resources": {"limits": {"nvidia.com/gpu.shared": 2}}}
TEMPLATES = [(each.group, each.kind, template) for each in WORKLOADS.values() for template in each.templates]


def at(place: str, value: Any) -> Any:
    """Build what leads to a value at a place."""
    for key in reversed(keys(place)):
        value = [value] if key == EACH_ITEM else {"x" if key == EACH_VALUE else key: value}
    return value


def request(group: str, kind: str, item: Object) -> Request:
    return Request("u", "CREATE", group, "v1", kind, "", "vision", "x", None, False, item, None)


def pods_of(group: str, kind: str, item: Object) -> list[Pod]:
    return [each for each in unpaid(request(group, kind, item), item) if isinstance(each, Pod) and each.containers]


def reached(item: Any, path: Path) -> Any:
    for key in path:
        item = item[key]
    return item


def test_every_kind_has_a_manifest() -> None:
    """In `tests/kinds`, where the rules, the registration and the API server are tried on it."""
    files = sorted((ROOT / "tests" / "kinds").glob("*.yaml"))
    tried = [group_kind(yaml.safe_load(file.read_text("utf-8"))) for file in files]
    assert sorted(tried) == sorted([POD, *WORKLOADS])


@pytest.mark.parametrize(("group", "kind", "template"), TEMPLATES, ids=lambda value: getattr(value, "at", value))
def test_every_place_is_found(group: str, kind: str, template: Template) -> None:
    pods = []
    inside = () if template.spec is None else (f"{template.spec}.containers.[]".strip("."),)
    for inner in (*inside, *template.containers):
        item = at(template.at, at(inner, CONTAINER))
        (pod,) = pods_of(group, kind, item)
        assert [container.spec for container in pod.containers] == [CONTAINER]
        assert reached(item, pod.located(pod.containers[0].path)[0]) == CONTAINER
        pods.append(pod)
    namespace = "" if WORKLOADS[group, kind].cluster_scoped else "vision"
    assert all(pod.template and pod.namespace == namespace for pod in pods)


VALUES: dict[str, Any] = {
    "env": [{"name": "A", "value": "1"}],
    "tolerations": [{"operator": "Exists"}],
    "volumes": [{"name": "v", "hostPath": {"path": "/dev"}}],
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "args": ["a"],
    "command": ["a"],
    "envFrom": [{"prefix": "A"}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "resourceClaims": [{"name": "a"}],
    "claims": [{"name": "a"}],
    "nodeSelector": {"zone": "x"},
    "hostNetwork": True,
    "shareProcessNamespace": True,
}
TEXTS = {"image", "path", "runtimeClassName", "schedulerName", "serviceAccount"}
PARTS = [
    (each.group, each.kind, template, part)
    for each in WORKLOADS.values()
    for template in each.templates
    for part in (*template.parts, *template.own)
]


def value_of(part: Part) -> Any:
    key = part.into[-1]
    if part.name or key == "nvidia.com/gpu":
        return 2
    return VALUES.get(key, "text" if key in TEXTS else {"x": {}})


@pytest.mark.parametrize(
    ("group", "kind", "template", "part"), PARTS, ids=lambda each: getattr(each, "place", getattr(each, "at", each))
)
def test_every_part_counts_as_its_field_and_is_found_where_it_stands(
    group: str, kind: str, template: Template, part: Part
) -> None:
    value = value_of(part)
    item = at(part.place if part.place[:1] == "/" else f"{template.at}.{part.place}", value)
    if part.place[:1] == "/":
        item = merged(item, at(template.at, {}))
    into = part.into
    if part.name:
        place = part.name if part.name[:1] == "/" else f"{template.at}.{part.name}"
        item = merged(item, at(place, "nvidia.com/gpu".removesuffix(part.suffix)))
        into = (*into, "nvidia.com/gpu")
    pods = [each for each in unpaid(request(group, kind, item), item) if isinstance(each, Pod)]
    holders = [(pod, pod.spec, pod.spec_path) for pod in pods]
    holders += [(pod, container.spec, container.path) for pod in pods for container in pod.containers]
    if into[-1] == EACH_VALUE:  # an entry for each value of a map
        pod = next(pod for pod in pods if pod.containers and pod.containers[0].spec.get("env"))
        assert pod.containers[0].spec["env"] == [{"name": "x", "value": value["x"]}]
        assert reached(item, pod.located((*pod.containers[0].path, "env", 0))[0]) == value["x"]
        return
    path = tuple(0 if key == EACH_ITEM else key for key in into)
    for pod, holder, base in holders:
        with suppress(KeyError, IndexError, TypeError):
            if reached(holder, path) == value:
                assert reached(item, pod.located((*base, *path))[0]) == value
                return
    pytest.fail("it is not found")


@pytest.mark.parametrize(
    ("limits", "amounts"),
    [
        ({"gpu": "1"}, {"nvidia.com/gpu": "1"}),
        ({"gpu": "1", "gpuType": ""}, {"nvidia.com/gpu": "1"}),
        ({"gpu": "1", "gpuType": "nvidia.com/mig-1g.5gb"}, {"nvidia.com/mig-1g.5gb": "1"}),
        (
            {"gpu": "1", "gpuType": "nvidia.com/gpu.shared", "custom": {"amd.com/gpu": "2"}},
            {"nvidia.com/gpu.shared": "1", "amd.com/gpu": "2"},
        ),
    ],
)
def test_the_gpus_of_dynamo_are_of_the_type_that_it_names(limits: Object, amounts: Object) -> None:
    item = {"spec": {"services": {"decode": {"resources": {"limits": limits}}}}}
    ((container,),) = (pod.containers for pod in pods_of("nvidia.com", "DynamoGraphDeployment", item))
    assert container.spec["resources"]["limits"] == amounts


def test_the_gpus_of_sparks_configuration_need_a_vendor() -> None:
    conf = {"spark.executor.resource.gpu.amount": "1"}
    item = {"spec": {"executor": {}, "sparkConf": conf}}
    assert pods_of("sparkoperator.k8s.io", "SparkApplication", item) == []
    conf["spark.executor.resource.gpu.vendor"] = "nvidia.com"
    (pod,) = pods_of("sparkoperator.k8s.io", "SparkApplication", item)
    assert pod.containers[0].spec == {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


def merged(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: merged(one.get(key), other.get(key)) for key in one | other}
    if isinstance(one, list) and isinstance(other, list):
        return [merged(a, b) for a, b in zip(one, other, strict=True)]
    return other if one is None else one


@pytest.mark.parametrize("item", [{}, {"spec": None}, {"spec": {}, "metadata": {}}])
def test_what_is_not_there_is_no_fault(engine: Engine, sample_facts: Facts, item: Object) -> None:
    denied = [kind for kind in WORKLOADS if not engine.judge(request(*kind, item), sample_facts).allowed]
    assert denied == []


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({"spec": {"pytorchReplicaSpecs": [1]}}, "spec.pytorchReplicaSpecs"),
        ({"spec": {"pytorchReplicaSpecs": {"Worker": 1}}}, "spec.pytorchReplicaSpecs.Worker"),
        ({"spec": {"pytorchReplicaSpecs": {"Worker": {"template": "a"}}}}, "spec.pytorchReplicaSpecs.Worker.template"),
    ],
)
def test_another_shape_is_refused_where_it_stands(
    engine: Engine, sample_facts: Facts, item: Object, place: str
) -> None:
    verdict = engine.judge(request("kubeflow.org", "PyTorchJob", item), sample_facts)
    assert isinstance(verdict.malformed, Malformed)
    assert dotted(verdict.malformed.path) == place


def test_annotations_of_a_workflow_come_from_both_places() -> None:
    spec = {
        "podMetadata": {"annotations": {"a": "1", "b": "1"}},
        "nodeSelector": {"zone": "x"},
        "templates": [
            {"metadata": {"annotations": {"b": "2"}}, "container": CONTAINER},
            {"nodeSelector": {"zone": "y"}},
        ],
    }
    item = {"spec": spec}
    first, second = (each for each in unpaid(request("argoproj.io", "Workflow", item), item) if isinstance(each, Pod))
    assert (first.annotations, first.node_selector) == ({"a": "1", "b": "2"}, {"zone": "x"})
    assert (second.annotations, second.node_selector) == ({"a": "1", "b": "1"}, {"zone": "y"})


def test_an_old_template_is_paired_with_its_place() -> None:
    old = at("spec.tasks.[].template", {"spec": {"containers": [CONTAINER]}})
    asked = replace(request("batch.volcano.sh", "Job", old), operation="UPDATE")
    (pod,) = unpaid(asked, old, old)
    assert isinstance(pod, Pod)
    assert pod.old is not None
    assert pod.old.spec_path == pod.spec_path
    assert pod.old.old is None


WORDS = """\
  workloads:
    - {group: example.com, kind: Pipeline, resource: pipelines, templates: ["spec.stages.[].pod"]}
    - {group: example.com, kind: Lab, resource: labs, podSpecs: [spec.lab]}
"""


@pytest.mark.parametrize(
    ("kind", "item", "place"),
    [
        (
            "Pipeline",
            {"stages": [{}, {"pod": {"spec": {"containers": [CONTAINER]}}}]},
            "spec.stages[1].pod.spec.containers[0]",
        ),
        ("Lab", {"lab": {"containers": [CONTAINER]}}, "spec.lab.containers[0]"),
    ],
)
def test_a_policy_adds_kinds(sample_policy: Policy, sample_facts: Facts, kind: str, item: Object, place: str) -> None:
    policy = policy_of(POLICY.read_text("utf-8") + WORDS)
    value = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"namespace": "vision"}, "spec": item}
    asked = admission.decode(admission.wrap(value))
    assert not list(unpaid(asked, value))
    verdict = Engine(policy, walk()).judge(asked, sample_facts)
    assert any(dotted(result.finding.path).startswith(place) for result in verdict.results)
    assert Engine(sample_policy, walk()).judge(asked, sample_facts).allowed


def of_openshift(container: Object, **values: str) -> Pod:
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"containers": [container]}}}}
    parameters = [{"name": "UNSET"}, *({"name": name, "value": value} for name, value in values.items())]
    (pod,) = pods_of("template.openshift.io", "Template", {"objects": [job], "parameters": parameters})
    return pod


def test_values_of_parameters_are_filled_in() -> None:
    limits = {"nvidia.com/gpu": "${{COUNT}}", "cpu": "${{UNSET}}"}
    security = {"privileged": "${{WHOLE}}"}
    container = {"image": "${NAME}:${TAG}-${UNSET}", "resources": {"limits": limits}, "securityContext": security}
    spec = of_openshift(container, COUNT="2", WHOLE="true", NAME="vllm", TAG="1.0").containers[0].spec
    assert spec == {
        "image": "vllm:1.0-${UNSET}",
        "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": None}},
        "securityContext": {"privileged": True},
    }


def test_parameters_do_not_make_a_text_grow_without_end() -> None:
    text = "${X}" * 1000
    assert of_openshift({"image": text}, X="x" * 1000).containers[0].spec == {"image": text}


def test_a_text_that_parameters_make_too_long_is_never_made() -> None:
    """A Template of 44 kB took 135 MiB of a worker, and one of 106 kB took 693 MiB."""
    tracemalloc.start()
    try:
        of_openshift({"image": "${X}" * 5_000}, X="x" * 5_000)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000  # the text would have 25 million characters
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("written", ["${X}", "${{X}}"])
@pytest.mark.parametrize("length", [100, 4_000])
def test_the_texts_of_one_template_are_bounded_together(length: int, written: str) -> None:
    """Each is short enough, but a Template of 100 kB has ten thousand."""

    def filled(texts: int) -> int:
        (container,) = of_openshift({"args": [written] * texts}, X="x" * length).containers
        return sum(map(len, container.words))

    most = 20 * UNITS // length
    assert filled(most // 2) == most // 2 * length
    with pytest.raises(TooLarge, match="entries in texts with parameters come to"):
        filled(most + 1)


def test_annotations_that_stand_alone_are_those_of_the_pods() -> None:
    item = {"spec": {"workerAnnotations": {"a": "b"}, "slurmd": {"resources": {"nvidia.com/gpu": 1}}}}
    (pod,) = pods_of("slurm.nebius.ai", "NodeSet", item)
    assert pod.annotations == {"a": "b"}
