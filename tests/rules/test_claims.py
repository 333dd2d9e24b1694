"""Claims for devices belong to pools: trust, slices and memory, in every version of the API, and in the conditions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests import ROOT
from tests.support.conditions import receivers, request_of
from tests.support.objects import Object
from tests.support.policies import policy_of
from webhook.api.admission import decode, wrap
from webhook.api.devices import device_requests
from webhook.engine.engine import Engine
from webhook.engine.registration import configurations
from webhook.facts.snapshot import Facts
from webhook.gpu.claims import counted
from webhook.model import Action, Requester, Verdict
from webhook.policy.model import Policy
from webhook.policy.scopes import Grant, Scope
from webhook.rules import walk

VERSIONS = ("v1", "v1beta2", "v1beta1")
SLICE, CARD = "shared-gpu.example.com", "card.example.com"
TRUST = {"slicewarden.dev/trust": "trusted"}

POLICY = """
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {name: claims}
spec:
  trust:
    grants:
    - namespaces: [vision]
    - {namespaces: [speech], serviceAccounts: [trainer]}
    - {namespaces: [people], users: [ada]}
  pools:
  - name: slices
    sharing: time-slicing
    trust: [trusted]
    deviceClasses: [shared-gpu.example.com]
    maxMemory: 8Gi
  - name: cards
    sharing: none
    trust: [trusted, untrusted]
    deviceClasses: [card.example.com]
    maxRequest: 2
