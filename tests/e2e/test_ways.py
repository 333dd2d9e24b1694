"""The ways on a real API server: shut or harmless by whatever call they are tried, and honest neighbours let by."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.e2e import offered
from tests.e2e.access import allowed
from tests.e2e.conftest import Space
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.guard import MUTATE, Guard, policy_of
from tests.e2e.objects import TRUST, TRUSTED, Object, pod, template, workload
from webhook.proving.ways import WAYS

TENANT = User("tenant")
"""Has the cluster's ordinary role `edit` in a namespace of their own."""
POOL = "slicewarden.dev/pool"
STRATEGY = "nvidia.com/gpu.sharing-strategy"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
VOID = {"name": VISIBLE, "value": "void"}
TOLERANT = {"tolerations": [{"key": POOL, "operator": "Exists"}]}


def opened(name: str, namespace: str, spec: Object, container: Object, limits: dict[str, int] | None = None) -> Object:
    """A pod with more in its spec and in its one container; of one GPU, unless the limits say otherwise."""
    made = pod(name, namespace, limits, **spec)
    made["spec"]["containers"][0] |= container
    return made


def refusal(cluster: Cluster, *arguments: str, item: Object | None = None, user: User | None = None) -> str:
    """Return what is said to a kubectl command that has to fail."""
    done = cluster.kubectl(*arguments, user=user, stdin=json.dumps(item) if item else None)
    assert done.returncode, done.stdout
    return done.stderr


def created(cluster: Cluster, item: Object, user: User | None = None) -> Any:
    """The object as it is stored, which has to succeed."""
    return json.loads(cluster.do("create", "--filename=-", "--output=json", stdin=json.dumps(item), user=user))


def blind(item: Object) -> bool:
    """Whether every container is told to see no GPU, so that neither its image nor its sources can say otherwise."""
    return all(VOID in container.get("env", ()) for container in item["spec"]["containers"])


def mounted(path: str) -> Object:
    return {"volumes": [{"name": "v", "hostPath": {"path": path}}]}


# Shut


