"""The webhook configurations that are made from a policy; tests/e2e has an API server follow them."""

import json
from dataclasses import replace

import pytest

from tests import ROOT
from tests.support.fixtures import fixture
from tests.support.objects import Object
from webhook.api import admission
from webhook.catalog import device_variables, names
from webhook.catalog.places import Template, Workload, table
from webhook.catalog.workloads import WORKLOADS
from webhook.cel.write import filled, text
from webhook.engine.engine import Engine
from webhook.engine.registration import configurations
from webhook.facts.kinds.node import CONFIG_LABEL
from webhook.facts.snapshot import Facts
from webhook.memory.budget import CARD_LABELS
from webhook.model import Action
from webhook.policy.actions import Exemption, Override
from webhook.policy.model import Guard, Policy, PriorityScope
from webhook.policy.scopes import Grant, Requesters, Scope
from webhook.rules import walk


def hooks(policy: Policy) -> dict[str, Object]:
    return {hook["name"]: hook for configuration in configurations(policy) for hook in configuration["webhooks"]}


def expression(hook: Object) -> str:
    (condition,) = hook["matchConditions"]
    return str(condition["expression"])


def excluded(hook: Object) -> list[str]:
    (requirement,) = hook["namespaceSelector"]["matchExpressions"]
    return list(requirement["values"])


def asked(hook: Object) -> set[tuple[str, str]]:
    return {(rule["apiGroups"][0], resource) for rule in hook["rules"] for resource in rule["resources"]}


CREATED, WRITTEN = {"CREATE"}, {"CREATE", "UPDATE"}
ALONE = ("kube-system", "slicewarden-system")
# Written by hand: what is asked about, by webhook.
ASKED = {
    "mutate": {"pods": CREATED, "pods/ephemeralcontainers": {"UPDATE"}},
    "pods": dict.fromkeys(("pods", "pods/ephemeralcontainers", "pods/resize"), WRITTEN),
    "workloads": dict.fromkeys(
        (
            *("cronjobs", "daemonsets", "deployments", "jobs", "podtemplates"),
            *("replicasets", "replicationcontrollers", "statefulsets"),
        ),
        WRITTEN,
    ),
    "bindings": dict.fromkeys(("bindings", "pods/binding"), CREATED),
    "statuses": {"pods/status": {"UPDATE"}},
    "namespaces": dict.fromkeys(("namespaces", "namespaces/finalize", "namespaces/status"), WRITTEN),
    "nodes": dict.fromkeys(("nodes", "nodes/status"), WRITTEN),
    "nodefeatures": {"nodefeatures": WRITTEN},
    "configmaps": {"configmaps": {*WRITTEN, "DELETE"}},
    "clusterpolicies": {"clusterpolicies": WRITTEN},
    "devices": dict.fromkeys(("deviceclasses", "resourceclaims", "resourceclaimtemplates"), WRITTEN),
}


@pytest.mark.parametrize("name", ASKED)
def test_the_registration_asks_about_these_resources_and_operations(sample_policy: Policy, name: str) -> None:
    hook = hooks(sample_policy)[f"{name}.slicewarden.dev"]
    found = {resource: set(rule["operations"]) for rule in hook["rules"] for resource in rule["resources"]}
    assert found == ASKED[name]
    half = "mutate" if name == "mutate" else "validate"
    assert hook["failurePolicy"] == {"mutate": "Ignore", "validate": "Fail"}[half]
    assert hook["timeoutSeconds"] == {"mutate": 3, "validate": 5}[half]
    assert hook.get("reinvocationPolicy") == {"mutate": "IfNeeded", "validate": None}[half]
    service = {"namespace": "slicewarden-system", "name": "slicewarden", "path": f"/{half}", "port": 443}
    assert hook["clientConfig"] == {"service": service}


def test_every_webhook_of_the_registration_has_valid_fields(sample_policy: Policy) -> None:
    for name, hook in hooks(sample_policy).items():
        assert (hook["sideEffects"], hook["matchPolicy"]) == ("None", "Equivalent")
        assert hook["admissionReviewVersions"] == ["v1"]
        assert name.count(".") == 2
        assert "objectSelector" not in hook  # tenants write labels