"""


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policy_of(POLICY)


def request_for(name: str, memory: str | None = "4Gi", **more: Any) -> Object:
    capacity = {"capacity": {"requests": {"memory": memory}}} if memory is not None else {}
    return {"deviceClassName": name, **capacity, **more}


def claim(
    *requests: Object,
    version: str = "v1",
    namespace: str = "vision",
    trust: bool = True,
    kind: str = "ResourceClaim",
    **devices: Any,
) -> Object:
    flat = version == "v1beta1"
    asked = [{"name": f"r{n}", **(one if flat else {"exactly": one})} for n, one in enumerate(requests)]
    spec: Any = {"devices": {"requests": asked, **devices}}
    metadata: Any = {"name": "c", "namespace": namespace}
    own = {"annotations": TRUST} if trust else {}
    if kind == "ResourceClaimTemplate":
        spec = {"metadata": own, "spec": spec}
    else:
        metadata |= own
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": metadata, "spec": spec}


def judge(policy: Policy, item: Object, user: str | None = None, facts: Facts | None = None) -> Verdict:
    request = decode(wrap(item))
    if user is not None:
        request = replace(request, requester=Requester(user, frozenset()))
    return Engine(policy, walk()).judge(request, facts or Facts())


def denied(verdict: Verdict) -> set[str]:
    return {result.rule for result in verdict.having(Action.DENY)}


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_claim_needs_the_trust_of_its_pool_in_every_version(policy: Policy, version: str, kind: str) -> None:

    asked = request_for(SLICE)
    assert denied(judge(policy, claim(asked, version=version, kind=kind))) == set()
    for wrong in ({"namespace": "visitors"}, {"trust": False}):
        item = claim(asked, version=version, kind=kind, **wrong)
        assert "claimed-gpu" in denied(judge(policy, item))
    item = claim(asked, version=version, kind=kind, namespace="visitors")
    assert denied(judge(policy, item)) == {"claimed-gpu", "unearned-trust"}


@pytest.mark.parametrize("version", VERSIONS)
def test_two_slices_in_one_claim_are_refused_unless_they_are_of_two_cards(policy: Policy, version: str) -> None:

    asked = request_for(SLICE)
    twice: list[tuple[Object, ...]] = [(asked, asked), ({**asked, "count": 2},)]
    for requests in twice:
        assert denied(judge(policy, claim(*requests, version=version))) == {"multiple-slices"}
        apart = [{"distinctAttribute": "gpu.example.com/uuid"}]
        assert denied(judge(policy, claim(*requests, version=version, constraints=apart))) == set()
        alike = [{"distinctAttribute": "gpu.example.com/productName"}]
        assert denied(judge(policy, claim(*requests, version=version, constraints=alike))) == {"multiple-slices"}
    one = [{"distinctAttribute": "gpu.example.com/uuid", "requests": ["r0"]}]
    assert denied(judge(policy, claim(asked, asked, version=version, constraints=one))) == {"multiple-slices"}


def apart(*requests: str) -> Object:
    return {"distinctAttribute": "gpu.example.com/uuid", "requests": list(requests)}


@pytest.mark.parametrize(
    ("constraints", "cards_of_one"),
    [
        ([apart("r0", "r1", "r2")], 1),
        ([apart("r0"), apart("r1"), apart("r2")], 3),  # each keeps only its own devices apart
        ([apart("r0", "r1"), apart("r2")], 2),
        ([apart("r0"), apart()], 1),
        ([apart("r0"), apart("r0", "r1", "r2")], 2),  # by the first constraint of each request: never too few
    ],
)
def test_only_requests_of_one_constraint_are_apart(
    policy: Policy, constraints: list[Object], cards_of_one: int
) -> None:
    asked = request_for(SLICE)
    item = claim(asked, asked, asked, constraints=constraints)
    verdict = judge(policy, item)
    assert denied(verdict) == ({"multiple-slices"} if cards_of_one > 1 else set())
    assert cards_of_one == 1 or f"{cards_of_one} slices" in verdict.results[0].finding.message
    requests = device_requests(item["spec"]["devices"], ())
    assert counted(requests, policy) == {SLICE: cards_of_one}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["gpu.example.com/uuid", "mine/uuid"])
def test_an_attribute_that_a_claim_derives_keeps_no_slices_apart(policy: Policy, version: str, name: str) -> None:
    """Its expression counts in place of what the driver says: k8s.io/api resource/v1, DeviceDerivedAttribute."""
    constraints = [{"distinctAttribute": name}]
    first, second = ({**request_for(SLICE), "derivedAttributes": [{"name": name, "expression": e}]} for e in "12")
    derived = claim(first, second, version=version, constraints=constraints)
    assert denied(judge(policy, derived)) == {"multiple-slices"}
    other = {**request_for(SLICE), "derivedAttributes": [{"name": "mine/numa", "expression": "1"}]}
    elsewhere = claim(other, other, version=version, constraints=[*constraints, {"matchAttribute": "mine/numa"}])
    assert denied(judge(policy, elsewhere)) == set()


@pytest.mark.parametrize(("name", "denials"), [("uuid", {"multiple-slices"}), ("mine/uuid", set())])
def test_a_derived_attribute_without_a_domain_counts_for_every_driver(
    policy: Policy, name: str, denials: set[str]
) -> None:
    asked = {**request_for(SLICE), "derivedAttributes": [{"name": name, "expression": "1"}]}
    constraints = [{"distinctAttribute": "gpu.example.com/uuid"}, {"matchAttribute": name}]
    assert denied(judge(policy, claim(asked, asked, constraints=constraints))) == denials


def test_an_alternative_that_derives_an_attribute_keeps_no_slices_apart(policy: Policy) -> None:
    derived = [{"name": "mine/uuid", "expression": "'1'"}]
    item = claim(request_for(SLICE), constraints=[{"distinctAttribute": "mine/uuid"}])
    requests = item["spec"]["devices"]["requests"]
    requests.append(
        {"name": "any", "firstAvailable": [{"name": "a", **request_for(SLICE), "derivedAttributes": derived}]}
    )
    assert denied(judge(policy, item)) == {"multiple-slices"}


def test_alternatives_of_one_request_are_one_slice(policy: Policy) -> None:
    either = [{"name": "a", **request_for(SLICE)}, {"name": "b", **request_for(SLICE, "2Gi")}]
    item = claim()
    item["spec"]["devices"]["requests"] = [{"name": "any", "firstAvailable": either}]
    assert denied(judge(policy, item)) == set()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("memory", "fine"), [("8Gi", True), ("8589934593", False), (None, False), ("0", False), ("-1", False)]
)
def test_a_slice_says_how_much_memory_it_takes(policy: Policy, version: str, memory: str | None, fine: bool) -> None:

    verdict = judge(policy, claim(request_for(SLICE, memory), version=version))
    assert denied(verdict) == (set() if fine else {"unsized-claim"})
    assert fine or "8Gi" in str(verdict.results[0].finding.message)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_claim_that_tolerates_every_taint_of_devices_is_refused(policy: Policy, version: str) -> None:

    for tolerated, fine in (({"operator": "Exists"}, False), ({"key": "example.com/busy", "operator": "Exists"}, True)):
        item = claim(request_for(CARD, None, tolerations=[tolerated]), version=version)
        assert denied(judge(policy, item)) == (set() if fine else {"unsafe-device-claim"})


def test_a_class_of_a_pool_is_refused_by_all_devices(policy: Policy) -> None:
    item = claim(request_for(CARD, None, allocationMode="All"))
    assert denied(judge(policy, item)) == {"unsafe-device-claim"}


def test_a_claim_that_the_scheduler_makes_for_an_extended_resource_passes(policy: Policy) -> None:
    item = claim(request_for(SLICE, None), trust=False, namespace="visitors")
    assert judge(policy, item, "system:kube-scheduler") == Verdict()
    item["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert denied(judge(policy, item, "mallory"))


def test_a_grant_for_users_reaches_the_claims_that_they_write_and_those_of_their_templates(policy: Policy) -> None:
    item = claim(request_for(SLICE), namespace="people")
    assert denied(judge(policy, item, "ada")) == set()
    assert denied(judge(policy, item, "mallory")) == {"claimed-gpu", "unearned-trust"}
    controller = "system:serviceaccount:kube-system:resource-claim-controller"
    assert denied(judge(policy, item, controller)) == set()
    request = replace(decode(wrap(item)), requester=Requester("mallory", frozenset()), operation="UPDATE")
    labelled = {**item, "metadata": {**item["metadata"], "labels": {"a": "b"}}}
    update = replace(request, object=labelled, old_object=item)
    assert Engine(policy, walk()).judge(update, Facts()) == Verdict()


def pod(namespace: str, account: str = "default", **spec: Any) -> Object:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "c"}]
    container = {"name": "a", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"serviceAccountName": account, "resourceClaims": claims, "containers": [container], **spec}
    metadata = {"name": "p", "namespace": namespace, "annotations": TRUST}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("namespace", "account", "fine"),
    [("vision", "default", True), ("visitors", "default", True), ("speech", "trainer", True), ("speech", "a", False)],
)
def test_a_pod_uses_claims_that_it_could_have_been_granted(
    policy: Policy, namespace: str, account: str, fine: bool
) -> None:
    """The claim is not known: it was judged where it was written, by the grants of its namespace."""
    assert ("unlisted-claim" not in denied(judge(policy, pod(namespace, account)))) is fine


def test_grants_of_other_namespaces_are_not_looked_at(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they are two or a thousand: for claims, and for pods that use claims which are not known."""
    asked, reaches = [0], Scope.reaches

    def counting(scope: Scope, namespace: str, labels: Mapping[str, str] | None) -> bool:
        asked[0] += 1
        return reaches(scope, namespace, labels)

    def counted(policy: Policy, item: Object) -> tuple[set[str], int]:
        asked[0] = 0
        return denied(judge(policy, item)), asked[0]

    monkeypatch.setattr(Scope, "reaches", counting)
    others = [Grant(Scope(frozenset({f"team-{number}"}), None, frozenset())) for number in range(1000)]
    wide = replace(policy, grants=(*others[:500], *policy.grants, *others[500:]))
    for item in (claim(request_for(SLICE)), claim(request_for(SLICE), namespace="visitors"), pod("speech", "other")):
        assert counted(wide, item) == counted(policy, item)
    assert counted(wide, claim(request_for(SLICE), namespace="team-7"))[0] == set()


