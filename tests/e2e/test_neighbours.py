"""Others that change pods: webhooks that run after ours, and the API server's own plugins."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.control_plane import eventually
from tests.e2e.guard import Guard
from tests.e2e.neighbour import answering
from tests.e2e.objects import TRUST, TRUSTED, Object, plain, pod

Operations = list[dict[str, Any]]
Change = Callable[[Object], Operations]
"""Takes a pod and gives the JSON Patch that the neighbour wants of it."""

ADD_GPU = {
    "op": "add",
    "path": "/spec/containers/-",
    "value": {"name": "injected", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
}


@pytest.fixture
def host(pytestconfig: pytest.Config) -> str:
    """Where the API server reaches this machine."""
    return str(pytestconfig.getoption("webhook_host"))


@contextmanager
def neighbour(guard: Guard, namespace: str, change: Change, folder: Path, host: str, again: str) -> Iterator[list[str]]:
    """Run a mutating webhook after ours for one namespace; yield the names of the pods that it was asked about."""
    seen: list[str] = []

    def answer(review: Object) -> Object:
        item = review["request"]["object"]
        seen.append(item["metadata"]["name"])
        patch = base64.b64encode(json.dumps(change(item)).encode()).decode("ascii")
        return {"allowed": True, "patchType": "JSONPatch", "patch": patch}

    with answering(folder, answer, host) as (url, bundle):
        hook = {
            "name": "mutate.neighbour.example.com",
            "clientConfig": {"url": url, "caBundle": bundle},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "reinvocationPolicy": again,
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        # Mutating webhooks run in the order of their configurations' names.
        configuration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": f"zz-{namespace}"},
            "webhooks": [hook],
        }
        guard.install(configuration)
        try:
            probe = json.dumps(plain(pod("probe", namespace)))

            def asked() -> bool:
                guard.cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=probe)
                return bool(seen)

            assert eventually(asked)
            yield seen
        finally:
            guard.cluster.do("delete", "mutatingwebhookconfiguration", f"zz-{namespace}")


def undo(item: Object) -> Operations:
    """Take the node selector away, where there is one."""
    return [{"op": "remove", "path": "/spec/nodeSelector"}] if "nodeSelector" in item["spec"] else []


def forget(item: Object) -> Operations:
    """Take the environment away, where there is one."""
    containers = enumerate(item["spec"]["containers"])
    return [{"op": "remove", "path": f"/spec/containers/{n}/env"} for n, each in containers if "env" in each]


def inject(item: Object) -> Operations:
    """Add a container with a GPU, once."""
    return [] if any(each["name"] == "injected" for each in item["spec"]["containers"]) else [ADD_GPU]


def mark(item: Object) -> Operations:
    """Add a label."""
    return [{"op": "add", "path": "/metadata/labels", "value": {**item["metadata"].get("labels", {}), "seen": "yes"}}]


def test_a_gpu_container_injected_by_a_later_webhook_is_denied(
    guarded: Guard, team: str, tmp_path: Path, host: str
) -> None:
    """The second slice is refused; a pod that had asked for none, and so was not ours to steer, cannot get one."""
    with neighbour(guarded, team, inject, tmp_path, host, "Never"):
        refused = guarded.cluster.apply(pod("shared", team, annotations=TRUSTED))
        assert refused.returncode == 1
        assert 'webhook "pods.slicewarden.dev" denied the request: multiple-slices: ' in refused.stderr
        refused = guarded.cluster.apply(plain(pod("plain", team)))
        assert refused.returncode == 1
        assert "unsteered-pod: " in refused.stderr
        # Two whole cards are nobody's harm.
        assert guarded.cluster.apply(pod("whole", team)).returncode == 0
        assert guarded.cluster.node_of("whole", team) == "a100-exclusive"


@pytest.mark.parametrize(("change", "rule"), [(undo, "unsteered-pod:"), (forget, "uncapped-memory:")])
def test_a_fix_that_another_webhook_undoes_is_made_again(
    guarded: Guard, team: str, tmp_path: Path, host: str, change: Change, rule: str
) -> None:
    """We are asked once more after a change. A webhook that undoes it every time gets nothing past validation."""
    item = pod("undone", team, annotations=TRUSTED)
    with neighbour(guarded, team, change, tmp_path, host, "Never") as seen:
        made = guarded.cluster.apply(item)
        assert made.returncode == 0, made.stderr
        assert seen.count("undone") == 1
        assert [entry["endpoint"] for entry in guarded.reviews(team) if entry["name"] == "undone"] == [
            "/mutate",
            "/mutate",
            "/validate",
        ]
        assert guarded.cluster.node_of("undone", team) == "t4-shared"
        assert "env" in guarded.cluster.get("pod", "undone", f"--namespace={team}")["spec"]["containers"][0]
    with neighbour(guarded, team, change, tmp_path, host, "IfNeeded") as seen:
        refused = guarded.cluster.apply(pod("stubborn", team, annotations=TRUSTED))
        assert refused.returncode == 1
        assert rule in refused.stderr
        assert seen.count("stubborn") == 2


def test_a_label_added_by_a_later_webhook_does_not_disturb_steering(
    guarded: Guard, team: str, tmp_path: Path, host: str
) -> None:
    with neighbour(guarded, team, mark, tmp_path, host, "IfNeeded"):
        made = guarded.cluster.apply(pod("marked", team, annotations=TRUSTED))
        assert made.returncode == 0, made.stderr
    assert guarded.cluster.node_of("marked", team) == "t4-shared"
    assert guarded.cluster.get("pod", "marked", f"--namespace={team}")["metadata"]["labels"]["seen"] == "yes"


# The API server's own plugins


def create(guard: Guard, kind: str, name: str, namespace: str, **spec: Any) -> None:
    metadata = {"name": name, "namespace": namespace}
    item = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
    guard.cluster.do("create", "--filename=-", stdin=json.dumps(item))


def test_a_pod_that_gets_a_gpu_from_a_limit_range_is_steered(guarded: Guard, strangers: str) -> None:
    """A LimitRange gives a GPU before webhooks are asked: such a pod is steered like any other."""
    amounts = {"nvidia.com/gpu": "1"}
    create(
        guarded,
        *("LimitRange", "one", strangers),
        limits=[{"type": "Container", "default": amounts, "defaultRequest": amounts, "max": amounts}],
    )
    assert eventually(lambda: guarded.reached_by(plain(pod("probe", strangers))) != [])
    assert guarded.cluster.apply(plain(pod("given", strangers))).returncode == 0
    assert guarded.cluster.node_of("given", strangers) == "a100-exclusive"
    refused = guarded.cluster.apply(pod("more", strangers, {"nvidia.com/gpu": 2}))
    assert "maximum nvidia.com/gpu usage per Container is 1, but limit is 2" in refused.stderr


def test_slices_that_a_limit_range_adds_are_steered_by_trust(guarded: Guard, team: str) -> None:
    """One container that gets one is steered by its trust; two of them are two cards, which are handed out whole."""
    amounts = {"nvidia.com/gpu": "1"}
    create(
        guarded,
        *("LimitRange", "one", team),
        limits=[{"type": "Container", "default": amounts, "defaultRequest": amounts}],
    )
    twice = plain(pod("twice", team))
    twice["metadata"]["annotations"] = TRUSTED
    twice["spec"]["containers"].append({"name": "d", "image": "i"})
    assert eventually(lambda: "/mutate" in guarded.reached_by(plain(pod("probe", team))))
    once = {**plain(pod("once", team)), "metadata": {"name": "once", "namespace": team, "annotations": TRUSTED}}
    assert guarded.cluster.apply(once).returncode == 0
    assert guarded.cluster.node_of("once", team) == "t4-shared"
    assert guarded.cluster.apply(twice).returncode == 0
    assert guarded.cluster.node_of("twice", team) == "a100-exclusive"


def test_denied_pods_do_not_count_against_a_quota_of_gpus(guarded: Guard, team: str) -> None:
    """A pod that we refuse is not charged, and one over the quota is refused by the quota."""
    create(guarded, "ResourceQuota", "two", team, hard={"requests.nvidia.com/gpu": "2"})
    cluster, here = guarded.cluster, f"--namespace={team}"

    def used() -> str:
        status = cluster.get("resourcequota", "two", here).get("status", {})
        return str(status.get("used", {}).get("requests.nvidia.com/gpu"))

    many = json.dumps(pod("many", team, {"nvidia.com/gpu": 3}))
    create_it = ("create", "--dry-run=server", "--filename=-")
    assert eventually(lambda: used() == "0")  # by its controller; the API server reads the quota at its own time
    assert eventually(lambda: "exceeded quota: two" in cluster.kubectl(*create_it, stdin=many).stderr)
    assert cluster.apply(pod("refused", team, annotations={TRUST: "very"})).returncode == 1
    assert cluster.apply(pod("shared", team, annotations=TRUSTED), pod("whole", team)).returncode == 0
    assert cluster.node_of("shared", team) == "t4-shared"
    assert cluster.node_of("whole", team) == "a100-exclusive"
    assert used() == "2"
    over = cluster.apply(pod("over", team))
    assert over.returncode == 1
    assert "exceeded quota: two, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=2" in over.stderr
    assert "admission webhook" not in over.stderr
    cluster.do("delete", "pod", "whole", here)
    assert eventually(lambda: cluster.apply(pod("over", team)).returncode == 0)