@pytest.mark.parametrize("name", ASKED)
def test_each_webhook_excludes_the_right_namespaces(sample_policy: Policy, name: str) -> None:
    """The GPU Operator's pods come up alone; its ConfigMaps are judged. Nodes are in no namespace."""
    hook = hooks(sample_policy)[f"{name}.slicewarden.dev"]
    if name in ("nodes", "clusterpolicies"):
        assert "namespaceSelector" not in hook
    else:
        judged = name in ("configmaps", "namespaces", "devices")
        assert excluded(hook) == [*ALONE, *([] if judged else ["gpu-operator"])]


def test_without_an_account_of_feature_discovery_nobody_is_asked_about_node_features(sample_policy: Policy) -> None:
    """Its changes of nodes are then judged as those of any stranger (relabelled-node)."""
    policy = replace(sample_policy, node_labellers=Requesters(frozenset(("karpenter",)), frozenset(("admins",))))
    assert hooks(sample_policy).keys() - hooks(policy).keys() == {"nodefeatures.slicewarden.dev"}
    review = fixture(ROOT / "tests" / "fixtures" / "relabelled-node" / "deny-a-node-feature-with-labels.yaml")[0].value
    request = admission.decode(json.dumps(review).encode())
    assert [Engine(each, walk()).judge(request, Facts()).allowed for each in (sample_policy, policy)] == [False, True]


def test_an_exemption_from_all_rules_lets_no_node_feature_label_nodes(sample_policy: Policy) -> None:
    visitors = Scope(frozenset(("visitors",)), None, frozenset())
    review = fixture(ROOT / "tests" / "fixtures" / "relabelled-node" / "deny-a-node-feature-with-labels.yaml")[0].value
    request = admission.decode(json.dumps(review).encode())
    for rules, allowed in ((frozenset[str](), False), (frozenset(("relabelled-node",)), True)):
        exempt = Exemption("for-a-while", visitors, rules, None)
        policy = replace(sample_policy, exemptions=(exempt,))
        assert Engine(policy, walk()).judge(request, Facts()).allowed is allowed


def test_an_override_of_all_rules_in_a_namespace_lets_no_node_feature_label_nodes(sample_policy: Policy) -> None:
    visitors = Scope(frozenset(("visitors",)), None, frozenset())
    review = fixture(ROOT / "tests" / "fixtures" / "relabelled-node" / "deny-a-node-feature-with-labels.yaml")[0].value
    request = admission.decode(json.dumps(review).encode())
    for scope, rule, allowed in (
        (visitors, "*", False),
        (visitors, "relabelled-node", True),
        (None, "*", True),
    ):
        policy = replace(sample_policy, overrides=(Override(scope, frozenset(), {rule: Action.WARN}),))
        assert Engine(policy, walk()).judge(request, Facts()).allowed is allowed


def test_both_halves_are_asked_about_the_same_pods(sample_policy: Policy) -> None:
    found = hooks(sample_policy)
    pods = expression(found["pods.slicewarden.dev"])
    assert expression(found["mutate.slicewarden.dev"]) == pods
    of_pods, _, lifted = pods.partition("pod,")[2].partition("|| (request.operation == 'UPDATE'")
    assert "oldObject" in lifted, "only a pod loses a share of compute by an update"
    assert expression(found["workloads.slicewarden.dev"]).endswith(of_pods)


def test_a_guard_of_every_pod_asks_about_every_pod(sample_policy: Policy) -> None:
    for name, hook in hooks(replace(sample_policy, guard=Guard())).items():
        if name.startswith(("mutate.", "pods.", "workloads.")):
            assert expression(hook) == "true"


def test_groups_are_asked_about_where_the_policy_has_a_word_on_priorities(sample_policy: Policy) -> None:
    assert "groups.slicewarden.dev" not in hooks(sample_policy)
    assert "groups.slicewarden.dev" in hooks(replace(sample_policy, untrusted_preempt=False))
    entry = PriorityScope(names.Names(["high"]), frozenset(), None, frozenset())
    assert "groups.slicewarden.dev" in hooks(replace(sample_policy, priorities=(entry,)))


def test_where_a_grant_hears_requesters_no_workload_goes_unasked(sample_policy: Policy) -> None:
    """Its pods come from a controller, which is always heard: what went past unasked would be trusted."""
    scope = Scope(frozenset({"vision"}), None, frozenset())
    for requesters, policies in ((None, {"Fail", "Ignore"}), (Requesters(frozenset({"mia"})), {"Fail"})):
        found = hooks(replace(sample_policy, grants=(Grant(scope, requesters=requesters),)))
        assert {hook["failurePolicy"] for name, hook in found.items() if not name.startswith("mutate.")} == policies


