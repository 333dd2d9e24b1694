"""Requests as a real API server sent them (`tests/e2e/record.py`), nothing of ours in their way when they were made."""

import json
import re
from collections.abc import Set
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jsonpatch
import pytest

from tests import ROOT
from webhook.api import admission
from webhook.api import jsonpatch as patch
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Request, Requester, Verdict

RECORDED = ROOT / "tests/recorded"
NONE: frozenset[str] = frozenset()
UNSTEERED = frozenset({"unsteered-pod", "unguarded-container"})
UNCAPPED = frozenset({"unsteered-pod", "unguarded-container", "uncapped-memory"})
"""What stands against a pod that was never mutated: on a pool of its own, and on a shared one."""


class Expected(NamedTuple):
    """The rules that deny a request: mutated first, as the API server does it, and just as it was recorded."""

    judged: Set[str] = NONE
    unmutated: Set[str] = NONE

    @property
    def patched(self) -> bool:
        return self.judged != self.unmutated


ALLOWED = Expected()
TRUSTED = Expected(unmutated=UNCAPPED)
UNTRUSTED = Expected(unmutated=UNSTEERED)

EXPECTED = {
    # Nothing of these is judged.
    "connect-podexecoptions-exec": ALLOWED,
    "create-eviction-eviction": ALLOWED,
    "update-scale-scale": ALLOWED,
    # A pod is put on a node by the scheduler, labels are written by an administrator.
    "create-binding-binding": ALLOWED,
    "create-namespace": ALLOWED,
    "create-node": ALLOWED,
    "update-namespace": ALLOWED,
    "update-node": ALLOWED,
    # What goes is let go.
    "delete-configmap": ALLOWED,
    "delete-deployment": ALLOWED,
    "delete-namespace": ALLOWED,
    "delete-pod": ALLOWED,
    # Configurations of the device plugin: 4 replicas, and 16, of which the policy allows 8.
    "create-configmap": ALLOWED,
    "create-configmap-replicas": Expected({"unsafe-sharing-config"}, {"unsafe-sharing-config"}),
    "update-configmap-replicas": Expected({"unsafe-sharing-config"}, {"unsafe-sharing-config"}),
    # Pods, by whoever they are made.
    "create-pod-apply": TRUSTED,
    "create-pod-cpu": ALLOWED,
    "create-pod-daemonset": UNTRUSTED,
    "create-pod-dry-run": TRUSTED,
    "create-pod-job": TRUSTED,
    "create-pod-replicaset": TRUSTED,
    "create-pod-sidecar": TRUSTED,
    "create-pod-trusted": TRUSTED,
    "create-pod-two-slices": Expected({"multiple-slices"}, UNCAPPED | {"multiple-slices"}),
    "create-pod-unearned": Expected({"unearned-trust"}, UNSTEERED | {"unearned-trust"}),
    "create-pod-untrusted": UNTRUSTED,
    # Templates: what their pods lack is mended when those are made.
    "create-cronjob": ALLOWED,
    "create-daemonset": ALLOWED,
    "create-deployment": ALLOWED,
    "create-job": ALLOWED,
    "create-podtemplate": ALLOWED,
    "create-replicaset-deployment": ALLOWED,
    "create-replicationcontroller": ALLOWED,
    "create-statefulset": ALLOWED,
    "update-cronjob": ALLOWED,
    "update-daemonset": ALLOWED,
    "update-deployment-patch": ALLOWED,
    "update-deployment-two-slices": Expected({"multiple-slices"}, {"multiple-slices"}),
    "update-job": ALLOWED,
    "update-podtemplate": ALLOWED,
    "update-replicaset-deployment": ALLOWED,
    "update-replicationcontroller": ALLOWED,
    "update-statefulset": ALLOWED,
    # Pods that run already, unsteered, and are changed in other respects.
    "update-pod-apply": ALLOWED,
    "update-pod-ephemeralcontainers": Expected(unmutated={"unguarded-container"}),
    "update-pod-job": ALLOWED,
    "update-pod-label": ALLOWED,
    "update-pod-resize": ALLOWED,
    "update-pod-status": ALLOWED,
    # Pods that run already and ask for trust: one would get it, and be on the wrong pool then; the other has no grant.
    "update-pod-trusted": Expected(*[frozenset({"unsteered-pod", "uncapped-memory", "changed-trust"})] * 2),
    "update-pod-unearned": Expected({"changed-trust", "unearned-trust"}, {"changed-trust", "unearned-trust"}),
}
BY_CONTROLLERS = {
    "create-binding-binding": "system:kube-scheduler",
    "create-pod-daemonset": "system:serviceaccount:kube-system:daemon-set-controller",
    "create-pod-job": "system:serviceaccount:kube-system:job-controller",
    "create-pod-replicaset": "system:serviceaccount:kube-system:replicaset-controller",
    "create-replicaset-deployment": "system:serviceaccount:kube-system:deployment-controller",
    "update-pod-job": "system:serviceaccount:kube-system:job-controller",
    "update-pod-status": "kwok",
    "update-replicaset-deployment": "system:serviceaccount:kube-system:deployment-controller",
}
NAMESPACES = {
    "create-configmap": "gpu-operator",
    "create-configmap-replicas": "gpu-operator",
    "create-node": "",
    "create-pod-unearned": "visitors",
    "delete-configmap": "gpu-operator",
    "delete-namespace": "visitors",
    "update-configmap-replicas": "gpu-operator",
    "update-namespace": "visitors",
    "update-node": "",
    "update-pod-unearned": "visitors",
}
"""Of the requests that are not about namespace research."""

