"""The manifests before a real API server: it takes them, and they let through to the webhook what it is to judge."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import offered
from tests.e2e.access import definition, served
from tests.e2e.control_plane import eventually
from tests.e2e.guard import MANIFESTS, MUTATE, VALIDATE, Guard, rendered
from tests.e2e.objects import (
    KINDS,
    TRUST,
    TRUSTED,
    Object,
    config_map,
    plain,
    pod,
    template,
    without_gpus,
    workload,
)
from webhook.catalog.workloads import CUSTOM, WORKLOADS
from webhook.engine.conditions import always_asked

FILES = sorted((MANIFESTS.parent / "tests" / "kinds").glob("*.yaml"))
NAMESPACES = {"vision": TRUSTED, "visitors": {}, "limited": {}, "gpu-operator": {}}

overlays = pytest.mark.parametrize("folder", ["base", "overlays/file"])


@pytest.fixture(scope="module", autouse=True)
def operators(guarded: Guard) -> Iterator[None]:
    """The kinds of other operators, as definitions that take anything."""
    versions: dict[tuple[str, str], set[str]] = {}
    for file in FILES:
        item = yaml.safe_load(file.read_text("utf-8"))
        group, _, version = item["apiVersion"].rpartition("/")
        versions.setdefault((group, item["kind"]), set()).add(version)
    definitions = [definition(each, sorted(versions.get(key, {"v1"}))) for key, each in CUSTOM.items()]
    there = {each["metadata"]["name"] for each in guarded.cluster.get("customresourcedefinitions")["items"]}
    made = [each for each in definitions if each["metadata"]["name"] not in there]
    assert guarded.cluster.apply(*made).returncode == 0
    names = [each["metadata"]["name"] for each in made]
    served(guarded.cluster, *names)
    yield
    guarded.cluster.do("delete", *(f"crd/{name}" for name in names), "--wait=false")


@pytest.fixture(scope="module", autouse=True)
def namespaces(guarded: Guard) -> Iterator[None]:
    """The namespaces that the objects of tests/kinds and the manifests name."""
    cluster = guarded.cluster
    there = {each["metadata"]["name"] for each in cluster.get("namespaces")["items"]}
    made = {name: labels for name, labels in NAMESPACES.items() if name not in there}
    for name, labels in made.items():
        cluster.add_namespace(name, labels)
    cluster.do("create", "serviceaccount", "detector", "--namespace=vision")  # the Pod of tests/kinds names it
    yield
    cluster.do("delete", "namespace", *made, "--wait=false")


def cpu_pod(name: str, namespace: str = "visitors") -> Object:
    return plain(pod(name, namespace))


# The API server takes them


@overlays
def test_the_api_server_takes_every_object(guarded: Guard, folder: str) -> None:
    built = guarded.cluster.do("kustomize", str(MANIFESTS / folder))
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(built)]
    # Strict validation refuses unknown and doubled fields; what Pod Security would refuse is a warning here.
    applied = guarded.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=built)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert len(applied.stdout.splitlines()) == len(names)


def test_the_deployment_mounts_the_policy_by_its_hash(guarded: Guard) -> None:
    built = rendered(guarded.cluster)
    (policy,) = [each for each in built if each["kind"] == "ConfigMap"]
    (spec,) = [each["spec"]["template"]["spec"] for each in built if each["kind"] == "Deployment"]
    assert re.fullmatch(r"slicewarden-policy-\w{10}", policy["metadata"]["name"])
    assert {"configMap": {"name": policy["metadata"]["name"]}, "name": "policy"} in spec["volumes"]


# What reaches the webhook


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_only_objects_that_ask_for_a_gpu_or_trust_are_reviewed(guarded: Guard, file: Path) -> None:
    (asks,) = yaml.safe_load_all(file.read_text("utf-8"))
    expected = [MUTATE, VALIDATE] if asks["kind"] == "Pod" else [VALIDATE]
    assert guarded.reached_by(asks) == expected
    workload = WORKLOADS.get((asks["apiVersion"].rpartition("/")[0], asks["kind"]))
    always = workload is not None and always_asked(workload)
    assert guarded.reached_by(plain(asks), refused=False) == (expected if always else [])
    asks_for_trust = TRUST in file.read_text("utf-8")  # a cluster-scoped object cannot have any
    assert guarded.reached_by(without_gpus(asks)) == (expected if always or asks_for_trust else [])


RESOURCES = ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu-vendor.new"]
PLACES: dict[str, Object] = {
    "containers": {},
    "initContainers": {},
    "sidecars": {"restartPolicy": "Always"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_to_request_a_gpu_is_reviewed(guarded: Guard, kind: str) -> None:
    """In every place of every kind: every resource, as a limit, as a request that equals it, as a request alone."""
    forms = [
        (resource, place, amounts)
        for resource in RESOURCES
        for place in PLACES
        for amounts in (("limits",), ("limits", "requests"), ("requests",))
    ]
    items = [asking(kind, f"{kind.lower()}-form-{number}", *form) for number, form in enumerate(forms)]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    guarded.cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=listed)
    reached = {entry["name"] for entry in guarded.reviews("visitors")}
    missed = [form for item, form in zip(items, forms, strict=True) if item["metadata"]["name"] not in reached]
    # Of a workload the API server itself refuses a request without its limit before anyone validates it.
    assert [form for form in missed if kind == "Pod" or form[2] != ("requests",)] == []


def asking(kind: str, name: str, resource: str, place: str, amounts: tuple[str, ...]) -> Object:
    made = template()
    container = {"name": "g", "image": "i", "resources": {each: {resource: 1} for each in amounts}, **PLACES[place]}
    made["spec"].setdefault("containers" if place == "containers" else "initContainers", []).append(container)
    return {**pod(name, "visitors"), "spec": made["spec"]} if kind == "Pod" else workload(kind, name, "visitors", made)


def test_a_gpu_in_an_init_container_is_reviewed(guarded: Guard) -> None:
    item = cpu_pod("early")
    item["spec"]["initContainers"] = [
        {"name": "i", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 1}}}
    ]
    assert guarded.reached_by(item) == [MUTATE, VALIDATE]


def test_a_gpu_that_a_limit_range_adds_is_reviewed(guarded: Guard) -> None:
    amounts = {"nvidia.com/gpu": "1"}
    limits = {"limits": [{"type": "Container", "default": amounts, "defaultRequest": amounts}]}
    metadata = {"name": "one", "namespace": "limited"}
    guarded.cluster.do(
        "create",
        "--filename=-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": limits}),
    )
    try:
        item = cpu_pod("defaulted", "limited")
        assert eventually(lambda: guarded.reached_by(item) == [MUTATE, VALIDATE])
    finally:
        guarded.cluster.do("delete", "limitrange", "one", "--namespace=limited")


@pytest.mark.parametrize("namespace", ["kube-system", "slicewarden-system", "gpu-operator"])
def test_pods_in_excluded_namespaces_are_not_reviewed(guarded: Guard, namespace: str) -> None:
    item = pod("system", namespace)
    item["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert eventually(
        lambda: not guarded.cluster.kubectl("get", "sa", "default", f"--namespace={namespace}").returncode
    )
    assert guarded.reached_by(item, refused=False) == []


def test_an_existing_plain_pod_is_reviewed_only_when_it_asks_for_trust(guarded: Guard) -> None:
    before = len(guarded.asked("visitors"))
    assert guarded.cluster.apply(cpu_pod("exists")).returncode == 0
    guarded.cluster.do("label", "pod", "exists", "tier=test", "--namespace=visitors")
    guarded.cluster.do("debug", "exists", "--image=i", "--container=look", "--namespace=visitors")
    assert guarded.cluster.node_of("exists", "visitors") == "cpu"
    assert guarded.asked("visitors")[before:] == []
    refused = guarded.cluster.kubectl(
        "annotate", "pod", "exists", "slicewarden.dev/trust=trusted", "--namespace=visitors"
    )
    assert "unearned-trust:" in refused.stderr
    assert guarded.asked("visitors")[before:] == [VALIDATE]


@pytest.mark.needs(offered.RESIZE)
def test_changes_of_a_gpu_pods_subresources_are_reviewed(guarded: Guard) -> None:
    item = pod("busy", "visitors")
    item["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1"
    assert guarded.cluster.apply(item).returncode == 0
    assert guarded.cluster.node_of("busy", "visitors") == "a100-exclusive"
    before = len(guarded.asked("visitors"))
    guarded.cluster.do("debug", "busy", "--image=i", "--container=look", "--namespace=visitors")
    more = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}}]}}
    guarded.cluster.do(
        "patch", "pod", "busy", "--subresource=resize", f"--patch={json.dumps(more)}", "--namespace=visitors"
    )
    assert guarded.asked("visitors")[before:] == [MUTATE, VALIDATE, VALIDATE]


def test_a_plain_deployment_runs_without_a_review(guarded: Guard) -> None:
    before = len(guarded.asked("vision"))
    assert guarded.cluster.apply(workload("Deployment", "web", "vision", template())).returncode == 0
    guarded.cluster.do("rollout", "status", "deployment/web", "--timeout=300s", "--namespace=vision")
    assert guarded.asked("vision")[before:] == []


SHARING = "version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n"


@pytest.mark.parametrize(
    "item",
    [
        config_map("any-name", "visitors", {"any": SHARING}),
        config_map("upper", "visitors", {"any": SHARING.replace("sharing", "SHARING")}),
        config_map(
            "long-s", "visitors", {"any": SHARING.replace("sharing", "\u017fharing").replace("timeSlicing", "mps")}
        ),
        config_map("at-the-root", "visitors", {"any": SHARING.replace("sharing", "shared")}),
        config_map("mps", "visitors", {"any": SHARING.replace("timeSlicing", "MPS")}),
        config_map("binary", "visitors", {}, binaryData={"any": base64.b64encode(SHARING.encode()).decode()}),
        config_map("any-name", "gpu-operator", {"any": "version: v1"}),
        config_map("many-keys", "visitors", {f"{number}": "" for number in range(20_000)}),
    ],
    ids=lambda item: item["metadata"]["name"],
)
def test_config_maps_that_may_share_gpus_are_reviewed(guarded: Guard, item: Object) -> None:
    assert guarded.reached_by(item) == [VALIDATE]


@pytest.mark.parametrize(
    "item",
    [
        config_map("settings", "visitors", {"settings.yaml": "replicas: 4\nresources: []\n"}),
        config_map("time-slicing-config", "visitors", {"any": "version: v1"}),
        config_map("clock", "visitors", {"any": "timestamps: true, slices: 4"}),
        config_map("empty", "visitors", {}),
        config_map("large", "visitors", {"any": "x" * 1024 * 1023}),  # an expression may cost only so much
        config_map("thousand-keys", "visitors", {f"{number}": "x" * 1000 for number in range(1000)}),
    ],
    ids=lambda item: item["metadata"]["name"],
)
def test_other_config_maps_are_not_reviewed(guarded: Guard, item: Object) -> None:
    assert guarded.reached_by(item, refused=False) == []


# The command for an emergency; the last test, since it takes the registration away


def test_one_command_removes_the_registration(guarded: Guard) -> None:
    guarded.unregister()
    before = len(guarded.asked("visitors"))
    assert guarded.cluster.apply(pod("free", "visitors", {"nvidia.com/gpu": 99})).returncode == 0
    assert "nodeSelector" not in guarded.cluster.get("pod", "free", "--namespace=visitors")["spec"]
    assert guarded.asked("visitors")[before:] == []
