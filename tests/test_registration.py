"""The webhook configurations that are made from a policy; tests/cluster has an API server follow them."""

from dataclasses import replace
from typing import Any

import pytest

from webhook import doors
from webhook.policy import Exemption, Guard, Policy, Scope
from webhook.registration import configurations
from webhook.workloads import BUILT_IN, WORKLOADS, Template, Workload, table

Object = dict[str, Any]


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


def test_every_workload_is_asked_about_once(sample_policy: Policy) -> None:
    everywhere = [
        pair for name, hook in hooks(sample_policy).items() if not name.startswith("mutate") for pair in asked(hook)
    ]
    assert len(everywhere) == len(set(everywhere))
    assert {(each.group, each.resource) for each in WORKLOADS.values()} <= set(everywhere)


def test_only_what_kubernetes_itself_runs_waits_for_the_webhook(sample_policy: Policy) -> None:
    groups = {group for group, _ in BUILT_IN}
    for hook in hooks(sample_policy).values():
        if {rule["apiGroups"][0] for rule in hook["rules"]} <= groups:
            assert hook["failurePolicy"] == ("Ignore" if hook["name"].startswith("mutate") else "Fail")
        else:
            assert hook["failurePolicy"] == "Ignore"


def test_the_words_of_the_policy_are_in_every_condition_on_pods(sample_policy: Policy) -> None:
    policy = replace(sample_policy, annotation="example.com/it's")
    for name, hook in hooks(policy).items():
        if "pods" in name or "workloads" in name:
            assert r"'example.com/it\'s' in pod.?metadata.?annotations" in expression(hook)
            assert "name.startsWith('nvidia.com/mig-')" in expression(hook)
            assert "'nvidia.com/gpu'" in expression(hook)


def test_every_door_is_in_the_condition_on_pods(sample_policy: Policy) -> None:
    named = expression(hooks(sample_policy)["pods.slicewarden.dev"])
    for name in doors.DEVICE_VARIABLES:
        assert f"'{name}'" in named
    for start in ("cdi.k8s.io", "devices.nri.io", "io.kubernetes.cri-o.Devices", "hami.io/", "ALIYUN_COM_GPU_"):
        assert f"key.startsWith('{start}')" in named
    assert "key.contains('.cdi.k8s.io')" in named
    assert "'gpu-fraction'" in named
    assert "m.?mountPath.orValue('').contains('nvidia-container-devices')" in named
    assert "name.startsWith('nvidia')" in named
    assert "t.?key.orValue('') in ['', 'slicewarden.dev/pool']" in named
    assert "hostPID" not in named
    unguarded = expression(hooks(replace(sample_policy, guard=None))["pods.slicewarden.dev"])
    for word in ("hostPID", "hostIPC", "hostPath", "privileged", "capabilities", "hostProcess"):
        assert f".?{word}" in unguarded
    assert "slicewarden.dev/pool" not in unguarded


def test_every_pod_is_asked_about_where_that_is_the_guard(sample_policy: Policy) -> None:
    every = hooks(replace(sample_policy, guard=Guard()))
    assert expression(every["pods.slicewarden.dev"]).split() == ["([object]).exists(pod,", "true)"]
    assert every["mutate-debug.slicewarden.dev"]["rules"][0]["resources"] == ["pods/ephemeralcontainers"]


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("spec.a.pod-template", "[dyn(object.?spec.?a[?'pod-template'].orValue({}))]"),
        ("spec.a.[].pod", "object.?spec.?a.orValue([]).map(i, dyn(i.?pod.orValue({})))"),
        ("spec.a.{}.pod", "object.?spec.?a.orValue({}).map(k, dyn(object.?spec.?a.orValue({})[k].?pod.orValue({})))"),
        ("spec.[].a.[].pod", "request.resource.resource in ['things'] || "),
    ],
)
def test_a_place_of_the_policy_is_looked_at(sample_policy: Policy, place: str, found: str) -> None:
    more = table((Workload("example.com", "Thing", "things", (Template(place), Template("spec.b"))),))
    hook = hooks(replace(sample_policy, workloads={**WORKLOADS, **more}))["example-com.slicewarden.dev"]
    assert found in expression(hook)
    assert "[dyn(object.?spec.?b.orValue({}))]" in expression(hook)


def test_the_system_comes_up_alone(sample_policy: Policy) -> None:
    agents = Exemption("agents", Scope(frozenset({"gpu-agents"}), None, frozenset({"a"})), frozenset(), None)
    for hook in hooks(replace(sample_policy, exemptions=(agents,))).values():
        assert {"kube-system", "slicewarden-system", "gpu-agents"} <= {*excluded(hook)}
    some_rules = replace(agents, rules=frozenset({"unsteered-pod"}))
    for hook in hooks(replace(sample_policy, exemptions=(some_rules,))).values():
        assert "gpu-agents" not in excluded(hook)
