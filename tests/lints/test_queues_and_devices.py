"""Kueue's flavours against the pools, and the devices of drivers against the pools' classes."""

from datetime import date, timedelta

import pytest

from tests.support.objects import Object
from tests.support.policies import POLICY, policy_of
from webhook.documents import documents
from webhook.facts.kinds import kept
from webhook.facts.snapshot import Facts
from webhook.lints import lint

GRANTED = {"slicewarden.dev/trust": "trusted"}


def found(policy: str, name: str, *facts: Object) -> list[str]:
    """Return what one lint says of a policy. The facts are read as they come back from a file that `facts` wrote."""
    (document,), problems = documents.read(policy, "policy.yaml")
    assert not problems
    known = Facts.of([item for each in facts if (item := kept(each)) is not None])
    report = lint(policy_of(policy), document, known, date(2026, 11, 22), timedelta(days=14))
    results = report.judged[0].verdict.results
    return [result.finding.text for result in results if result.rule == name]


def namespace(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def kueue(kind: str, name: str, spec: Object, **metadata: str) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def queue(flavor: Object, resource: str = "nvidia.com/gpu", where: str = "vision") -> list[Object]:
    """A flavour, a ClusterQueue that covers a resource by it, and a LocalQueue that leads there."""
    groups = [{"coveredResources": ["cpu", resource], "flavors": [{"name": "f", "resources": []}]}]
    return [
        namespace("vision", **GRANTED),
        namespace("visitors"),
        kueue("ResourceFlavor", "f", flavor),
        kueue("ClusterQueue", "q", {"resourceGroups": groups}),
        kueue("LocalQueue", "team", {"clusterQueue": "q"}, namespace=where),
    ]


NONE = {"nodeLabels": {"nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.replicas": "1"}}
SLICED = {"nodeLabels": {"nvidia.com/gpu.sharing-strategy": "time-slicing"}}
SAMPLE = POLICY.read_text("utf-8")


def test_a_flavour_that_keeps_trusted_pods_from_their_pool_is_named_with_queue_and_pool() -> None:
    (text,) = found(SAMPLE, "flavor-against-pool", *queue(NONE))
    for word in ('flavour "f" of ClusterQueue "q"', "excludes pool shared", "namespace vision"):
        assert word in text


@pytest.mark.parametrize(
    ("flavor", "where"),
    [(SLICED, "vision"), (NONE, "visitors")],
    ids=["slices for trusted pods", "whole GPUs for the others"],
)
def test_a_flavour_that_agrees_with_the_pool_of_its_pods_is_silent(flavor: Object, where: str) -> None:
    assert found(SAMPLE, "flavor-against-pool", *queue(flavor, where=where)) == []


def test_a_flavour_of_slices_for_a_namespace_without_a_grant_is_told() -> None:
    (text,) = found(SAMPLE, "flavor-against-pool", *queue(SLICED, where="visitors"))
    assert "excludes pool exclusive: untrusted pods of namespace visitors" in text


def test_a_flavour_without_labels_counts_a_slice_as_a_card() -> None:
    (text,) = found(SAMPLE, "flavor-against-pool", *queue({}))
    assert "counts a slice as a card" in text


def test_a_flavour_for_a_pool_that_takes_no_pod_of_the_namespace_is_told() -> None:
    (text,) = found(SAMPLE, "flavor-against-pool", *queue({}, "nvidia.com/gpu.shared", "visitors"))
    assert "no pool takes untrusted pods of namespace visitors that ask for 1 nvidia.com/gpu.shared" in text


@pytest.mark.parametrize(
    ("own", "told"), [([], True), ([{"key": "slicewarden.dev/pool", "operator": "Exists"}], False)]
)
def test_a_taint_of_a_flavour_needs_a_toleration_of_its_own(own: list[Object], told: bool) -> None:
    taint = {"key": "slicewarden.dev/pool", "value": "shared", "effect": "NoSchedule"}
    texts = found(SAMPLE, "flavor-against-pool", *queue({**SLICED, "nodeTaints": [taint], "tolerations": own}))
    assert any("without a toleration of its own" in text for text in texts) is told


def test_resources_of_no_pool_are_left_to_kueue() -> None:
    assert found(SAMPLE, "flavor-against-pool", *queue(NONE, "example.com/fpga")) == []


CLASSES = """
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {name: classes}
spec:
  pools:
  - {name: slices, sharing: time-slicing, trust: [trusted], deviceClasses: [shared.example.com]}
  - {name: whole, sharing: none, trust: [trusted, untrusted], deviceClasses: [whole.example.com]}
"""


def devices(driver: str, *, shared: bool, default: str | None = None) -> list[Object]:
    memory: Object = {"value": "24Gi", **({"requestPolicy": {"default": default}} if default is not None else {})}
    device = {"name": "gpu-0", "allowMultipleAllocations": shared, "capacity": {"memory": memory}}
    spec = {"driver": driver, "nodeName": "a", "pool": {"name": "a"}, "devices": [device]}
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    return [
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": driver}, "spec": spec},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": driver},
            "spec": {"selectors": [selector]},
        },
    ]