def proved(guarded: Guard, namespace: str, account: Path | None = None) -> tuple[int, dict[str, set[str]]]:
    """Run `slicewarden prove` in a namespace: its status, and the names of the probes by their outcome.

    It runs as a tenant of the namespace, unless it gets the kubeconfig of an account.
    """
    policy = guarded.cluster.folder / "proved.yaml"
    policy.write_text(policy_of(guarded.cluster), "utf-8")
    command: list[str | Path] = [sys.executable, "-m", "webhook", "prove", "--policy", policy]
    command += ["--namespace", namespace, "--kubeconfig", account or guarded.cluster.kubeconfig(), "--format", "json"]
    command += [] if account else ["--as", tenant(guarded.cluster, namespace).name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found: dict[str, set[str]] = {}
    for target in json.loads(done.stdout)["targets"]:
        assert target["namespace"] == namespace
        for each in target["ways"]:
            found.setdefault(each["outcome"], set()).add(each["way"])
    return done.returncode, found


TRIED = {way.name for way in WAYS if not way.unearned}
"""The ways that a namespace with a grant can try."""


def test_every_way_of_a_new_pod_is_shut(guarded: Guard, team: str) -> None:
    status, found = proved(guarded, team)
    assert (status, found) == (0, {"admitted": {"honest pod"}, "shut": TRIED})
    assert guarded.cluster.get("pods", f"--namespace={team}")["items"] == []


PROVER = User("system:serviceaccount:slicewarden-system:slicewarden-prove")
"""The account of components/prove."""


def test_the_component_proves_with_its_own_rights_and_creates_nothing(guarded: Guard, team: str) -> None:
    cluster = guarded.cluster
    for name in ("rbac.yaml", "dry-runs.yaml"):
        cluster.do("apply", "--filename", ROOT / "manifests/components/prove" / name)
    for verb, resource in (("list", "nodes"), ("create", "pods")):
        allowed(cluster, PROVER, verb, resource)
    real = ("run", "real", "--image=i", f"--namespace={team}")
    plain = "this account tries ways to a GPU by dry runs, and may create nothing"
    try:
        assert eventually(lambda: plain in cluster.kubectl(*real, "--dry-run=none", user=PROVER).stderr)
        account = cluster.kubeconfig_of_account("slicewarden-prove", "slicewarden-system")
        assert proved(guarded, team, account) == (0, {"admitted": {"honest pod"}, "shut": TRIED})
        assert plain in refusal(cluster, *real, user=PROVER)
        for verb, resource in (("list", "secrets"), ("list", "pods"), ("delete", "pods"), ("create", "deployments")):
            asked = cluster.kubectl("auth", "can-i", verb, resource, "--all-namespaces", user=PROVER)
            assert asked.stdout.strip() == "no", (verb, resource)
    finally:
        cluster.do("delete", "--filename", ROOT / "manifests/components/prove/rbac.yaml")
        cluster.do("delete", "--filename", ROOT / "manifests/components/prove/dry-runs.yaml")


def test_without_the_validating_webhook_only_what_is_patched_is_shut(guarded: Guard, team: str) -> None:
    patched = {way.name for way in WAYS if way.patched}
    try:
        guarded.without("pods.slicewarden.dev", lambda: guarded.reached_by(pod("probe", "default")) == [MUTATE])
        status, found = proved(guarded, team)
    finally:
        guarded.register()
    assert (status, found) == (1, {"admitted": {"honest pod"}, "shut": patched, "open": TRIED - patched})


@pytest.mark.parametrize(
    ("verb", "key"),
    [
        *(
            ("annotate", key)
            for key in ("cdi.k8s.io/mine", "nvidia.cdi.k8s.io/pod", "hami.io/vgpu-node", "gpu-fraction")
        ),
        *(("label", key) for key in ("runai-gpu-group", "runai-gpu-group/g", "tensor-fusion.ai/enabled")),
    ],
)
def test_an_annotation_or_a_label_added_later_is_denied(guarded: Guard, strangers: str, verb: str, key: str) -> None:
    here = f"--namespace={strangers}"
    guarded.cluster.do("run", "plain", "--image=i", here)
    said = refusal(guarded.cluster, verb, "pod", "plain", f"{key}=x", here, user=tenant(guarded.cluster, strangers))
    assert "slicewarden.dev" in said
    assert key in said


def test_a_toleration_that_comes_later_does_not_bring_a_privileged_pod_to_a_gpu(guarded: Guard, strangers: str) -> None:
    waits = {"schedulerName": "nobody"}
    created(guarded.cluster, opened("agent", strangers, waits, {"securityContext": {"privileged": True}}, {}))
    patch = f"--patch={json.dumps({'spec': TOLERANT})}"
    said = refusal(guarded.cluster, "patch", "pod", "agent", "--type=merge", patch, f"--namespace={strangers}")
    assert "privileged-container:" in said


def test_a_debug_container_sees_no_gpu(guarded: Guard, strangers: str) -> None:
    cluster, here = guarded.cluster, f"--namespace={strangers}"
    created(cluster, pod("busy", strangers))
    assert cluster.node_of("busy", strangers) == "a100-exclusive"
    cluster.do("debug", "busy", "--image=i", "--container=look", here)
    (look,) = cluster.get("pod", "busy", here)["spec"]["ephemeralContainers"]
    assert look["env"] == [VOID]
    greedy = ("debug", "busy", "--image=i", f"--env={VISIBLE}=all", "--container=take", here)
    assert "visible-devices:" in refusal(cluster, *greedy)
    assert "privileged-container:" in refusal(
        cluster, "debug", "busy", "--image=i", "--profile=sysadmin", "--container=take", here
    )


def test_a_debug_container_sees_no_gpu_by_a_raw_call_either(guarded: Guard, strangers: str) -> None:
    cluster, here = guarded.cluster, f"--namespace={strangers}"
    created(cluster, pod("busy", strangers))
    cluster.node_of("busy", strangers)  # from then on nobody else changes it between a read and a replacement
    raw = f"--raw=/api/v1/namespaces/{strangers}/pods/busy/ephemeralcontainers"

    def debugged(**container: Any) -> Object:
        item: Object = cluster.get("pod", "busy", here)
        item["spec"]["ephemeralContainers"] = [
            {"name": "look", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always", **container}
        ]
        return item

    for rule, more in (
        ("visible-devices", {"env": [{"name": VISIBLE, "value": "all"}]}),
        ("privileged-container", {"securityContext": {"privileged": True}}),
    ):
        assert f"{rule}:" in refusal(cluster, "replace", raw, "--filename=-", item=debugged(**more))
    cluster.do("replace", raw, "--filename=-", stdin=json.dumps(debugged()))
    (look,) = cluster.get("pod", "busy", here)["spec"]["ephemeralContainers"]
    assert look["env"] == [VOID]


# Claims

CLASS = {"deviceClassName": "gpu.nvidia.com"}
ASKING: dict[str, Object] = {
    "exactly": {"exactly": CLASS},
    "first": {"firstAvailable": [{"name": "card", "deviceClassName": "nic.example.com"}, {"name": "gpu", **CLASS}]},
}


@pytest.mark.needs(offered.DEVICES)
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize("asking", ASKING)
def test_a_claim_for_a_gpu_is_denied(guarded: Guard, strangers: str, kind: str, asking: str) -> None:
    spec: Object = {"devices": {"requests": [{"name": "r", **ASKING[asking]}]}}
    item = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "mine", "namespace": strangers},
        "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec,
    }
    assert "claimed-gpu:" in refusal(guarded.cluster, "apply", "--filename=-", item=item)