def test_revisions_are_asked_about_where_a_grant_hears_requesters(sample_policy: Policy) -> None:
    """A controller's are its own business; the data of one that exists nobody can change."""
    scope = Scope(frozenset({"vision"}), None, frozenset())
    assert "revisions.slicewarden.dev" not in hooks(sample_policy)
    narrow = replace(sample_policy, grants=(Grant(scope, requesters=Requesters(frozenset({"mia"}))),))
    hook = hooks(narrow)["revisions.slicewarden.dev"]
    assert asked(hook) == {("apps", "controllerrevisions")}
    assert hook["rules"][0]["operations"] == ["CREATE"]
    assert hook["failurePolicy"] == "Fail"
    assert expression(hook).startswith("!(request.userInfo.username in [")
    for name in narrow.controllers.users:
        assert f"'{name}'" in expression(hook)


def test_a_resource_by_the_name_of_the_guards_taint_is_asked_about(sample_policy: Policy) -> None:
    """An API server may give its toleration to the pods of a template, which has none itself."""
    tainted = replace(sample_policy, guard=Guard("example.com/card"))
    for name in ("pods", "workloads"):
        lines = expression(hooks(tainted)[f"{name}.slicewarden.dev"]).splitlines()
        asking = [line for line in lines if "resources.?limits" in line or "resources.?requests" in line]
        assert ["'example.com/card'" in line for line in asking] == [True, True]


def test_labels_and_schedulers_of_the_policy_are_in_the_conditions(sample_policy: Policy) -> None:
    found = hooks(replace(sample_policy, schedulers=Requesters(frozenset({"mine"}), frozenset({"ours"}))))
    for key in sample_policy.namespace_keys:
        assert f"'{key}'" in expression(found["namespaces.slicewarden.dev"])
    for key in {r.key for pool in sample_policy.pools for r in pool.nodes.requirements} | {*CARD_LABELS, CONFIG_LABEL}:
        assert f"'{key}'" in expression(found["nodes.slicewarden.dev"])
    bindings = expression(found["bindings.slicewarden.dev"])
    assert (
        "!(request.userInfo.username in ['mine'] || request.userInfo.groups.exists(group, group in ['ours']))"
        in bindings
    )
    for name in ("bindings", "statuses", "devices"):
        assert f"'{sample_policy.annotation}'" in expression(found[f"{name}.slicewarden.dev"])
    assert "request.namespace in ['gpu-operator']" in expression(found["configmaps.slicewarden.dev"])


def test_the_device_classes_of_the_policy_are_in_the_condition(sample_policy: Policy) -> None:
    assert "name.startsWith('')" in expression(hooks(sample_policy)["devices.slicewarden.dev"])
    classes = names.Names(("gpu.nvidia.com", "gpu-*"))
    named = replace(sample_policy, forms=replace(sample_policy.forms, device_classes=classes))
    found = expression(hooks(named)["devices.slicewarden.dev"])
    assert "name in ['gpu.nvidia.com'] || name.startsWith('gpu-')" in found
    for always in ("name.contains('nvidia')", "driver.orValue('') == 'gpu.nvidia.com'", "extendedResourceName"):
        assert always in found  # what unsafe-device-claim and unlisted-resource judge, whatever the classes


def test_a_bundle_is_in_every_webhook_and_changes_nothing_else(sample_policy: Policy) -> None:
    for without, made in zip(configurations(sample_policy), configurations(sample_policy, "Y2E="), strict=True):
        assert [each["clientConfig"].pop("caBundle") for each in made["webhooks"]] == ["Y2E="] * len(
            without["webhooks"]
        )
        assert made == without


def test_every_workload_is_asked_about_once(sample_policy: Policy) -> None:
    everywhere = [
        pair for name, hook in hooks(sample_policy).items() if not name.startswith("mutate") for pair in asked(hook)
    ]
    assert len(everywhere) == len(set(everywhere))
    assert {(each.group, each.resource) for each in WORKLOADS.values()} <= set(everywhere)


def test_other_operators_do_not_wait_for_the_webhook(sample_policy: Policy) -> None:
    others = {name: hook for name, hook in hooks(sample_policy).items() if name.partition(".")[0] not in ASKED}
    assert {hook["failurePolicy"] for hook in others.values()} == {"Ignore"}


