"""Device classes: which are for GPUs, and what is said of claims for the others."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.fixtures import settings
from tests.support.objects import Object
from tests.support.policies import POLICY, policy_of
from webhook.api.admission import decode, wrap
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu.device_classes import Class, sort_of
from webhook.model import Action, Result
from webhook.policy.model import Policy
from webhook.policy.scopes import Scope
from webhook.rules import walk

DAEMON = "compute-domain-daemon.nvidia.com"


def device_class(name: str, expression: str) -> Object:
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("name", "selectors", "sort"),
    [
        ("gpu.nvidia.com", "", Class.GPU),
        ("mig.nvidia.com", "", Class.GPU),
        ("gpu.amd.com", "", Class.GPU),
        ("mrdma.google.com", "", Class.OTHER),
        ("imex.nvidia.com", "", Class.OTHER),
        ("compute-domain-default-channel.nvidia.com", "", Class.OTHER),
        ("compute-domain-daemon.nvidia.com", "", Class.DAEMON),
        ("compute-domain-daemon.nvidia.com", "device.driver == 'compute-domain.nvidia.com'", Class.DAEMON),
        ("efa.networking.k8s.aws", "", Class.OTHER),
        ("neuron.aws.com", "", Class.OTHER),
        ("cpu.example.com", "", Class.UNKNOWN),
        ("fast", 'device.driver == "gpu.nvidia.com"', Class.GPU),
        ("cards", 'device.driver == "dra.net"', Class.OTHER),
        ("dra.net", 'device.driver == "gpu.nvidia.com"', Class.GPU),
        ("dra.net", "device.driver == 'gpu.nvidia.com'", Class.GPU),
        ("cards", "device.driver == 'dra.net'", Class.OTHER),
        ("mine", 'device.driver == "mine.example.com"', Class.UNKNOWN),
        ("nets", 'device.driver == "dra.net" && device.attributes["dra.net"].?rdma.orValue(false)', Class.OTHER),
        ("most", 'device.driver.endsWith("nvidia.com") && device.driver != "compute-domain.nvidia.com"', Class.UNKNOWN),
        ("some", 'device.driver in ["dra.net", "mine.example.com"]', Class.UNKNOWN),
        ("either", 'device.driver == "dra.net" || device.driver == "mine.example.com"', Class.UNKNOWN),
        ("chosen", 'device.driver == "dra.net" ? false : true', Class.UNKNOWN),
        ("not", '!(device.driver == "dra.net")', Class.UNKNOWN),
    ],
)
def test_what_a_class_is_for(sample_policy: Policy, name: str, selectors: str, sort: Class) -> None:
    facts = Facts.of([device_class(name, selectors)] if selectors else [])
    assert sort_of(name, sample_policy, facts) is sort


def test_all_selectors_of_a_class_count(sample_policy: Policy) -> None:
    item = device_class("nets", 'device.driver == "dra.net"')
    item["spec"]["selectors"].append({"cel": {"expression": 'device.attributes["dra.net"].rdma'}})
    assert sort_of("nets", sample_policy, Facts.of([item])) is Class.OTHER


@pytest.mark.parametrize(
    ("words", "name", "sort"),
    [
        ("otherDeviceClasses: [cpu.example.com]", "cpu.example.com", Class.OTHER),
        ("otherDeviceClasses: [cpu.example.com]", "net.example.com", Class.UNKNOWN),
        ("otherDeviceClasses: [cpu.example.com]", "mrdma.google.com", Class.OTHER),
        ("deviceClasses: [cpu.example.com]", "cpu.example.com", Class.GPU),
        ("deviceClasses: [cpu.example.com]", "gpu.nvidia.com", Class.OTHER),
        ("deviceClasses: [cpu.example.com]", DAEMON, Class.DAEMON),
        (f"deviceClasses: [{DAEMON}]", DAEMON, Class.GPU),
        ("otherDeviceClasses: [cpu.example.com]", DAEMON, Class.DAEMON),
        (f"otherDeviceClasses: [{DAEMON}]", DAEMON, Class.OTHER),
        (f"deviceClasses: [cpu.example.com], otherDeviceClasses: [{DAEMON}]", DAEMON, Class.OTHER),
        ("deviceClasses: ['*'], otherDeviceClasses: [a]", "a", Class.OTHER),
        ("deviceClasses: ['*'], otherDeviceClasses: [a]", "mrdma.google.com", Class.GPU),
    ],
)
def test_a_policy_says_what_a_class_is_for(words: str, name: str, sort: Class) -> None:
    policy = policy_of(POLICY.read_text("utf-8") + f"  gpus: {{{words}}}\n")
    assert sort_of(name, policy, Facts()) is sort


@pytest.mark.parametrize("words", ["claims: [{namespaces: [lab]}]", "deviceClasses: [cpu.example.com]"])
def test_the_device_of_a_daemon_is_no_resource_for_pods(words: str, sample_facts: Facts) -> None:
    policy = policy_of(POLICY.read_text("utf-8") + f"  gpus: {{{words}}}\n")
    resources = {"limits": {f"deviceclass.resource.kubernetes.io/{DAEMON}": "1"}}
    spec = {"containers": [{"name": "a", "resources": resources}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "visitors"}, "spec": spec}
    denied = Engine(policy, walk()).judge(decode(wrap(pod)), sample_facts).having(Action.DENY)
    assert "unsteered-pod" in {result.rule for result in denied}


def claim(kind: str, name: str) -> Object:
    spec: Any = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": name}}]}}
    if kind == "ResourceClaimTemplate":
        spec = {"spec": spec}
    metadata = {"name": "a", "namespace": "lab"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def results(policy: Policy, item: Object, *facts: Object) -> list[Result]:
    engine = Engine(policy, [rule for rule in walk() if rule.id in ("claimed-gpu", "unlisted-claim")])
    return [*engine.judge(decode(wrap(item)), Facts.of(facts)).results]


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu.nvidia.com", "is for GPUs"),
        ("cpu.example.com", "is not known"),
        (DAEMON, "is for the daemons"),
        ("mrdma.google.com", ""),
    ],
)
def test_a_claim_is_named_for_what_it_is(sample_policy: Policy, kind: str, name: str, said: str) -> None:
    found = results(sample_policy, claim(kind, name))
    assert [said in result.finding.message for result in found] == [True] * bool(said)


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("gpu.nvidia.com", Action.DENY),
        ("cpu.example.com", Action.DENY),
        ("netdev.google.com", Action.WARN),
        (DAEMON, Action.WARN),
    ],
)
def test_a_claim_of_the_same_run_is_read(sample_policy: Policy, kind: str, name: str, action: Action) -> None:
    claims = [{"name": "a", f"{kind[0].lower()}{kind[1:]}Name": "a"}]
    spec = {"containers": [{"name": "a"}], "resourceClaims": claims}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "lab"}, "spec": spec}
    (found,) = results(sample_policy, pod, claim(kind, name))
    assert (found.action, name in found.finding.message) == (action, True)
    unknown = "a webhook that does not know the claim denies the pod; create the claim or its template before the pod"
    assert (unknown in found.finding.message) is (action is Action.WARN)
    (unseen,) = results(sample_policy, pod)
    assert (unseen.action, "may not use ResourceClaims" in unseen.finding.message) == (Action.DENY, True)


def pod_with(template: str, **spec: Any) -> Object:
    """A pod that no rule but the claim's keeps from being privileged: it tolerates no taint."""
    container = {"name": "a", "securityContext": {"privileged": True}}
    claims = [{"name": "a", "resourceClaimTemplateName": template}]
    spec = {"containers": [container], "resourceClaims": claims, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "lab"}, "spec": spec}