def test_claims_of_a_namespace_where_some_account_may_claim_anything_are_its_own() -> None:
    text = POLICY.replace(
        "  trust:\n", "  gpus: {claims: [{namespaces: [vision], serviceAccounts: [net]}]}\n  trust:\n"
    )
    wide = policy_of(text)
    assert "unlisted-claim" in denied(judge(wide, pod("vision")))
    assert "unlisted-claim" not in denied(judge(wide, pod("vision", "net")))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", [SLICE, CARD])
def test_claims_for_classes_of_pools_are_sent(policy: Policy, version: str, name: str) -> None:
    """Even where the policy names the classes of GPUs, and leaves these out."""
    named = policy_of(POLICY.replace("  trust:\n", "  gpus: {deviceClasses: [gpu.nvidia.com]}\n  trust:\n", 1))
    for each in (policy, named):
        hooks = configurations(each)[1]["webhooks"]
        assert receivers(hooks, request_of(claim(request_for(name), version=version))) == ["devices.slicewarden.dev"]
        device_class = {"apiVersion": f"resource.k8s.io/{version}", "kind": "DeviceClass", "metadata": {"name": name}}
        assert receivers(hooks, request_of(device_class)) == ["devices.slicewarden.dev"]


def test_security_md_says_what_of_claims_is_not_judged() -> None:
    page = " ".join((ROOT / "SECURITY.md").read_text("utf-8").split())
    for term in (
        "RuntimeClass objects",
        "`hostUsers: false`",
        "ClusterResourceClaimTemplate",
        "PodGroup",
        "can replace one",
        "`resourceclaims/status`",
        "`resourceclaims/binding`",
    ):
        assert term in page.partition("## What is not defended")[2], term