@pytest.mark.needs(offered.DEVICES)
@pytest.mark.usefixtures("guarded")
def test_a_device_class_with_an_unlisted_resource_name_is_denied(cluster: Cluster) -> None:
    item: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "fast"},
        "spec": {"extendedResourceName": "example.com/unheard-of"},
    }
    create = ("create", "--dry-run=server", "--filename=-")
    assert "unlisted-resource:" in refusal(cluster, *create, item=item)
    item["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    cluster.do(*create, stdin=json.dumps(item))


# As a tenant


def tenant(cluster: Cluster, namespace: str) -> User:
    """Somebody with the ordinary role `edit` in a namespace, and nothing elsewhere."""
    here = f"--namespace={namespace}"
    cluster.do("create", "rolebinding", "tenant", "--clusterrole=edit", f"--user={TENANT.name}", here)
    assert eventually(lambda: not cluster.kubectl("auth", "can-i", "create", "pods", here, user=TENANT).returncode)
    return TENANT


SHARED: dict[str, tuple[str, Object]] = {
    "trust": ("unearned-trust", {}),
    "slice": ("unsteered-pod", {}),
    "selector": ("unsteered-pod", {"nodeSelector": {STRATEGY: "time-slicing"}}),
    "name": ("chosen-node", {"nodeName": "t4-shared"}),
}


@pytest.mark.parametrize("way", SHARED)
def test_a_tenant_does_not_reach_a_shared_node_untrusted(guarded: Guard, strangers: str, way: str) -> None:
    rule, spec = SHARED[way]
    user = tenant(guarded.cluster, strangers)
    limits = {"nvidia.com/gpu.shared": 1} if way == "slice" else None
    annotations = TRUSTED if way == "trust" else None
    item = pod("mine", strangers, limits, annotations, **spec)
    assert f"{rule}:" in refusal(guarded.cluster, "create", "--filename=-", item=item, user=user)
    deployment = workload(
        "Deployment", "mine", strangers, template(limits or {"nvidia.com/gpu": 1}, annotations, **spec)
    )
    assert f"{rule}:" in refusal(guarded.cluster, "create", "--filename=-", item=deployment, user=user)


def test_a_tenant_does_not_raise_the_trust_of_what_runs(guarded: Guard, strangers: str) -> None:
    cluster, user = guarded.cluster, tenant(guarded.cluster, strangers)
    created(cluster, pod("mine", strangers), user)
    here = f"--namespace={strangers}"
    assert "changed-trust:" in refusal(cluster, "annotate", "pod", "mine", f"{TRUST}=trusted", here, user=user)
    assert "cannot patch" in refusal(cluster, "label", "namespace", strangers, f"{TRUST}=trusted", user=user)


@pytest.mark.parametrize("more", [{}, TOLERANT, {"schedulerName": "mine"}], ids=["plain", "tolerant", "scheduler"])
def test_a_tenant_s_pod_that_asks_is_steered(guarded: Guard, strangers: str, more: Object) -> None:
    """However it is scheduled, the kubelet of another node would refuse it."""
    cluster = guarded.cluster
    steered = created(cluster, pod("mine", strangers, **more), tenant(cluster, strangers))
    assert {"key": STRATEGY, "operator": "NotIn", "values": ["mps", "time-slicing"]} in selections(steered)
    if "schedulerName" not in more:
        assert cluster.node_of("mine", strangers).endswith("-exclusive")


def selections(item: Object) -> list[Object]:
    """Return what a pod's required node affinity demands, in all its terms."""
    affinity = item["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = affinity["nodeSelectorTerms"]
    return list(term["matchExpressions"])


@pytest.mark.parametrize("node", ["t4-shared", "a100-exclusive"])
def test_a_tenant_s_pod_that_asks_for_nothing_sees_no_gpu_where_one_is(
    guarded: Guard, strangers: str, node: str
) -> None:
    cluster, user = guarded.cluster, tenant(guarded.cluster, strangers)
    there = {**TOLERANT, "nodeSelector": {"kubernetes.io/hostname": node}}
    sources = {"envFrom": [{"configMapRef": {"name": "mine", "optional": True}}]}
    assert blind(created(cluster, opened("mine", strangers, there, sources, {}), user))
    assert cluster.node_of("mine", strangers) == node


UNASKED: dict[str, tuple[str, Object, Object]] = {
    "variable": ("visible-devices", {}, {"env": [{"name": VISIBLE, "value": "all"}]}),
    "privileged": ("privileged-container", TOLERANT, {"securityContext": {"privileged": True}}),
    "path": ("device-path", {**TOLERANT, **mounted("/dev")}, {}),
    "processes": ("host-namespaces", {**TOLERANT, "hostPID": True}, {}),
    "node": ("chosen-node", {"nodeName": "t4-shared"}, {}),
    "toleration": ("broad-toleration", {"tolerations": [{"operator": "Exists"}]}, {}),
}


@pytest.mark.parametrize("way", UNASKED)
def test_a_tenant_sees_no_gpu_without_asking(guarded: Guard, strangers: str, way: str) -> None:
    rule, spec, container = UNASKED[way]
    item = opened("mine", strangers, spec, container, {})
    said = refusal(guarded.cluster, "create", "--filename=-", item=item, user=tenant(guarded.cluster, strangers))
    assert f"{rule}:" in said


# Honest neighbours

PLAIN: dict[str, tuple[Object, Object]] = {
    "plain": ({}, {}),
    "variables": ({}, {"envFrom": [{"configMapRef": {"name": "settings", "optional": True}}]}),
    "logs": (mounted("/var/log"), {}),
    "privileged": ({}, {"securityContext": {"privileged": True}}),
    "spot": ({"tolerations": [{"key": "spot", "operator": "Exists"}]}, {}),
}


@pytest.mark.parametrize("neighbour", PLAIN)
def test_a_plain_pod_is_admitted_without_a_review(guarded: Guard, space: Space, neighbour: str) -> None:
    namespace = space()
    item = opened("plain", namespace, *PLAIN[neighbour], {})
    assert guarded.reached_by(item, refused=False) == []
    assert not blind(created(guarded.cluster, item, tenant(guarded.cluster, namespace)))
    assert guarded.cluster.node_of("plain", namespace) == "cpu"


def test_a_daemon_set_without_gpus_is_admitted_without_a_review(guarded: Guard, space: Space) -> None:
    namespace = space()
    spec: Object = {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}
    agent = workload("DaemonSet", "agent", namespace, template({}, **spec))
    assert guarded.reached_by(agent, refused=False) == []
    created(guarded.cluster, agent)
    guarded.cluster.do("rollout", "status", "daemonset/agent", "--timeout=300s", f"--namespace={namespace}")
    (one,) = guarded.cluster.get("pods", f"--namespace={namespace}")["items"]
    assert one["spec"]["nodeName"] == "cpu"
    assert guarded.asked(namespace) == []


def test_devices_that_are_no_gpus_and_logs_are_mounted_so_that_nobody_can_write(guarded: Guard, team: str) -> None:
    volumes = [{"name": f"v{i}", "hostPath": {"path": path}} for i, path in enumerate(("/dev/infiniband", "/var/log"))]
    mounts: list[Object] = [
        {"name": "v0", "mountPath": "/dev/infiniband"},
        {"name": "v1", "mountPath": "/logs", "readOnly": True},
    ]
    item = opened("mended", team, {"volumes": volumes}, {"volumeMounts": mounts})
    stored = created(guarded.cluster, item, tenant(guarded.cluster, team))["spec"]["containers"][0]["volumeMounts"]
    assert stored[0] == {**mounts[0], "readOnly": True}
    assert stored[1] == {**mounts[1], "recursiveReadOnly": "IfPossible"}
