"""A pod with a claim is placed, counted and capped by what the claim requests, where the claim is a fact."""

import json
from typing import Any

import pytest

from tests.support.objects import Object
from tests.support.policies import policy_of
from tests.support.reviews import reviews
from webhook.api import jsonpatch
from webhook.api.admission import decode, wrap
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.memory.explain import landings
from webhook.model import Action, Verdict
from webhook.policy.model import Policy
from webhook.rules import walk

SLICE = "shared-gpu.example.com"
TRUST = {"slicewarden.dev/trust": "trusted"}

POLICY = """
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {name: claims}
spec:
  trust: {grants: [{namespaces: [vision]}]}
  guard: every-pod
  memory: {context: {default: 1Gi}}
  pools:
  - name: slices
    sharing: time-slicing
    trust: [trusted]
    nodes: {matchLabels: {pool: slices}}
    resources: [nvidia.com/gpu]
    deviceClasses: [shared-gpu.example.com]
    maxMemory: 12Gi
    assume: {memory: 80Gi, replicas: 8}
"""

NODELESS = POLICY.replace("    nodes: {matchLabels: {pool: slices}}\n    resources: [nvidia.com/gpu]\n", "")


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policy_of(POLICY)


def template(*memories: str | None, name: str = "quarter", kind: str = "ResourceClaimTemplate") -> Object:
    requests = [
        {
            "name": f"r{number}",
            "exactly": {
                "deviceClassName": SLICE,
                **({"capacity": {"requests": {"memory": memory}}} if memory is not None else {}),
            },
        }
        for number, memory in enumerate(memories)
    ]
    spec: Any = {"devices": {"requests": requests}}
    metadata = {"name": name, "namespace": "vision"}
    spec = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def device_class(name: str = SLICE, resource: str = "") -> Object:
    spec: Object = {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}
    spec = {**spec, **({"extendedResourceName": resource} if resource else {})}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def slices(*memories: str, driver: str = "gpu.example.com", node: str = "a") -> Object:
    devices = [
        {"name": f"gpu-{n}", "allowMultipleAllocations": True, "capacity": {"memory": {"value": memory}}}
        for n, memory in enumerate(memories)
    ]
    spec = {"driver": driver, "nodeName": node, "pool": {"name": node}, "devices": devices}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def pod(*containers: list[str], **named: str) -> Object:
    """A pod with a claim for each keyword, and with containers that use the claims of these names."""
    entries = [{"name": name, "resourceClaimTemplateName": source} for name, source in named.items()]
    made = [
        {"name": f"c{n}", "resources": {"claims": [{"name": name} for name in names]}}
        for n, names in enumerate(containers)
    ]
    metadata = {"name": "p", "namespace": "vision", "annotations": TRUST}
    spec = {"resourceClaims": entries, "containers": made}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def judge(policy: Policy, item: Object, *facts: Object) -> tuple[Verdict, Object]:
    request = decode(wrap(item))
    verdict = Engine(policy, walk()).judge(request, Facts.of(facts))
    return verdict, dict(jsonpatch.apply(item, verdict.patch))


def variables(made: Object, index: int = 0) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in made["spec"]["containers"][index].get("env", ())}


def record(made: Object) -> Any:
    return json.loads(made["metadata"]["annotations"]["slicewarden.dev/memory-caps"])


def test_a_template_of_4_gib_sizes_the_cap_whatever_the_replicas_of_the_pool() -> None:
    for replicas in (8, 2, 40):
        sized = policy_of(POLICY.replace("replicas: 8", f"replicas: {replicas}"))
        verdict, made = judge(sized, pod(["gpu"], gpu="quarter"), template("4Gi"))
        assert verdict.allowed
        assert not verdict.results
        # The slice is 4 GiB, of which a process takes 1 outside its allocator: 3 of 80 GiB.
        assert variables(made)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.037"
        assert (record(made)["mib"], record(made)["claim"]) == (3072, "template quarter")
        assert made["spec"]["nodeSelector"] == {"pool": "slices"}