def domain(template: str) -> Object:
    spec = {"numNodes": 2, "channel": {"resourceClaimTemplate": {"name": template}}}
    metadata = {"name": "a", "namespace": "lab"}
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": metadata, "spec": spec}


def test_the_template_of_a_compute_domain_is_for_channels(sample_policy: Policy) -> None:
    (found,) = results(sample_policy, pod_with("channel"), domain("channel"))
    assert (found.action, "compute-domain-default-channel.nvidia.com" in found.finding.message) == (Action.WARN, True)
    (other,) = results(sample_policy, pod_with("gpus"), domain("channel"))
    assert other.action is Action.DENY


@pytest.mark.parametrize("first", [True, False])
def test_a_template_that_is_written_down_counts_before_that_of_a_domain(sample_policy: Policy, first: bool) -> None:
    facts = (domain("a"), claim("ResourceClaimTemplate", "gpu.nvidia.com"))
    (found,) = results(sample_policy, pod_with("a"), *(facts if first else reversed(facts)))
    assert (found.action, "gpu.nvidia.com" in found.finding.message) == (Action.DENY, True)


@pytest.mark.parametrize(
    ("name", "spec", "denied"),
    [
        ("mrdma.google.com", {}, False),
        ("gpu.nvidia.com", {}, True),
        ("cpu.example.com", {}, True),
        ("mrdma.google.com", {"tolerations": [{"operator": "Exists"}]}, True),
    ],
)
def test_a_pod_that_claims_another_device_is_judged_as_one_without_a_gpu(
    sample_policy: Policy, name: str, spec: Any, denied: bool
) -> None:
    engine = Engine(sample_policy, walk())
    facts = Facts.of([claim("ResourceClaimTemplate", name)])
    verdict = engine.judge(decode(wrap(pod_with("a", **spec))), facts)
    assert ("privileged-container" in {result.rule for result in verdict.having(Action.DENY)}) is denied


