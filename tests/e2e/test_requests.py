"""Everything that is done with GPU pods and workloads still works with us in the path, and nothing hides behind it."""

import json
from typing import Any

import pytest

from tests.e2e import offered
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.guard import Guard
from tests.e2e.objects import ONE, TRUST, TRUSTED, Object, pod, template, workload

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def said(item: Object, **metadata: Any) -> str:
    """An object as text, with more metadata."""
    return json.dumps({**item, "metadata": {**item["metadata"], **metadata}})


@pytest.fixture
def running(guarded: Guard, strangers: str) -> str:
    """A namespace in which pod `here` runs on a card of its own."""
    assert guarded.cluster.apply(pod("here", strangers)).returncode == 0
    assert guarded.cluster.node_of("here", strangers) == "a100-exclusive"
    return strangers


# Warnings and dry runs


def test_a_warning_is_shown_and_stops_nothing(guarded: Guard, team: str) -> None:
    """An older name of PyTorch's setting hides ours in older releases: advice, no more."""
    warned = pod("warned", team, annotations=TRUSTED)
    warned["spec"]["containers"][0]["env"] = [{"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"}]
    made = guarded.cluster.apply(warned)
    assert made.returncode == 0, made.stderr
    assert made.stderr.startswith("Warning: uncapped-memory: ")
    assert guarded.cluster.kubectl("get", "pod", "warned", f"--namespace={team}").returncode == 0


def test_a_workload_with_a_finding_gets_a_warning(guarded: Guard, team: str) -> None:
    made = template(ONE, TRUSTED)
    made["spec"]["containers"][0]["env"] = [{"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"}]
    applied = guarded.cluster.apply(workload("Deployment", "warned", team, made, replicas=0))
    assert applied.returncode == 0
    assert applied.stderr.startswith("Warning: uncapped-memory: ")


def test_a_dry_run_says_the_same_and_does_nothing(guarded: Guard, team: str) -> None:
    cluster = guarded.cluster
    create = ("create", "--filename=-", "--output=json")
    good = pod("tried", team, annotations=TRUSTED)
    tried = json.loads(cluster.do(*create, "--dry-run=server", stdin=json.dumps(good)))
    assert cluster.get("pods", f"--namespace={team}")["items"] == []
    made = json.loads(cluster.do(*create, stdin=json.dumps(good)))
    for part in ("nodeSelector", "affinity", "tolerations"):
        assert tried["spec"].get(part) == made["spec"].get(part)
    assert tried["spec"]["containers"][0]["env"] == made["spec"]["containers"][0]["env"]
    bad = json.dumps(pod("refused", team, {"nvidia.com/gpu.shared": 2}, TRUSTED))
    asked = [cluster.kubectl(*create, *more, stdin=bad) for more in ([], ["--dry-run=server"])]
    assert [each.returncode for each in asked] == [1, 1]
    assert asked[0].stderr == asked[1].stderr
    assert "multiple-slices:" in asked[0].stderr
    assert {entry["dryRun"] for entry in guarded.reviews(team) if entry["name"] == "refused"} == {True, False}


# Writes of every sort to what runs already


@pytest.mark.parametrize(
    ("sort", "patch"),
    [
        ("json", [{"op": "add", "path": "/metadata/labels/tier", "value": "test"}]),
        ("merge", {"metadata": {"labels": {"tier": "test"}}}),
        ("strategic", {"metadata": {"labels": {"tier": "test"}}}),
    ],
)
def test_a_patch_is_judged_whatever_its_type(guarded: Guard, running: str, sort: str, patch: object) -> None:
    cluster, here = guarded.cluster, f"--namespace={running}"
    cluster.do("patch", "pod", "here", f"--type={sort}", f"--patch={json.dumps(patch)}", here)
    assert cluster.get("pod", "here", here)["metadata"]["labels"]["tier"] == "test"
    worse: Any = {"metadata": {"annotations": TRUSTED}}
    if sort == "json":
        escaped = TRUST.replace("/", "~1")
        worse = [
            {"op": "add", "path": "/metadata/annotations", "value": {}},
            {"op": "add", "path": f"/metadata/annotations/{escaped}", "value": "trusted"},
        ]
    refused = cluster.kubectl("patch", "pod", "here", f"--type={sort}", f"--patch={json.dumps(worse)}", here)
    assert refused.returncode == 1
    assert "unearned-trust:" in refused.stderr


def test_a_replacement_is_judged(guarded: Guard, running: str) -> None:
    cluster, here = guarded.cluster, f"--namespace={running}"
    stored = cluster.get("pod", "here", here)
    stored["metadata"]["labels"]["tier"] = "test"
    cluster.do("replace", "--filename=-", stdin=json.dumps(stored))
    worse = cluster.get("pod", "here", here)
    assert worse["metadata"]["labels"]["tier"] == "test"
    worse["metadata"].setdefault("annotations", {})[TRUST] = "trusted"
    refused = cluster.kubectl("replace", "--filename=-", stdin=json.dumps(worse))
    assert refused.returncode == 1
    assert "unearned-trust:" in refused.stderr


