"""The webhook behind a real API server: what is steered where, what is refused, and in whose ears."""

import json
import signal
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import certs
from cluster import control_plane
from cluster.control_plane import Cluster, eventually

POLICY = Path(__file__).resolve().parents[2] / "policies" / "sample.yaml"
TRUSTED = {"slicewarden.dev/trust": "trusted"}
WORKLOADS = {
    "": ["podtemplates", "replicationcontrollers"],
    "apps": ["daemonsets", "deployments", "replicasets", "statefulsets"],
    "batch": ["cronjobs", "jobs"],
}
Object = dict[str, Any]


def template(limits: dict[str, int], annotations: dict[str, str]) -> Object:
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    return {"metadata": {"annotations": annotations, "labels": {"app": "a"}}, "spec": {"containers": [container]}}


def pod(name: str, namespace: str, gpus: int = 1, annotations: dict[str, str] | None = None) -> Object:
    made = template({"nvidia.com/gpu": gpus}, annotations or {})
    made["metadata"] |= {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", **made}


def deployment(name: str, limits: dict[str, int]) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "vision"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "a"}},
            "template": template(limits, TRUSTED),
        },
    }


def rule(group: str, resources: list[str], operations: list[str]) -> Object:
    return {"apiGroups": [group], "apiVersions": ["v1"], "resources": resources, "operations": operations}


def webhook(half: str, url: str, bundle: str, rules: list[Object], **more: object) -> Object:
    return {
        "name": f"{half}.slicewarden.dev",
        "clientConfig": {"url": f"{url}/{half}", "caBundle": bundle},
        "rules": rules,
        "namespaceSelector": {
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]
        },
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"],
        **more,
    }


def mutating(url: str, bundle: str) -> Object:
    rules = [rule("", ["pods", "pods/ephemeralcontainers"], ["CREATE", "UPDATE"])]
    hook = webhook("mutate", url, bundle, rules, failurePolicy="Ignore", reinvocationPolicy="IfNeeded")
    return configuration("Mutating", hook)


def validating(url: str, bundle: str) -> Object:
    pods = ["pods", "pods/ephemeralcontainers", "pods/resize"]
    rules = [rule("", [*pods, "configmaps"], ["CREATE", "UPDATE"])]
    rules += [rule(group, resources, ["CREATE", "UPDATE"]) for group, resources in WORKLOADS.items()]
    return configuration("Validating", webhook("validate", url, bundle, rules, failurePolicy="Fail"))


def configuration(kind: str, hook: Object) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "slicewarden"},
        "webhooks": [hook],
    }