def test_the_words_of_the_policy_are_in_every_condition_on_pods(sample_policy: Policy) -> None:
    policy = replace(sample_policy, annotation="example.com/it's")
    for name, hook in hooks(policy).items():
        if "pods" in name or "workloads" in name:
            assert r"key in ['example.com/it\'s', " in expression(hook)
            assert ".startsWith('nvidia.com/') || " in expression(hook)
            assert ".startsWith('amd.com/gpu') || " in expression(hook)
            assert "'NVIDIA_VISIBLE_DEVICES'" in expression(hook)


def test_every_door_is_in_the_condition_on_pods(sample_policy: Policy) -> None:
    named = expression(hooks(sample_policy)["pods.slicewarden.dev"])
    for name in (
        *device_variables.DEVICE_VARIABLES,
        "cdi.k8s.io",
        "devices.nri.io",
        "hami.io/",
        "ALIYUN_COM_GPU_",
        "gpu-fraction",
        "nvidia.com/container.",
        ".gpus.devices",
        "runai-gpu-group",
        "runai-gpu-group/",
        "nvidia.com/assigned-phase",
        "tensor-fusion.ai/enabled",
        "k8s.amazonaws.com/vgpu",
        "huawei.com/Ascend",
        "huawei.com/ascend",
        "huawei.com/npu",
        "huawei.com/kltDev",
        "metax-tech.com/",
    ):
        assert f"'{name}'" in named
    assert f"{filled('pod.?metadata.?labels', '{}')}.exists(key, " in named
    assert f"{filled('m.?mountPath', text(''))}.contains('nvidia-container-devices')" in named
    assert "name.startsWith('nvidia') || name.startsWith('kata-qemu-nvidia')" in named
    assert f"{filled('t.?key', text(''))} in ['', 'slicewarden.dev/pool']" in named
    assert "hostPID" not in named
    unguarded = expression(hooks(replace(sample_policy, guard=None))["pods.slicewarden.dev"])
    for word in (
        "hostPID",
        "hostIPC",
        "hostPath",
        "privileged",
        "capabilities",
        "hostProcess",
        "csi",
        "flexVolume",
        "azureFile",
    ):
        assert f".?{word}" in unguarded
    assert "slicewarden.dev/pool" not in unguarded


VALUES = filled("object.?spec.?a", "{}")


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("spec.a.pod-template", "[dyn(object.?spec.?a[?'pod-template'].orValue({}))]"),
        ("spec.a.[].pod", f"{filled('object.?spec.?a')}.map(i, dyn(i.?pod.orValue({{}})))"),
        ("spec.a.{}.pod", f"{VALUES}.map(k, dyn({VALUES}[k].?pod.orValue({{}})))"),
        ("spec.[].a.[].pod", "'things.example.com'"),
    ],
)
def test_a_place_of_the_policy_is_looked_at(sample_policy: Policy, place: str, found: str) -> None:
    more = table((Workload("example.com", "Thing", "things", (Template(place), Template("spec.b"))),))
    hook = hooks(replace(sample_policy, workloads={**WORKLOADS, **more}))["custom-workloads.slicewarden.dev"]
    assert found in expression(hook)
    assert "[dyn(object.?spec.?b.orValue({}))]" in expression(hook)


def test_the_system_comes_up_alone(sample_policy: Policy) -> None:
    agents = Exemption("agents", Scope(frozenset({"monitoring"}), None, frozenset({"a"})), frozenset(), None)
    found = hooks(replace(sample_policy, leave_alone=("gpu-plugin", "kube-system"), exemptions=(agents,)))
    # Others than the exempted accounts may run pods in the namespace, so they are asked about.
    assert excluded(found["pods.slicewarden.dev"]) == [*ALONE, "gpu-plugin"]


def test_pods_are_judged_where_a_policy_only_reads_sharing_configurations(sample_policy: Policy) -> None:
    limits = sample_policy.limits._replace(namespaces=("gpu-plugin",))
    found = hooks(replace(sample_policy, limits=limits, leave_alone=()))
    assert not [name for name, hook in found.items() if "namespaceSelector" in hook and "gpu-plugin" in excluded(hook)]
    assert "'gpu-plugin'" in expression(found["configmaps.slicewarden.dev"])