def test_server_side_apply_of_a_pod(guarded: Guard, team: str) -> None:
    """Applied again, it stays as it was steered; another manager adds to it, and may not make it worse."""
    cluster, here = guarded.cluster, f"--namespace={team}"
    asked = pod("applied", team, annotations=TRUSTED)
    apply = ("apply", "--server-side", "--filename=-")
    cluster.do(*apply, stdin=json.dumps(asked))
    assert cluster.node_of("applied", team) == "t4-shared"
    steered = cluster.get("pod", "applied", here)["spec"]
    cluster.do(*apply, stdin=json.dumps(asked))
    labelled = {**asked, "metadata": {**asked["metadata"], "labels": {"app": "a", "tier": "test"}}}
    cluster.do(*apply, stdin=json.dumps(labelled))
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "applied", "namespace": team}}
    other = (*apply, "--field-manager=other")
    cluster.do(*other, stdin=said(bare, labels={"owner": "other"}))
    stored = cluster.get("pod", "applied", here)
    assert stored["metadata"]["labels"].items() >= {"tier": "test", "owner": "other"}.items()
    assert stored["spec"] == steered
    # Two managers differ: that is for the API server to say, and to be told otherwise.
    conflict = cluster.kubectl(*other, stdin=said(bare, labels={"owner": "other", "tier": "prod"}))
    assert "conflict" in conflict.stderr
    cluster.do(*other, "--force-conflicts", stdin=said(bare, labels={"owner": "other", "tier": "prod"}))
    worse = said(bare, annotations={TRUST: "very"})
    assert "unearned-trust:" in cluster.kubectl(*other, "--force-conflicts", stdin=worse).stderr


def test_server_side_apply_of_a_deployment(guarded: Guard, team: str) -> None:
    cluster, here = guarded.cluster, f"--namespace={team}"
    asked = workload("Deployment", "web", team, template(ONE, TRUSTED), replicas=1)
    apply = ("apply", "--server-side", "--filename=-")
    cluster.do(*apply, stdin=json.dumps(asked))
    cluster.do("rollout", "status", "deployment/web", "--timeout=300s", here)
    # An autoscaler owns the replicas from now on.
    scaled = {key: asked[key] for key in ("apiVersion", "kind", "metadata")} | {"spec": {"replicas": 2}}
    cluster.do(*apply, "--field-manager=scaler", "--force-conflicts", stdin=json.dumps(scaled))
    del asked["spec"]["replicas"]
    cluster.do(*apply, stdin=json.dumps(asked))
    cluster.do("rollout", "status", "deployment/web", "--timeout=300s", here)
    assert cluster.get("deployment", "web", here)["status"]["readyReplicas"] == 2
    asked["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu.shared": 2}
    refused = cluster.kubectl(*apply, stdin=json.dumps(asked))
    assert "multiple-slices:" in refused.stderr


@pytest.mark.needs(offered.GENERATION)
def test_applying_the_same_objects_again_changes_nothing(guarded: Guard, team: str) -> None:
    """Applied again, an object stays as it is: what we put into pods is no difference to what their author wrote."""
    cluster, here = guarded.cluster, f"--namespace={team}"
    objects = [
        workload("Deployment", "web", team, template(ONE, TRUSTED)),
        pod("single", team, annotations=TRUSTED),
    ]
    assert cluster.apply(*objects).returncode == 0
    cluster.do("rollout", "status", "deployment/web", "--timeout=300s", here)
    cluster.node_of("single", team)
    before = [cluster.get(each, here) for each in ("deployment/web", "pod/single")]
    again = cluster.apply(*objects)
    assert (again.returncode, again.stderr) == (0, "")
    after = [cluster.get(each, here) for each in ("deployment/web", "pod/single")]
    assert [each["spec"] for each in after] == [each["spec"] for each in before]
    assert [each["metadata"]["generation"] for each in after] == [each["metadata"]["generation"] for each in before]


def test_pods_can_be_deleted(guarded: Guard, running: str) -> None:
    cluster, here = guarded.cluster, f"--namespace={running}"
    cluster.do("delete", "pod", "here", here, "--timeout=300s")
    assert cluster.apply(pod("another", running)).returncode == 0
    cluster.do("delete", "pods", "--all", here, "--timeout=300s")
    assert cluster.get("pods", here)["items"] == []


