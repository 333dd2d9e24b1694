"""A pod with a claim is placed, counted and capped by what the claim requests, where the claim is a fact."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.objects import Object
from tests.support.policies import policy_of
from tests.support.reviews import reviews
from webhook.api import jsonpatch
from webhook.api.admission import decode, wrap
from webhook.cluster.listing import trimmed
from webhook.engine.engine import Engine
from webhook.facts.kinds import read
from webhook.facts.snapshot import Facts, gathered, joined
from webhook.memory.explain import landings
from webhook.model import Action, Verdict
from webhook.policy.model import Policy
from webhook.rules import walk
from webhook.scan import batches
from webhook.scan.reduced import reduced

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


# Claims that hide themselves

STRICT = POLICY.replace("memory: {", "memory: {defeats: Deny, ")
FREE = STRICT.replace("  guard: every-pod\n", "  guard: every-pod\n  gpus: {claims: [{namespaces: [vision]}]}\n")
BY_CLAIM = ("a", "b")


def defeating() -> Object:
    """A pod that uses two claims, and takes away the cap that it is given."""
    item = pod(["a", "b"], **dict.fromkeys(BY_CLAIM, ""))
    item["spec"]["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in BY_CLAIM]
    item["spec"]["containers"][0]["env"] = [{"name": "PYTORCH_NO_CUDA_MEMORY_CACHING", "value": "1"}]
    return item


def by_files(items: list[Object], policy: Policy, folder: Path) -> Facts:
    file = folder / "claims.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return Facts.of(batches.read([str(file)], workloads=policy.workloads).facts)


READERS: dict[str, Callable[[list[Object], Policy, Path], Facts]] = {
    "a list of objects": lambda items, _, __: Facts.of(items),
    "a watch": lambda items, _, __: joined([gathered(filter(None, map(read, items)))]),
    "check": by_files,
    "the file of slicewarden facts": lambda items, policy, _: Facts.of(reduced(items, policy)),
    "a list of a live cluster": lambda items, _, __: Facts.of(filter(None, map(trimmed, items))),
}
"""The ways by which claims become facts."""

TEXTS = st.text("abc./-", min_size=1, max_size=12)
OWNERS = st.fixed_dictionaries(
    {
        "apiVersion": st.sampled_from(("v1", "apps/v1", "scheduling.k8s.io/v1beta1", "resource.k8s.io/v1")),
        "kind": st.sampled_from(("Pod", "Deployment", "Node", "PodGroup", "ResourceClaimTemplate")),
        "name": st.sampled_from(("p", "other")),
        "uid": st.sampled_from(("1", "2")),
        "controller": st.booleans(),
    }
)
KEYS = st.sampled_from(
    ("resource.kubernetes.io/pod-claim-name", "slicewarden.dev/trust", "kubernetes.io/config.mirror")
)
ADDED = st.fixed_dictionaries(
    {},
    optional={
        "annotations": st.dictionaries(KEYS | TEXTS, TEXTS, max_size=3),
        "labels": st.dictionaries(TEXTS, TEXTS, max_size=2),
        "ownerReferences": st.lists(OWNERS, max_size=2),
        "finalizers": st.lists(TEXTS, max_size=2),
        "generateName": TEXTS,
        "deletionTimestamp": st.just("2026-01-01T00:00:00Z"),
    },
)
RESERVED = st.lists(st.just({"resource": "pods", "name": "p", "uid": "1"}), max_size=1)


@pytest.mark.parametrize("reader", READERS)
@given(added=ADDED, reserved=RESERVED, data=st.data())
def test_no_metadata_of_a_claim_hides_it(
    reader: str, tmp_path_factory: pytest.TempPathFactory, added: Object, reserved: list[Object], data: st.DataObject
) -> None:
    """Whatever its author adds: the pods that use it are judged as without."""
    policy, folder = policy_of(STRICT), tmp_path_factory.getbasetemp()
    plain = [template("4Gi", name=name, kind="ResourceClaim") for name in BY_CLAIM]
    hidden = data.draw(st.sampled_from(BY_CLAIM))
    dressed = [
        {**item, "metadata": {**added, **item["metadata"]}, "status": {"reservedFor": reserved}}
        if item["metadata"]["name"] == hidden
        else item
        for item in plain
    ]
    request, engine = decode(wrap(defeating())), Engine(policy, walk())
    expected, found = (engine.judge(request, READERS[reader](items, policy, folder)) for items in (plain, dressed))
    assert found == expected
    assert {result.rule for result in expected.having(Action.DENY)} == {"multiple-slices", "uncapped-memory"}


def refusals(text: str, item: Object, *facts: Object) -> list[tuple[str, str, Action]]:
    verdict, _ = judge(policy_of(text), item, *facts)
    return [(result.rule, result.finding.message, result.action) for result in verdict.results]


def test_where_nothing_may_defeat_a_cap_a_pod_waits_until_its_claim_is_known() -> None:
    item = pod(["gpu"], gpu="quarter")
    ((rule, message, action),) = refusals(STRICT, item)
    assert (rule, action) == ("uncapped-memory", Action.DENY)
    assert message.endswith("create it or its template first, and try again")
    assert refusals(STRICT, item, template("4Gi")) == []
    assert refusals(FREE, item) == []


NAMED = ("a", "b", "c")
KINDS_OF_CLAIMS = {"ResourceClaim": "resourceClaimName", "ResourceClaimTemplate": "resourceClaimTemplateName"}


@st.composite
def claiming(draw: st.DrawFn) -> tuple[Object, list[Object]]:
    """A pod with up to three claims or templates of any size, perhaps with a cap taken away, and all of these."""
    used = draw(st.lists(st.sampled_from(NAMED), min_size=1, max_size=3, unique=True))
    kinds = {name: draw(st.sampled_from([*KINDS_OF_CLAIMS])) for name in used}
    sizes = st.lists(st.sampled_from((None, "1Mi", "4Gi", "4Gi", "40Gi")), min_size=1, max_size=2)
    item = pod(*draw(st.lists(st.lists(st.sampled_from(used), max_size=2), min_size=1, max_size=2)))
    item["spec"]["resourceClaims"] = [{"name": name, KINDS_OF_CLAIMS[kinds[name]]: name} for name in used]
    if draw(st.booleans()):
        item["spec"]["containers"][0]["env"] = [{"name": "PYTORCH_NO_CUDA_MEMORY_CACHING", "value": "1"}]
    return item, [template(*draw(sizes), name=name, kind=kinds[name]) for name in used]


@given(made=claiming(), data=st.data())
def test_facts_that_lag_behind_let_in_no_pod_that_newer_ones_refuse(
    made: tuple[Object, list[Object]], data: st.DataObject
) -> None:
    """With `defeats: Deny`, and whichever of the claims a snapshot has not seen yet, or the pod came before."""
    item, claims = made
    lagging = data.draw(st.lists(st.sampled_from(claims), unique_by=lambda each: each["metadata"]["name"]))
    (newer, _), (older, _) = (judge(policy_of(STRICT), item, *some) for some in (claims, lagging))
    event(f"newer: {newer.allowed}, older: {older.allowed}")
    assert newer.allowed or not older.allowed
    assert not older.allowed or len(lagging) == len(claims)
    said = [result.finding.message for result in older.having(Action.DENY)]
    assert older.allowed or len(lagging) == len(claims) or any("try again" in each for each in said)


def test_a_workload_may_come_before_the_template_of_its_claims() -> None:
    """As Helm creates them, and its pods are judged when they come."""
    item = pod(["gpu"], gpu="quarter")
    spec = {"template": {"metadata": {"annotations": TRUST}, "spec": item["spec"]}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": item["metadata"], "spec": spec}
    ((rule, _, action),) = refusals(STRICT, deployment)
    assert (rule, action) == ("uncapped-memory", Action.WARN)


@pytest.mark.parametrize(("text", "action"), [(POLICY, Action.WARN), (STRICT, Action.DENY)])
def test_a_known_claim_hides_no_unknown_one(text: str, action: Action) -> None:
    item = pod(["gpu", "more"], gpu="quarter", more="unknown")
    found = refusals(text, item, template("4Gi"))
    assert [(rule, each) for rule, message, each in found if "not known" in message] == [("uncapped-memory", action)]


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "gpu", "clusterResourceClaimTemplateName": "quarter"},
        {"name": "gpu", "resourceClaimName": "quarter", "resourceClaimTemplateName": "quarter"},
        {"name": "gpu"},
    ],
)
def test_a_claim_of_a_source_that_is_not_read_is_refused(entry: Object) -> None:
    """Such as a template of the cluster (KEP-5978), which Kubernetes 1.37 has not: nobody judges what it holds."""
    item = pod(["gpu"], gpu="")
    item["spec"]["resourceClaims"] = [entry]
    facts = [template("4Gi"), template("4Gi", kind="ResourceClaim")]
    assert ("unlisted-claim", Action.DENY) in {(rule, action) for rule, _, action in refusals(POLICY, item, *facts)}
    assert refusals(FREE, item, *facts) == []


def test_a_template_of_the_cluster_is_no_fact() -> None:
    item = {**template("4Gi"), "kind": "ClusterResourceClaimTemplate", "metadata": {"name": "quarter"}}
    assert Facts.of([item]).claimed == {}


def test_pods_of_a_pod_group_are_capped_each_as_if_its_claim_were_its_own(policy: Policy) -> None:
    """SECURITY.md says so: the group's pods share one claim (KEP-5729), and the cap of each is the whole slice."""
    item = pod(["gpu"], gpu="quarter")
    _, own = judge(policy, item, template("4Gi"))
    item["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "quarter"}]}
    metadata = {"name": "gang", "namespace": "vision"}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    verdict, shared = judge(policy, item, template("4Gi"), group)
    assert not verdict.results
    assert record(shared) == record(own)
    verdict, _ = judge(policy, group, template("4Gi"))
    assert not verdict.results