CLOSED = 'pods in namespace "media" may not claim gpu.intel.com, and policy sample has no pool of Intel GPUs; ask'


def test_the_owner_of_another_makers_gpu_is_not_sent_to_nvidias(engine: Engine, sample_facts: Facts) -> None:
    item = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "intel", "namespace": "media"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.intel.com"}}]}}},
    }
    (denied,) = engine.judge(decode(wrap(item)), sample_facts).having(Action.DENY)
    assert denied.finding.message.startswith(CLOSED)
    facts = Facts.of([item])
    claims = [{"name": "gpu", "resourceClaimTemplateName": "intel"}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "media"},
        "spec": {"resourceClaims": claims, "containers": [{"name": "c", "image": "a"}]},
    }
    (denied,) = engine.judge(decode(wrap(pod)), facts).having(Action.DENY)
    assert "nvidia" not in denied.finding.message
    assert denied.finding.message.endswith("ask an administrator to list the namespace under gpus.claims")


@pytest.mark.parametrize(
    ("entry", "fine"),
    [
        ({"configMapRef": {"name": "mine"}}, False),
        ({"prefix": "LD_", "secretRef": {"name": "mine"}}, False),
        ({"prefix": "CUDA_MPS", "configMapRef": {"name": "mine"}}, False),
        ({"prefix": "APP_", "configMapRef": {"name": "mine"}}, True),
    ],
)
def test_variables_that_are_not_read_may_lift_the_limits_of_a_claim(policy: Policy, entry: Object, fine: bool) -> None:
    facts = Facts.of([claim(request_for(SLICE))])
    item = pod("vision", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}])
    item["metadata"]["annotations"] = TRUST
    item["spec"]["containers"] = [
        {"name": "main", "resources": {"claims": [{"name": "gpu"}]}, "envFrom": [entry]},
    ]
    assert ("unread-variables" not in denied(judge(policy, item, facts=facts))) is fine
    item["spec"]["containers"].append({"name": "web"} | {"envFrom": item["spec"]["containers"][0].pop("envFrom")})
    assert "unread-variables" not in denied(judge(policy, item, facts=facts))  # that one has no GPU