def test_where_claims_are_judged_a_check_says_how_the_webhook_judges_a_pod_with_an_unknown_one() -> None:
    policy = settings("unsized-claim")[0]
    (found,) = results(policy, pod_with("a"), claim("ResourceClaimTemplate", "mrdma.google.com"))
    assert (found.action, "does not know the claim judges the pod as one" in found.finding.message) == (
        Action.WARN,
        True,
    )
    assert results(policy, pod_with("a")) == []


def test_where_claims_are_allowed_a_check_says_what_the_webhook_does_not_see(sample_policy: Policy) -> None:
    scope = Scope(frozenset({"lab"}), None, frozenset())
    policy = replace(sample_policy, forms=replace(sample_policy.forms, claims=(scope,)))
    (found,) = results(policy, pod_with("channel"), domain("channel"))
    assert (found.action, "judges the pod as one with a GPU" in found.finding.message) == (Action.WARN, True)
    assert results(policy, pod_with("channel")) == []
    quiet = pod_with("channel", containers=[{"name": "a"}])
    assert results(policy, quiet, domain("channel")) == []
    bind = {"csi": {"driver": "d", "volumeAttributes": {"mountOptions": "bind"}}}
    for volume in (bind, {"fc": {"wwids": ["a"]}}, {"nfs": {"server": "-v", "path": "/"}}):
        pod = {**quiet, "spec": {**quiet["spec"], "volumes": [{"name": "v", **volume}]}}
        (found,) = results(policy, pod, domain("channel"))
        assert (found.action, "judges the pod as one with a GPU" in found.finding.message) == (Action.WARN, True)


def test_an_extended_resource_of_a_known_other_class_is_no_gpu(sample_policy: Policy) -> None:
    known = sample_policy.gpu_resources
    assert "deviceclass.resource.kubernetes.io/gpu.nvidia.com" in known
    assert "deviceclass.resource.kubernetes.io/cpu.example.com" in known
    assert "deviceclass.resource.kubernetes.io/mrdma.google.com" not in known