def test_the_cards_of_resource_slices_count_before_what_the_policy_assumes(policy: Policy) -> None:
    _, made = judge(policy, pod(["gpu"], gpu="quarter"), template("4Gi"), device_class(), slices("24Gi", "16Gi"))
    # No process may take more than 3 GiB of the larger card.
    assert variables(made)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.125"
    other = slices("10Gi", driver="other.example.com", node="b")
    _, same = judge(policy, pod(["gpu"], gpu="quarter"), template("4Gi"), device_class(), slices("24Gi"), other)
    assert variables(same) == variables(made)


def test_two_containers_share_the_slice_of_one_claim(policy: Policy) -> None:
    _, made = judge(policy, pod(["gpu"], ["gpu"], [], gpu="half"), template("8Gi", name="half"))
    assert record(made)["mib"] == 3072
    assert variables(made, 1)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.037"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in variables(made, 2)


def test_judging_the_patched_pod_again_changes_nothing(policy: Policy) -> None:
    facts = (template("4Gi"), device_class(), slices("24Gi"))
    _, made = judge(policy, pod(["gpu"], gpu="quarter"), *facts)
    verdict, again = judge(policy, made, *facts)
    assert again == made
    assert verdict == Verdict()


def test_a_pod_by_a_claim_needs_the_trust_of_the_pool(policy: Policy) -> None:
    item = pod(["gpu"], gpu="quarter")
    item["metadata"]["annotations"] = {}
    verdict, _ = judge(policy, item, template("4Gi"))
    assert {result.rule for result in verdict.having(Action.DENY)} == {"unsteered-pod"}


def test_two_claims_for_slices_in_one_pod_are_two_slices(policy: Policy) -> None:
    verdict, _ = judge(policy, pod(["a", "b"], a="quarter", b="quarter"), template("4Gi"))
    assert "multiple-slices" in {result.rule for result in verdict.having(Action.DENY)}


def test_a_slice_that_is_too_small_for_a_framework_is_refused_by_its_claim(policy: Policy) -> None:
    verdict, _ = judge(policy, pod(["gpu"], gpu="quarter"), template("1Gi"))
    (result,) = verdict.having(Action.DENY)
    assert result.rule == "uncapped-memory"
    assert "request more memory in template quarter" in result.finding.message


def test_a_claim_that_says_nothing_of_memory_has_a_slice_of_the_pool(policy: Policy) -> None:
    facts = template(None)
    _, made = judge(policy, pod(["gpu"], gpu="quarter"), facts)
    assert "claim" not in record(made)
    assert record(made)["mib"] == (81920 - 1639) // 8 - 1024


def test_a_claim_that_is_not_known_warns_that_nothing_is_capped(policy: Policy) -> None:
    verdict, made = judge(policy, pod(["gpu"], gpu="quarter"))
    assert [(result.rule, result.action) for result in verdict.results] == [("uncapped-memory", Action.WARN)]
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in variables(made)


def test_a_pool_without_nodes_holds_a_pod_by_its_claim_alone() -> None:
    policy = policy_of(NODELESS)
    verdict, made = judge(policy, pod(["gpu"], gpu="quarter"), template("4Gi"), device_class(), slices("24Gi"))
    assert not verdict.results
    assert "nodeSelector" not in made["spec"]
    assert record(made)["claim"] == "template quarter"


def lands(policy: Policy, item: Object, *facts: Object) -> str:
    (landing,) = landings(reviews(decode(wrap(item)), policy, Facts.of(facts)))
    return landing.brief


def test_explain_names_class_claim_memory_and_nodes() -> None:
    text = lands(policy_of(NODELESS), pod(["gpu"], gpu="quarter"), template("4Gi"), device_class(), slices("24Gi"))
    assert text.startswith("pool slices on a: ")
    assert "by template quarter for class shared-gpu.example.com, 4096 MiB of a device" in text


def test_explain_says_by_which_class_a_resource_is_claimed(policy: Policy) -> None:
    item = pod([])
    item["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    assert "nvidia.com/gpu by claim of class gold" in lands(policy, item, device_class("gold", "nvidia.com/gpu"))
    assert "by claim" not in lands(policy, item, device_class("gold"))