GROUPS = {
    **dict.fromkeys(("daemonset", "deployment", "replicaset", "statefulset"), "apps"),
    **dict.fromkeys(("cronjob", "job"), "batch"),
    "eviction": "policy",
    "scale": "autoscaling",
}
SUBRESOURCES = ("binding", "ephemeralcontainers", "eviction", "exec", "resize", "scale", "status")

every_recording = pytest.mark.parametrize("name", EXPECTED)


@cache
def recorded(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text("utf-8"))
    return content


def request_of(name: str) -> Request:
    return admission.decode(json.dumps(recorded(name)).encode())


def denying(verdict: Verdict) -> set[str]:
    assert verdict.malformed is None
    return {result.rule for result in verdict.having(Action.DENY)}


@pytest.fixture(scope="module")
def facts(sample_facts: Facts) -> Facts:
    """The sample cluster, with namespace research as it was made for the recording."""
    made = Facts.of([recorded("create-namespace")["request"]["object"]])
    assert made.namespaces["research"]["slicewarden.dev/trust"] == "trusted"
    return replace(sample_facts, namespaces={**sample_facts.namespaces, **made.namespaces})


def test_every_recording_is_expected_and_the_other_way_round() -> None:
    assert sorted(file.stem for file in RECORDED.iterdir()) == sorted(EXPECTED)


@every_recording
def test_a_recording_holds_nothing_of_where_it_was_made(name: str) -> None:
    text = (RECORDED / f"{name}.json").read_text("utf-8")
    assert "-----BEGIN" not in text
    assert not re.search(r"/(home|root|tmp|Users)/", text)
    assert set(re.findall(r"\d{4}-\d\d-\d\dT[^\"]*", text)) <= {"2026-01-01T00:00:00Z"}


@every_recording
def test_decode(name: str) -> None:
    operation, kind, *rest = name.split("-")
    request = request_of(name)
    assert request.uid == "00000000-0000-4000-8000-000000000001"
    assert (request.operation, request.kind.lower()) == (operation.upper(), kind)
    assert (request.group, request.version) == (GROUPS.get(kind, ""), "v1")
    assert request.subresource == (rest[0] if rest and rest[0] in SUBRESOURCES else "")
    assert request.namespace == NAMESPACES.get(name, "research")
    assert request.requester
    assert request.requester.username == BY_CONTROLLERS.get(name, "admin")
    assert request.dry_run == (name == "create-pod-dry-run")
    assert request.name
    assert (request.object is None) == (operation == "delete")
    assert (request.old_object is None) == (operation in ("create", "connect"))


@every_recording
def test_the_verdict(name: str, engine: Engine, facts: Facts) -> None:
    request, expected = request_of(name), EXPECTED[name]
    assert denying(engine.validate(request, facts)) == expected.unmutated
    assert denying(engine.judge(request, facts)) == expected.judged


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("create-binding-binding", "foreign-binding"),
        ("create-namespace", "self-granted-trust"),
        ("create-node", "relabelled-node"),
        ("update-namespace", None),
        ("update-node", None),
    ],
)
def test_the_verdict_where_somebody_else_asks(name: str, rule: str | None, engine: Engine, facts: Facts) -> None:
    """The updates only touch a label that no policy speaks of."""
    request = replace(request_of(name), requester=Requester("dana", frozenset({"system:authenticated"})))
    assert denying(engine.validate(request, facts)) == ({rule} if rule else set())


@every_recording
def test_judging_twice_gives_the_same_verdict_and_changes_no_request(name: str, engine: Engine, facts: Facts) -> None:
    request = request_of(name)
    for half in (engine.mutate, engine.validate, engine.judge):
        first = admission.encode(request, half(request, facts))
        assert first == admission.encode(request_of(name), half(request_of(name), facts))
        assert first == admission.encode(request, half(request, facts))
    assert vars(request) == vars(request_of(name))


@every_recording
def test_gpu_pods_are_patched_when_they_are_created_and_nothing_else_is(
    name: str, engine: Engine, facts: Facts
) -> None:
    gpu = name.startswith("create-pod-") and name != "create-pod-cpu"
    gpu = gpu or name == "update-pod-ephemeralcontainers"  # which adds a debug container to a GPU pod
    assert bool(engine.mutate(request_of(name), facts).patch) == gpu == EXPECTED[name].patched


@pytest.mark.parametrize("name", [name for name in EXPECTED if EXPECTED[name].patched])
def test_a_patched_pod_passes(name: str, engine: Engine, facts: Facts) -> None:
    request = request_of(name)
    assert request.object is not None
    operations = engine.mutate(request, facts).patch
    mutated = jsonpatch.apply_patch(request.object, operations)
    assert mutated == patch.apply(request.object, operations)
    after = replace(request, object=mutated)
    assert denying(engine.validate(after, facts)) == EXPECTED[name].judged
    assert engine.mutate(after, facts).patch == ()


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith("update-pod-")])
def test_a_running_pod_is_allowed_only_because_of_its_old_object(name: str, engine: Engine, facts: Facts) -> None:
    request = request_of(name)
    created = replace(request, operation="CREATE", object=request.old_object, old_object=None)
    assert denying(engine.validate(created, facts)) >= UNSTEERED
    assert denying(engine.validate(replace(request, old_object=None), facts)) >= UNSTEERED


def test_a_daemon_keeps_its_node_and_gains_its_pool(engine: Engine, facts: Facts) -> None:
    """The only pods that come with `matchFields`: the term is narrowed, and no other is added."""
    request = request_of("create-pod-daemonset")
    assert request.object is not None
    mutated = jsonpatch.apply_patch(request.object, engine.mutate(request, facts).patch)
    affinity = mutated["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = affinity["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["a100-exclusive"]}]
    assert {each["key"] for each in term["matchExpressions"]} == {
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.sharing-strategy",
        "nvidia.com/gpu.replicas",
    }
    assert mutated["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "a100-exclusive"}