@pytest.fixture(scope="module")
def guarded(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own with the webhook in front: namespaces vision, which may be trusted, and visitors."""
    with control_plane.running(tmp_path_factory.mktemp("guarded"), programs) as cluster:
        cluster.add_nodes()
        cluster.add_namespace("vision", TRUSTED)
        cluster.add_namespace("visitors")
        url, bundle = serve(cluster)
        applied = cluster.apply(mutating(url, bundle), validating(url, bundle))
        assert applied.returncode == 0, applied.stderr
        cluster.wait_until("the API server calls the webhook", lambda: in_force(cluster))
        yield cluster


def serve(cluster: Cluster) -> tuple[str, str]:
    """Start the webhook beside the API server, which it watches; where it is, and the bundle to trust it by."""
    authority = certs.issue_ca("webhook", datetime.now(UTC), days=1)
    serving = certs.issue_serving(authority, ["localhost"], ["127.0.0.1"], datetime.now(UTC), days=1)
    certificate, key = cluster.folder / "webhook.crt", cluster.folder / "webhook.key"
    certificate.write_bytes(serving.certificate_pem)
    key.touch(mode=0o600)
    key.write_bytes(serving.key_pem)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command: list[str | Path] = [sys.executable, "-m", "webhook", "serve", "--policy", POLICY, "--live"]
    command += ["--kubeconfig", cluster.kubeconfig()]
    command += ["--listen", f"127.0.0.1:{port}", "--tls-cert", certificate, "--tls-key", key]
    cluster.start("webhook", *command, orphaned=signal.SIGTERM)
    return f"https://localhost:{port}", certs.ca_bundle(authority.certificate_pem)


def in_force(cluster: Cluster) -> bool:
    """The API server learns of webhooks a moment after they are stored."""
    probe = pod("probe", "visitors")
    steered = cluster.kubectl("create", "--dry-run=server", "--output=json", "--filename=-", stdin=json.dumps(probe))
    too_many = cluster.kubectl(
        "create", "--dry-run=server", "--filename=-", stdin=json.dumps(pod("probe", "visitors", 99))
    )
    return "nodeSelector" in steered.stdout and "validate.slicewarden.dev" in too_many.stderr


def env(item: Object) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in item["spec"]["containers"][0].get("env", [])}


def test_a_trusted_pod_runs_on_a_shared_card_with_its_memory_capped(guarded: Cluster) -> None:
    assert guarded.apply(pod("notebook", "vision", annotations=TRUSTED)).returncode == 0
    assert guarded.node_of("notebook", "vision") == "t4-shared"
    caps = env(guarded.get("pod", "notebook", "--namespace=vision"))
    assert "per_process_memory_fraction:0.2" in caps["PYTORCH_ALLOC_CONF"]


def test_an_untrusted_pod_runs_on_a_card_of_its_own(guarded: Cluster) -> None:
    assert guarded.apply(pod("train", "visitors")).returncode == 0
    assert guarded.node_of("train", "visitors") == "a100-exclusive"
    assert env(guarded.get("pod", "train", "--namespace=visitors")) == {}


def test_two_slices_are_refused_to_whoever_applies_the_deployment(guarded: Cluster) -> None:
    refused = guarded.apply(deployment("inference", {"nvidia.com/gpu.shared": 2}))
    assert refused.returncode == 1
    assert 'admission webhook "validate.slicewarden.dev" denied the request: multiple-slices:' in refused.stderr
    assert guarded.kubectl("get", "deployment", "inference", "--namespace=vision").returncode == 1


def test_trust_counts_from_the_moment_that_it_is_granted(guarded: Cluster) -> None:
    guarded.add_namespace("newcomers")
    asks = pod("early", "newcomers", annotations=TRUSTED)
    assert "unearned-trust:" in guarded.apply(asks).stderr
    guarded.do("label", "namespace", "newcomers", "slicewarden.dev/trust=trusted")
    assert eventually(lambda: guarded.apply(asks).returncode == 0)


def test_trust_without_a_grant_is_refused(guarded: Cluster) -> None:
    refused = guarded.apply(pod("sneaky", "visitors", annotations=TRUSTED))
    assert refused.returncode == 1
    assert "unearned-trust:" in refused.stderr


def test_the_pods_of_a_deployment_are_steered_and_its_template_is_left_alone(guarded: Cluster) -> None:
    asked = deployment("web", {"nvidia.com/gpu": 1})
    assert guarded.apply(asked).returncode == 0
    guarded.do("rollout", "status", "deployment/web", "--timeout=60s", "--namespace=vision")
    kept = guarded.get("deployment", "web", "--namespace=vision")["spec"]["template"]["spec"]
    assert "nodeSelector" not in kept
    assert "env" not in kept["containers"][0]
    pods = guarded.get("pods", "--selector=app=a", "--namespace=vision")["items"]
    replicas = [each for each in pods if each["metadata"]["name"].startswith("web-")]
    assert {each["spec"]["nodeName"] for each in replicas} == {"t4-shared"}


def test_an_unsteered_pod_cannot_exist(guarded: Cluster) -> None:
    """Without the mutating half, nothing is stored that it would have steered."""
    hooks = guarded.get("mutatingwebhookconfiguration", "slicewarden")
    guarded.do("delete", "mutatingwebhookconfiguration", "slicewarden")
    try:
        assert eventually(lambda: "unsteered-pod:" in guarded.apply(pod("stray", "visitors")).stderr)
        assert guarded.kubectl("get", "pod", "stray", "--namespace=visitors").returncode == 1
    finally:
        del hooks["metadata"]["resourceVersion"], hooks["metadata"]["uid"]
        assert guarded.apply(hooks).returncode == 0
        assert eventually(lambda: in_force(guarded))


def test_what_runs_already_can_still_be_changed(guarded: Cluster) -> None:
    """An update is judged by what it adds."""
    assert guarded.apply(pod("labelled", "visitors")).returncode == 0
    guarded.do("label", "pod", "labelled", "tier=test", "--namespace=visitors")
    refused = guarded.kubectl("annotate", "pod", "labelled", "slicewarden.dev/trust=trusted", "--namespace=visitors")
    assert refused.returncode == 1
    assert "unearned-trust:" in refused.stderr


def test_a_pod_without_a_gpu_is_left_as_it_is(guarded: Cluster) -> None:
    guarded.do("run", "web", "--image=i", "--namespace=visitors")
    assert guarded.node_of("web", "visitors") == "cpu"


DOORS: dict[str, tuple[str, Object, Object]] = {
    "variable": ("visible-devices", {}, {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}),
    "variables": ("unread-variables", {}, {"envFrom": [{"secretRef": {"name": "mine"}}]}),
    "privileged": ("privileged-container", {}, {"securityContext": {"privileged": True}}),
    "capability": ("privileged-container", {}, {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
    "path": ("device-path", {"volumes": [{"name": "v", "hostPath": {"path": "/dev/nvidia0"}}]}, {}),
    "mount": (
        "device-mount",
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"volumeMounts": [{"name": "v", "mountPath": "/var/run/nvidia-container-devices/all"}]},
    ),
    "processes": ("host-namespaces", {"hostPID": True}, {}),
    "node": ("chosen-node", {"nodeName": "a100-exclusive"}, {}),
    "toleration": ("broad-toleration", {"tolerations": [{"operator": "Exists"}]}, {}),
    "claim": ("unlisted-claim", {"resourceClaims": [{"name": "r", "resourceClaimName": "r"}]}, {}),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_door_is_shut(guarded: Cluster, door: str) -> None:
    rule, spec, container = DOORS[door]
    asked = pod(f"door-{door}", "visitors")
    asked["spec"].update(spec)
    asked["spec"]["containers"][0].update(container)
    refused = guarded.apply(asked)
    assert refused.returncode == 1
    assert f"{rule}:" in refused.stderr


@pytest.mark.parametrize("key", ["cdi.k8s.io/mine", "nvidia.cdi.k8s.io/pod", "devices.nri.io/pod", "gpu-fraction"])
def test_an_annotation_opens_nothing_later_either(guarded: Cluster, key: str) -> None:
    guarded.do("run", f"plain-{key[:3]}", "--image=i", "--namespace=visitors")
    refused = guarded.kubectl("annotate", "pod", f"plain-{key[:3]}", f"{key}=x", "--namespace=visitors")
    assert refused.returncode == 1
    assert key in refused.stderr


def test_a_toleration_that_comes_later_does_not_bring_a_privileged_pod_to_a_gpu(guarded: Cluster) -> None:
    agent = pod("agent", "visitors")
    container = agent["spec"]["containers"][0]
    container.pop("resources")
    container["securityContext"] = {"privileged": True}
    agent["spec"]["schedulerName"] = "nobody"  # so that it waits
    assert guarded.apply(agent).returncode == 0
    tolerant = {"spec": {"tolerations": [{"key": "slicewarden.dev/pool", "operator": "Exists"}]}}
    patch = ["patch", "pod", "agent", "--type=merge", f"--patch={json.dumps(tolerant)}", "--namespace=visitors"]
    refused = guarded.kubectl(*patch)
    assert refused.returncode == 1
    assert "privileged-container:" in refused.stderr


def test_the_subresources_of_a_pod_are_judged_too(guarded: Cluster) -> None:
    cpu = pod("busy", "visitors")
    cpu["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1"
    assert guarded.apply(cpu).returncode == 0
    assert guarded.node_of("busy", "visitors") == "a100-exclusive"
    guarded.do("debug", "busy", "--image=i", "--container=look", "--namespace=visitors")
    (look,) = guarded.get("pod", "busy", "--namespace=visitors")["spec"]["ephemeralContainers"]
    assert look["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    greedy = ["--env=NVIDIA_VISIBLE_DEVICES=all", "--container=take", "--namespace=visitors"]
    refused = guarded.kubectl("debug", "busy", "--image=i", *greedy)
    assert refused.returncode == 1
    assert "visible-devices:" in refused.stderr
    more = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}}]}}
    guarded.do("patch", "pod", "busy", "--subresource=resize", f"--patch={json.dumps(more)}", "--namespace=visitors")
    lines = [json.loads(line) for line in (guarded.folder / "webhook.log").read_text("utf-8").splitlines()]
    judged = {line.get("subresource") for line in lines if line.get("name") == "busy"}
    assert judged == {"", "ephemeralcontainers", "resize"}


def test_while_the_webhook_is_down_no_pod_is_made(guarded: Cluster) -> None:
    """The last test: it ends the webhook."""
    guarded.components.pop().stop()
    refused = guarded.apply(pod("unseen", "visitors"))
    assert refused.returncode == 1
    assert 'failed calling webhook "validate.slicewarden.dev"' in refused.stderr
    system = guarded.kubectl("run", "system", "--image=i", "--namespace=kube-system")
    assert system.returncode == 0, system.stderr
