"""The manifests before a real API server: it takes them, and they let through to the webhook what it is to judge."""

import base64
import copy
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import control_plane
from cluster.control_plane import Cluster, eventually
from cluster.test_webhook import TRUSTED, Object, deployment, pod, serve
from webhook.targets import POD
from webhook.workloads import BUILT_IN, keys

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
KINDS = sorted((ROOT / "tests" / "kinds").glob("*.yaml"))
COMMANDS = re.findall(r"^kubectl .*", (MANIFESTS / "README.md").read_text("utf-8"), re.MULTILINE)
MUTATE, VALIDATE = "/mutate", "/validate"
PATHS: dict[str, tuple[str, ...]] = {
    kind: keys(template.at) for (_, kind), each in BUILT_IN.items() for template in each.templates
} | {POD[1]: ()}

overlays = pytest.mark.parametrize("folder", ["base", "overlays/enforce", "overlays/audit"])


@pytest.fixture(scope="module")
def guarded(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own with the webhook in front, registered by the manifests."""
    with control_plane.running(tmp_path_factory.mktemp("manifests"), programs) as cluster:
        cluster.add_nodes()
        for name, labels in {"vision": TRUSTED, "visitors": {}, "limited": {}, "gpu-operator": {}}.items():
            cluster.add_namespace(name, labels)
        cluster.do("create", "serviceaccount", "detector", "--namespace=vision")  # the Pod of tests/kinds names it
        cluster.do("apply", f"--filename={MANIFESTS / 'base' / 'namespace.yaml'}")
        url, bundle = serve(cluster)
        configurations = registration(cluster)
        for configuration in configurations:
            for hook in configuration["webhooks"]:
                path = hook["clientConfig"]["service"]["path"]
                hook["clientConfig"] = {"url": f"{url}{path}", "caBundle": bundle}
        applied = cluster.apply(*configurations)
        assert applied.returncode == 0, applied.stderr
        cluster.wait_until("the API server calls the webhook", lambda: in_force(cluster))
        yield cluster


def registration(cluster: Cluster) -> list[Object]:
    built = yaml.safe_load_all(cluster.do("kustomize", str(MANIFESTS / "overlays" / "enforce")))
    return [each for each in built if each["kind"].endswith("WebhookConfiguration")]


def in_force(cluster: Cluster) -> bool:
    config = config_map("probe", {"a": "sharing"})
    asked = (pod("probe", "visitors"), deployment("probe", {"nvidia.com/gpu": 1}), config)
    return [reached_by(cluster, each) for each in asked] == [[MUTATE, VALIDATE], [VALIDATE], [VALIDATE]]


def reviews(cluster: Cluster) -> list[str]:
    """The path of every review so far; each is logged before it is answered."""
    lines = (cluster.folder / "webhook.log").read_text("utf-8").splitlines()
    return [entry["endpoint"] for entry in map(json.loads, lines) if "endpoint" in entry]


def reached_by(cluster: Cluster, item: Object, *, refused: bool | None = None) -> list[str]:
    """What the webhook is asked while an object is created for show; `refused` says how that has to end."""
    before = len(reviews(cluster))
    made = cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(item))
    if refused is not None:
        assert bool(made.returncode) == refused, made.stderr
    return reviews(cluster)[before:]


def config_map(name: str, data: dict[str, str], namespace: str = "visitors", **more: Any) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, **more}


def plain(item: Object) -> Object:
    """A copy that asks for no GPU and no trust."""
    item = copy.deepcopy(item)
    found = item
    for key in PATHS[item["kind"]]:
        found = found[key]
    found["metadata"].pop("annotations", None)
    for container in (*found["spec"]["containers"], *found["spec"].get("initContainers", ())):
        resources = container.get("resources", {})
        for amounts in (resources.get("limits", {}), resources.get("requests", {})):
            for name in [name for name in amounts if name.startswith("nvidia.com/")]:
                del amounts[name]
    return item


def cpu_pod(name: str, namespace: str = "visitors") -> Object:
    return plain(pod(name, namespace))


# The API server takes them


@overlays
def test_the_api_server_takes_every_object(guarded: Cluster, folder: str) -> None:
    built = guarded.do("kustomize", str(MANIFESTS / folder))
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(built)]
    # Strict validation refuses unknown and doubled fields; what Pod Security would refuse is a warning here.
    applied = guarded.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=built)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert len(applied.stdout.splitlines()) == len(names)


@pytest.mark.parametrize("folder", ["overlays/enforce", "overlays/audit"])
def test_the_deployment_mounts_the_policy_by_its_hash(guarded: Cluster, folder: str) -> None:
    built = list(yaml.safe_load_all(guarded.do("kustomize", str(MANIFESTS / folder))))
    (policy,) = [each for each in built if each["kind"] == "ConfigMap"]
    (spec,) = [each["spec"]["template"]["spec"] for each in built if each["kind"] == "Deployment"]
    assert re.fullmatch(r"slicewarden-policy-\w{10}", policy["metadata"]["name"])
    assert {"configMap": {"name": policy["metadata"]["name"]}, "name": "policy"} in spec["volumes"]


def test_the_audit_overlay_lets_through_what_it_cannot_judge(guarded: Cluster) -> None:
    built = yaml.safe_load_all(guarded.do("kustomize", str(MANIFESTS / "overlays" / "audit")))
    hooks = [hook for each in built for hook in each.get("webhooks", ())]
    assert len(hooks) == 4
    assert {hook["failurePolicy"] for hook in hooks} == {"Ignore"}


# What reaches the webhook


@pytest.mark.parametrize("file", KINDS, ids=lambda file: file.stem)
def test_of_every_kind_only_what_asks_for_a_gpu_or_trust(guarded: Cluster, file: Path) -> None:
    (asks,) = yaml.safe_load_all(file.read_text("utf-8"))
    expected = [MUTATE, VALIDATE] if asks["kind"] == "Pod" else [VALIDATE]
    assert reached_by(guarded, asks) == expected
    assert reached_by(guarded, plain(asks), refused=False) == []
    trusts_only = plain(asks)
    found = trusts_only
    for key in PATHS[asks["kind"]]:
        found = found[key]
    found["metadata"]["annotations"] = TRUSTED
    assert reached_by(guarded, trusts_only) == expected


def test_every_kind_was_tried() -> None:
    assert {yaml.safe_load(file.read_text("utf-8"))["kind"] for file in KINDS} == PATHS.keys()


def test_a_gpu_in_an_init_container(guarded: Cluster) -> None:
    item = cpu_pod("early")
    item["spec"]["initContainers"] = [
        {"name": "i", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 1}}}
    ]
    assert reached_by(guarded, item) == [MUTATE, VALIDATE]


def test_a_gpu_that_a_limit_range_gives(guarded: Cluster) -> None:
    amounts = {"nvidia.com/gpu": "1"}
    limits = {"limits": [{"type": "Container", "default": amounts, "defaultRequest": amounts}]}
    metadata = {"name": "one", "namespace": "limited"}
    guarded.do(
        "create",
        "--filename=-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": limits}),
    )
    try:
        item = cpu_pod("defaulted", "limited")
        assert eventually(lambda: reached_by(guarded, item) == [MUTATE, VALIDATE])
    finally:
        guarded.do("delete", "limitrange", "one", "--namespace=limited")


@pytest.mark.parametrize("namespace", ["kube-system", "slicewarden-system", "gpu-operator"])
def test_namespaces_that_must_come_up_alone(guarded: Cluster, namespace: str) -> None:
    item = pod("system", namespace)
    item["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert eventually(lambda: not guarded.kubectl("get", "sa", "default", f"--namespace={namespace}").returncode)
    assert reached_by(guarded, item, refused=False) == []


def test_pods_that_exist(guarded: Cluster) -> None:
    before = len(reviews(guarded))
    assert guarded.apply(cpu_pod("exists")).returncode == 0
    guarded.do("label", "pod", "exists", "tier=test", "--namespace=visitors")
    guarded.do("debug", "exists", "--image=i", "--container=look", "--namespace=visitors")
    assert guarded.node_of("exists", "visitors") == "cpu"
    assert reviews(guarded)[before:] == []
    refused = guarded.kubectl("annotate", "pod", "exists", "slicewarden.dev/trust=trusted", "--namespace=visitors")
    assert "unearned-trust:" in refused.stderr
    assert reviews(guarded)[before:] == [VALIDATE]


def test_subresources_of_a_gpu_pod(guarded: Cluster) -> None:
    item = pod("busy", "visitors")
    item["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1"
    assert guarded.apply(item).returncode == 0
    assert guarded.node_of("busy", "visitors") == "a100-exclusive"
    before = len(reviews(guarded))
    guarded.do("debug", "busy", "--image=i", "--container=look", "--namespace=visitors")
    more = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}}]}}
    guarded.do("patch", "pod", "busy", "--subresource=resize", f"--patch={json.dumps(more)}", "--namespace=visitors")
    assert reviews(guarded)[before:] == [VALIDATE, VALIDATE]


def test_a_plain_deployment_runs_unseen(guarded: Cluster) -> None:
    before = len(reviews(guarded))
    assert guarded.apply(plain(deployment("web", {}))).returncode == 0
    guarded.do("rollout", "status", "deployment/web", "--timeout=60s", "--namespace=vision")
    assert reviews(guarded)[before:] == []


SHARING = "version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n"


@pytest.mark.parametrize(
    "item",
    [
        config_map("any-name", {"any": SHARING}),
        config_map("upper", {"any": SHARING.replace("sharing", "SHARING")}),
        config_map("long-s", {"any": SHARING.replace("sharing", "\u017fharing")}),
        config_map("binary", {}, binaryData={"any": base64.b64encode(SHARING.encode()).decode()}),
        config_map("time-slicing-config", {"any": "version: v1"}, "gpu-operator"),
        config_map("many-keys", {f"{number}": "" for number in range(100_000)}),
    ],
    ids=lambda item: item["metadata"]["name"],
)
def test_configurations_that_may_share_gpus(guarded: Cluster, item: Object) -> None:
    assert reached_by(guarded, item) == [VALIDATE]


@pytest.mark.parametrize(
    "item",
    [
        config_map("settings", {"settings.yaml": "replicas: 4\nresources: []\n"}),
        config_map("time-slicing-config", {"any": "version: v1"}),
        config_map("empty", {}),
        config_map("large", {"any": "x" * 1024 * 1023}),  # an expression may cost only so much
        config_map("thousand-keys", {f"{number}": "x" * 1000 for number in range(1000)}),
    ],
    ids=lambda item: item["metadata"]["name"],
)
def test_other_configurations(guarded: Cluster, item: Object) -> None:
    assert reached_by(guarded, item, refused=False) == []


# The commands of the README; the last tests, since they take the registration away


def commands(*words: str) -> list[list[str]]:
    return [
        shlex.split(line.replace("'$ca'", "Y2E="))[1:]
        for line in COMMANDS
        if line.split()[1 : 1 + len(words)] == [*words]
    ]


def test_one_command_removes_the_registration(guarded: Cluster) -> None:
    (remove,) = commands("delete")
    guarded.do(*remove)
    assert eventually(lambda: reached_by(guarded, pod("probe", "visitors")) == [])
    before = len(reviews(guarded))
    assert guarded.apply(pod("free", "visitors", 99)).returncode == 0
    assert "nodeSelector" not in guarded.get("pod", "free", "--namespace=visitors")["spec"]
    assert reviews(guarded)[before:] == []


def test_the_bundle_is_filled_in_and_stays(guarded: Cluster) -> None:
    configurations = registration(guarded)
    assert guarded.apply(*configurations).returncode == 0
    for patch in commands("patch"):
        guarded.do(*patch)
    assert guarded.apply(*configurations).returncode == 0
    kept = guarded.get("mutatingwebhookconfigurations,validatingwebhookconfigurations")["items"]
    clients = [hook["clientConfig"] for each in kept for hook in each["webhooks"]]
    assert [client.get("caBundle") for client in clients] == ["Y2E="] * 4
    assert all("service" in client for client in clients)
    guarded.do(*commands("delete")[0])
