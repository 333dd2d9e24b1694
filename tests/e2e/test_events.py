"""Events in a real cluster: about the controller whose pods are denied, by the component's powers and no others."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Space, granted
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.guard import MANIFESTS, Guard
from tests.e2e.objects import ONE, TRUST, TRUSTED, Object, pod, template, workload
from tests.support.api_server_metrics import METRICS as API_SERVERS
from webhook.cli.commands import serve

ACCOUNT = User("system:serviceaccount:slicewarden-system:slicewarden", ("system:serviceaccounts",))
RBAC = MANIFESTS / "components" / "events" / "rbac.yaml"


@pytest.fixture(scope="module")
def teller(guarded: Guard) -> Iterator[Guard]:
    """The webhook with --events, at first without the power to write them."""
    guarded.stop()
    guarded.start(None, "--events")
    yield guarded
    guarded.cluster.do("delete", "--ignore-not-found", "--filename", RBAC)
    guarded.judge_by()


def events(cluster: Cluster, namespace: str) -> list[Object]:
    """Ours in a namespace."""
    items = cluster.get("events.events.k8s.io", f"--namespace={namespace}")["items"]
    return [each for each in items if each["reason"] == "GPUPolicyDenied"]


def owned(name: str, namespace: str) -> Object:
    """A pod that is denied, under a controller."""
    made = pod(name, namespace, {"nvidia.com/gpu.shared": 2}, TRUSTED)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "0000-1", "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    return made


def create(cluster: Cluster, item: Object, *options: str) -> None:
    made = cluster.kubectl("create", *options, "--filename=-", stdin=json.dumps(item))
    assert "denied the request" in made.stderr, made.stderr


def failures(guard: Guard) -> list[Object]:
    return [entry for entry in guard.logged() if entry.get("message") == "event not written"]


def test_without_the_component_nothing_is_written_and_nothing_else_suffers(teller: Guard, space: Space) -> None:
    namespace = space(TRUSTED)
    granted(teller, namespace)
    before = len(failures(teller))
    create(teller.cluster, owned("refused", namespace))
    assert eventually(lambda: len(failures(teller)) > before)
    assert failures(teller)[-1]["error"] == "HTTP 403"
    assert events(teller.cluster, namespace) == []


def test_the_component_gives_that_power_and_no_other(teller: Guard) -> None:
    cluster = teller.cluster

    def may(verb: str, resource: str) -> bool:
        asked = cluster.kubectl("auth", "can-i", verb, resource, "--namespace=default", user=ACCOUNT)
        return asked.stdout.strip() == "yes"

    assert not may("create", "events.events.k8s.io")
    cluster.do("apply", "--filename", RBAC)
    assert eventually(lambda: may("create", "events.events.k8s.io") and may("patch", "events.events.k8s.io"))
    for verb in ("get", "list", "watch", "update", "delete", "deletecollection"):
        assert not may(verb, "events.events.k8s.io")
    for resource in ("events", "pods", "secrets", "configmaps"):
        assert not may("create", resource)


def test_a_deployment_whose_pods_are_denied_has_one_series(teller: Guard, team: str) -> None:
    cluster = teller.cluster
    made = workload("Deployment", "train", team, template(ONE, TRUSTED), replicas=0)
    assert cluster.apply(made).returncode == 0
    assert eventually(lambda: bool(cluster.get("replicasets", f"--namespace={team}")["items"]))
    (replicas,) = cluster.get("replicasets", f"--namespace={team}")["items"]
    cluster.do("label", "namespace", team, f"{TRUST}-")
    asks = json.dumps(pod("probe", team, annotations=TRUSTED))
    assert eventually(lambda: bool(cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=asks).returncode))
    assert events(cluster, team) == []

    cluster.do("scale", "deployment/train", "--replicas=1", f"--namespace={team}")
    assert eventually(lambda: bool(events(cluster, team)))
    # The controller tries again, first after milliseconds and then ever more seldom.
    assert eventually(lambda: (events(cluster, team)[0].get("series") or {}).get("count", 1) > 2)
    (event,) = events(cluster, team)
    assert event["regarding"]["kind"] == "ReplicaSet"
    assert (event["regarding"]["name"], event["regarding"]["uid"]) == (
        replicas["metadata"]["name"],
        replicas["metadata"]["uid"],
    )
    assert event["note"].startswith("unearned-trust: ")
    assert (event["type"], event["reportingController"]) == ("Warning", "slicewarden.dev/webhook")
    shown = cluster.do("describe", "replicaset", replicas["metadata"]["name"], f"--namespace={team}")
    assert "GPUPolicyDenied" in shown
    cluster.do("delete", "deployment/train", f"--namespace={team}")


def test_a_dry_run_writes_no_event(teller: Guard, team: str) -> None:
    create(teller.cluster, owned("shown", team), "--dry-run=server")
    create(teller.cluster, owned("refused", team))
    assert eventually(lambda: bool(events(teller.cluster, team)))
    (event,) = events(teller.cluster, team)
    assert "series" not in event or event["series"] is None


def test_a_restarted_webhook_goes_on_with_the_series(teller: Guard, team: str) -> None:
    create(teller.cluster, owned("first", team))
    assert eventually(lambda: bool(events(teller.cluster, team)))
    teller.stop()
    teller.start(None, "--events")
    create(teller.cluster, owned("second", team))
    assert eventually(lambda: (events(teller.cluster, team)[0].get("series") or {}).get("count") == 2)
    assert len(events(teller.cluster, team)) == 1


def test_an_overlay_can_include_the_events_component(teller: Guard, tmp_path: Path) -> None:
    def at(folder: str) -> str:
        return os.path.relpath((MANIFESTS / folder).resolve(), tmp_path.resolve())

    kustomization = {"resources": [at("overlays/file")], "components": [at("components/events")]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), "utf-8")
    built = list(yaml.safe_load_all(teller.cluster.do("kustomize", tmp_path)))
    (deployment,) = [each for each in built if each["kind"] == "Deployment"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert serve.command.make_context("serve", arguments[1:]).params["events"]
    assert {"slicewarden-events"} <= {each["metadata"]["name"] for each in built if each["kind"] == "ClusterRole"}


def test_the_api_server_counts_what_the_alerts_read(teller: Guard, strangers: str) -> None:
    create(teller.cluster, pod("p", strangers, {"nvidia.com/gpu": 2}, TRUSTED))
    text = teller.cluster.do("get", "--raw", "/metrics")
    for name, labels in API_SERVERS.items():
        lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name}_bucket{{"))]
        if name.endswith(("fail_open_count", "errors_total")):  # which is not there before it happened
            continue
        ours = [line for line in lines if 'name="pods.slicewarden.dev"' in line]
        assert ours, name
        assert all(f'{label}="' in ours[0] for label in labels), ours[0]