@pytest.mark.parametrize("shared", [True, False])
def test_a_pool_of_whole_gpus_with_devices_that_are_shared_is_told(shared: bool) -> None:
    facts = [*devices("whole.example.com", shared=shared), *devices("shared.example.com", shared=True)]
    texts = found(CLASSES, "shared-device", *facts)
    assert len(texts) == shared
    assert all("class whole.example.com gives GPUs of a to several claims at once" in text for text in texts)


def test_devices_of_another_driver_are_no_devices_of_a_class() -> None:
    (elsewhere, _), (_, whole) = devices("gpu.example.com", shared=True), devices("whole.example.com", shared=True)
    assert found(CLASSES, "shared-device", elsewhere, whole) == []
    loose = {"selectors": [{"cel": {"expression": "device.driver == 'whole.example.com' || true"}}]}
    assert len(found(CLASSES, "shared-device", elsewhere, {**whole, "spec": loose})) == 1


def test_a_class_that_is_missing_is_told_once() -> None:
    elsewhere, other = devices("gpu.example.com", shared=True)
    assert found(CLASSES, "shared-device", elsewhere, other) == []
    assert len(found(CLASSES, "missing-class", elsewhere, other)) == 2


@pytest.mark.parametrize(("default", "told"), [("0", True), ("1Gi", False), (None, False)])
def test_devices_that_count_nothing_need_a_bound(default: str | None, told: bool) -> None:
    facts = [*devices("whole.example.com", shared=False), *devices("shared.example.com", shared=True, default=default)]
    assert bool(found(CLASSES, "uncounted-device", *facts)) is told
    bounded = CLASSES.replace("[shared.example.com]", "[shared.example.com], maxMemory: 8Gi")
    assert found(bounded, "uncounted-device", *facts) == []


def node(**labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}}


CLUSTER: Object = {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "gpus"}, "spec": {}}


def test_with_a_gpu_cluster_pools_by_labels_that_no_node_has_never_hold_a_pod() -> None:
    texts = found(SAMPLE, "labelless-pool", CLUSTER, node(zone="a"))
    assert [text.rpartition("so pool ")[2].split()[0] for text in texts] == ["shared", "mig", "exclusive"]
    assert found(SAMPLE, "labelless-pool", node(zone="a")) == []
    assert found(SAMPLE, "labelless-pool", CLUSTER, node(**{"nvidia.com/gpu.present": "true"})) == []
    assert found(CLASSES, "labelless-pool", CLUSTER, node(zone="a")) == []


def priority_class(value: int, **more: object) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "p"},
        "value": value,
        **more,
    }


def test_a_default_class_that_evicts_is_told_where_untrusted_pods_may_not() -> None:
    never = SAMPLE.replace("  pools:\n", "  untrusted: {preempt: Never}\n  pools:\n", 1)
    (text,) = found(never, "evicting-default", priority_class(5, globalDefault=True))
    assert "untrusted pods that name no class are refused" in text
    for harmless in ({}, {"globalDefault": True, "preemptionPolicy": "Never"}):
        assert found(never, "evicting-default", priority_class(5, **harmless)) == []
    assert found(never, "evicting-default", priority_class(0, globalDefault=True)) == []
    assert found(SAMPLE, "evicting-default", priority_class(5, globalDefault=True)) == []


def test_a_class_of_a_pool_that_was_deleted_is_told() -> None:
    policy = SAMPLE.replace(
        "    - name: shared\n", "    - name: shared\n      deviceClasses: [slices.example.com]\n", 1
    )

    def there(name: str) -> Object:
        spec: Object = {"selectors": []}
        return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}

    (text,) = found(policy, "missing-class", there("other.example.com"))
    assert 'there is no DeviceClass "slices.example.com", so claims for it wait' in text
    assert found(policy, "missing-class", there("slices.example.com")) == []
    assert found(policy, "missing-class") == []


def offering(name: str, resource: str, driver: str) -> Object:
    expression = f'device.driver == "{driver}"' if driver else "true"
    spec: Object = {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": resource}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("name", "resource", "driver", "told"),
    [
        ("fast", "example.com/fast", "gpu.nvidia.com", True),
        ("gpu.nvidia.com", "example.com/fast", "", True),
        ("fast", "nvidia.com/gpu", "gpu.nvidia.com", False),
        ("fast", "", "gpu.nvidia.com", False),
        ("net", "example.com/net", "dra.net", False),
        ("other", "example.com/other", "other.example.com", False),
    ],
)
def test_a_class_that_offers_gpus_by_a_strange_name_is_told(name: str, resource: str, driver: str, told: bool) -> None:
    assert bool(found(SAMPLE, "unjudged-class", offering(name, resource, driver))) is told


def test_a_class_of_any_device_offers_the_gpus_among_them() -> None:
    anything = offering("any", "example.com/any", "")
    assert found(SAMPLE, "unjudged-class", anything) == []
    (text,) = found(SAMPLE, "unjudged-class", anything, *devices("gpu.nvidia.com", shared=False)[:1])
    assert '"example.com/any"' in text
    listed = SAMPLE + "  gpus: {resources: [example.com/any]}\n"
    assert found(listed, "unjudged-class", anything, *devices("gpu.nvidia.com", shared=False)[:1]) == []