def test_pods_can_be_evicted_without_a_review(guarded: Guard, running: str) -> None:
    cluster = guarded.cluster
    metadata = {"name": "here", "namespace": running}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    raw = f"--raw=/api/v1/namespaces/{running}/pods/here/eviction"
    before = len(guarded.asked(running))
    cluster.do("create", raw, "--filename=-", stdin=json.dumps(eviction))
    gone = f"--namespace={running}"
    assert eventually(lambda: cluster.kubectl("get", "pod", "here", gone).returncode == 1)
    assert guarded.asked(running)[before:] == []


def test_scaling_and_status_updates_are_not_reviewed(guarded: Guard, team: str) -> None:
    """Neither is our concern, and neither asks us: only the pods that scaling makes do."""
    cluster, here = guarded.cluster, f"--namespace={team}"
    for kind in ("Deployment", "StatefulSet", "ReplicaSet"):
        made = workload(kind, kind.lower(), team, template(ONE, app=kind), replicas=0)
        assert cluster.apply(made).returncode == 0
    before = len(guarded.reviews(team))
    for each in ("deployment/deployment", "statefulset/statefulset", "replicaset/replicaset"):
        cluster.do("scale", each, "--replicas=1", here)
    for each in ("deployment/deployment", "statefulset/statefulset"):
        cluster.do("rollout", "status", each, "--timeout=300s", here)
    cluster.wait_until("the ReplicaSet has its pod", lambda: replicas(cluster, "replicaset/replicaset", here) == 1)
    assert {entry["subresource"] for entry in guarded.reviews(team)[before:]} <= {""}
    condition = {"type": "example.com/Seen", "status": "True"}
    status = json.dumps({"status": {"conditions": [condition]}})
    name = cluster.get("pods", "--selector=app=ReplicaSet", here)["items"][0]["metadata"]["name"]
    before = len(guarded.reviews(team))
    cluster.do("patch", "pod", name, "--subresource=status", f"--patch={status}", here)
    cluster.do("patch", "replicaset", "replicaset", "--subresource=status", "--type=merge", f"--patch={status}", here)
    assert guarded.reviews(team)[before:] == []


def replicas(cluster: Cluster, item: str, here: str) -> int:
    return int(cluster.get(item, here)["status"].get("readyReplicas", 0))


@pytest.mark.needs(offered.RESIZE)
def test_the_subresources_of_a_pod_are_judged_too(guarded: Guard, strangers: str) -> None:
    cluster, here = guarded.cluster, f"--namespace={strangers}"
    busy = pod("busy", strangers, {**ONE, "cpu": 1})
    assert cluster.apply(busy).returncode == 0
    assert cluster.node_of("busy", strangers) == "a100-exclusive"
    cluster.do("debug", "busy", "--image=i", "--container=look", here)
    amounts = {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
    more = {"spec": {"containers": [{"name": "c", "resources": amounts}]}}
    cluster.do("patch", "pod", "busy", "--subresource=resize", f"--patch={json.dumps(more)}", here)
    judged = {entry["subresource"] for entry in guarded.reviews(strangers) if entry["name"] == "busy"}
    assert judged == {"", "ephemeralcontainers", "resize"}


def test_a_user_with_few_rights_gets_the_same_messages(guarded: Guard, strangers: str) -> None:
    ann = User("ann", ("team-vision",))
    cluster, here = guarded.cluster, f"--namespace={strangers}"
    cluster.do("create", "rolebinding", "edit", "--clusterrole=edit", "--group=team-vision", here)
    asked = said(pod("hers", strangers, annotations=TRUSTED))

    def told() -> str:
        return cluster.kubectl("create", "--filename=-", stdin=asked, user=ann).stderr

    assert eventually(lambda: "unearned-trust:" in told())
    assert "ann" in {entry["user"] for entry in guarded.reviews(strangers)}


# What was let in under a laxer policy


def test_an_old_pod_stays_editable_under_a_tightened_policy(guarded: Guard, strangers: str) -> None:
    cluster, here = guarded.cluster, f"--namespace={strangers}"
    guarded.judge_by(None, "--audit-only")
    try:
        old = pod("old", strangers, annotations=TRUSTED, tolerations=[{"operator": "Exists"}])
        assert cluster.apply(old).returncode == 0
        made = workload("Deployment", "old", strangers, template({"nvidia.com/gpu": 9}), replicas=0)
        assert cluster.apply(made).returncode == 0
        cluster.node_of("old", strangers)
        stored = cluster.get("pod", "old", here)
        assert "nodeSelector" not in stored["spec"]
    finally:
        guarded.judge_by()
    again = pod("new", strangers, annotations=TRUSTED)
    assert "unearned-trust:" in cluster.apply(again).stderr
    for change in (
        ("label", "pod", "old", "tier=test"),
        ("annotate", "pod", "old", "example.com/note=kept"),
        ("patch", "pod", "old", "--type=merge", '--patch={"metadata":{"finalizers":["example.com/hold"]}}'),
        ("patch", "pod", "old", "--type=merge", '--patch={"metadata":{"finalizers":null}}'),
        ("patch", "pod", "old", "--subresource=status", '--patch={"status":{"message":"kept"}}'),
        ("label", "deployment", "old", "tier=test"),
        ("scale", "deployment", "old", "--replicas=0"),
        ("set", "image", "deployment/old", "c=j"),
    ):
        cluster.do(*change, here)
    worse = (
        (("annotate", "pod", "old", f"{TRUST}=very", "--overwrite"), "unearned-trust:"),
        (("patch", "pod", "old", '--patch={"spec":{"containers":[{"name":"c","image":"j"}]}}'), "unearned-trust:"),
        (("patch", "deployment", "old", f"--patch={asking(10)}"), "unsteered-pod:"),
    )
    for change, rule in worse:
        refused = cluster.kubectl(*change, here)
        assert refused.returncode == 1
        assert rule in refused.stderr
    cluster.do("delete", "pod", "old", here, "--timeout=300s")


def asking(gpus: int) -> str:
    resources = {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}}
    return json.dumps({"spec": {"template": {"spec": {"containers": [{"name": "c", "resources": resources}]}}}})


# What the API server itself refuses


def bad(namespace: str, container: Object | None = None, **spec: Any) -> Object:
    made = pod("bad", namespace, **spec)
    made["spec"]["containers"][0] |= container or {}
    return made


REFUSED: dict[str, tuple[Object, str]] = {
    "no image": ({"image": ""}, "spec.containers[0].image: Required value"),
    "negative": ({"resources": {"limits": {"nvidia.com/gpu": "-1"}}}, "must be greater than or equal to 0"),
    "half a card": ({"resources": {"limits": {"nvidia.com/gpu": "500m"}}}, "must be an integer"),
    "no number": ({"resources": {"limits": {"nvidia.com/gpu": "one"}}}, "quantities must match the regular expression"),
    "a list of limits": ({"resources": {"limits": ["nvidia.com/gpu"]}}, "cannot unmarshal array"),
    "unequal": (
        {"resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}}},
        "must be equal to nvidia.com/gpu limit of 2",
    ),
    "a request alone": (
        {"resources": {"limits": {}, "requests": {"nvidia.com/gpu": 1}}},
        "Limit must be set for non overcommitable resources",
    ),
    "a number as value": ({"env": [{"name": "A", "value": 1}]}, "cannot unmarshal number"),
    "bad variable": ({"env": [{"name": "A=B", "value": "1"}]}, "spec.containers[0].env[0].name: Invalid value"),
    "bad container name": ({"name": "C_1"}, "spec.containers[0].name: Invalid value"),
    "an unknown field": ({"imagee": "i"}, 'unknown field "spec.containers[0].imagee"'),
}


@pytest.mark.parametrize("why", REFUSED)
def test_errors_of_containers_come_from_the_api_server(guarded: Guard, strangers: str, why: str) -> None:
    """A person hears what is wrong with the object, not that a webhook could not read it."""
    container, message = REFUSED[why]
    told(guarded, bad(strangers, container), message)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"nodeSelector": {"pool": True}}, "cannot unmarshal bool"),
        ({"tolerations": [{"operator": "Sometimes"}]}, "spec.tolerations[0].operator"),
        ({"restartPolicy": "Perhaps"}, "spec.restartPolicy: Unsupported value"),
        ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}, "must have at least one node selector"),
    ],
    ids=["a boolean", "an operator", "a restart policy", "no terms"],
)
def test_errors_of_pod_fields_come_from_the_api_server(
    guarded: Guard, strangers: str, spec: Object, message: str
) -> None:
    told(guarded, bad(strangers, **spec), message)


def test_errors_of_names_and_kinds_come_from_the_api_server(guarded: Guard, strangers: str) -> None:
    told(guarded, pod("Bad_Name", strangers), "metadata.name: Invalid value")
    told(guarded, {**pod("bad", strangers), "apiVersion": "v2"}, "no matches for kind")
    mismatched = workload("Deployment", "bad", strangers, template(ONE))
    mismatched["spec"]["selector"]["matchLabels"] = {"app": "other"}
    told(guarded, mismatched, "`selector` does not match template `labels`")
    never = workload("Deployment", "bad", strangers, template(ONE, restartPolicy="Never"))
    told(guarded, never, "spec.template.spec.restartPolicy: Unsupported value")
    labelled = {**pod("bad", strangers)}
    labelled["metadata"] |= {"annotations": {TRUST: True}}
    told(guarded, labelled, "cannot unmarshal bool")


def told(guarded: Guard, item: Object, message: str) -> None:
    refused = guarded.cluster.kubectl("create", "--validate=strict", "--filename=-", stdin=json.dumps(item))
    assert refused.returncode == 1
    assert message in refused.stderr
    assert "admission webhook" not in refused.stderr
